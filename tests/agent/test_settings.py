"""Which layer wins, what is refused and in what words.

The door: which model answers, that no call is paid for by accident, what else settings come to.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from rubricem.agent.cli.doctor import check_program
from rubricem.agent.models.opening import LANGCHAIN, EmbeddedChoice, PolicyChoice, ServerChoice
from rubricem.agent.settings import Settings, load_settings, notices, retired
from rubricem.agent.settings.door import (
    OPENAI_URL,
    choices_of,
    decoding_of,
    judging,
    model_of,
    setup_of,
)
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import Decoding
from tests.conftest import rubricem


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own(home: Path) -> Path:
    """The user's folder of settings."""
    path = home / "config" / "rubricem"
    path.mkdir(parents=True)
    return path


def write(folder: Path, text: str) -> Path:
    path = folder / "rubricem.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(flags: dict[str, object] | None = None) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags)
    assert caught.value.remedy
    return caught.value


def test_nothing_set_gives_the_defaults(home: Path):
    settings = load_settings()
    assert (settings.model, settings.base_url, settings.api_key) == (None, None, None)
    assert settings.source == ("python",)
    assert (settings.tool_calls, settings.context_tokens) == (None, 8192)
    assert settings.data_dir == home / "data" / "rubricem"
    assert settings.weights_dir == home / "cache" / "rubricem" / "weights"
    assert {settings.origin(name) for name in Settings.model_fields} == {"default"}


def test_flag_beats_environment_beats_file_beats_default(
    own: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write(own, "tool_calls = 2\nseed = 2\nconcurrency = 2\n")
    monkeypatch.setenv("RUBRICEM_TOOL_CALLS", "3")
    monkeypatch.setenv("RUBRICEM_SEED", "3")
    settings = load_settings({"tool_calls": 4})
    assert (settings.tool_calls, settings.seed, settings.concurrency) == (4, 3, 2)
    assert settings.origin("tool_calls") == "--tool-calls"
    assert settings.origin("seed") == "RUBRICEM_SEED"
    assert settings.origin("concurrency") == str(path)
    assert settings.origin("max_tokens") == "default"


def test_what_the_page_set_counts_before_the_users_own_file_and_not_beside_a_named_one(
    own: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    mine = write(own, "tool_calls = 2\nseed = 2\n")
    (own / "page.toml").write_text("tool_calls = 5\nmax_seconds = 5\n")
    monkeypatch.setenv("RUBRICEM_MAX_SECONDS", "9")
    settings = load_settings()
    assert (settings.tool_calls, settings.seed, settings.max_seconds) == (5, 2, 9)
    assert settings.origin("tool_calls") == str(own / "page.toml")
    assert f"settings of {own / 'page.toml'} and {mine}" in check_program().found
    monkeypatch.setenv("RUBRICEM_CONFIG", str(write(folder, "seed = 7\n")))
    named = load_settings()
    assert (named.tool_calls, named.seed) == (None, 7)


def test_what_is_not_given_hides_nothing_and_an_empty_flag_takes_away(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("RUBRICEM_SOURCE", "docs, python")
    monkeypatch.setenv("RUBRICEM_MODEL", "0.5b")
    monkeypatch.setenv("RUBRICEM_CONCURRENCY", "")
    monkeypatch.setenv("RUBRICEM_BASE_URL", "http://localhost:1/v1")
    settings = load_settings({"source": (), "model": None})
    assert settings.source == ("docs", "python")
    assert (settings.model, settings.concurrency) == ("0.5b", None)
    assert settings.base_url == "http://localhost:1/v1"
    assert load_settings({"base_url": ""}).base_url is None


def test_openai_variables_lie_under_every_other_layer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://openai.test/v1/")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ambient")
    settings = load_settings()
    assert settings.base_url == "http://openai.test/v1"
    assert settings.origin("base_url") == "OPENAI_BASE_URL"
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == "sk-ambient"


def test_a_file_of_the_working_directory_is_read_only_if_it_is_named(
    folder: Path, own: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    write(own, "seed = 1\nconcurrency = 1\n")
    here = write(folder, 'seed = 2\nbase_url = "http://collector.test/v1"\n')
    settings = load_settings()
    assert (settings.seed, settings.base_url) == (1, None)
    assert f"{here} is not read: name it by --config rubricem.toml" in caplog.text
    caplog.clear()
    monkeypatch.setenv("RUBRICEM_CONFIG", str(here))
    settings = load_settings()
    assert (settings.seed, settings.concurrency, settings.origin("seed")) == (2, None, str(here))
    assert not caplog.text
    monkeypatch.setenv("RUBRICEM_CONFIG", "missing.toml")
    assert str(refusal()) == f"There is no settings file {folder / 'missing.toml'}."


def test_the_command_line_names_a_file_and_says_once_which_is_not_read(folder: Path, own: Path):
    write(folder, "data_dir = 'here'\n")
    left = rubricem("runs")
    assert left.stderr.count("rubricem.toml is not read") == 1 and left.stdout == "0 runs\n"
    assert not rubricem("--help").stderr, "a command without settings has nothing to say"
    (folder / "mine.toml").write_text("modle = 1\n")
    for args in (("--config", "mine.toml", "runs"), ("runs", "--config=mine.toml")):
        assert "mine.toml: there is no setting 'modle'" in rubricem(*args, code=2).stderr
    assert rubricem("runs").stderr == left.stderr


@pytest.mark.parametrize("name", retired())
def test_a_setting_that_is_gone_says_what_is_so_instead(
    own: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    assert name not in Settings.model_fields
    write(own, f"{name} = 3\n")
    error = refusal()
    assert f"{name} is no longer a setting" in str(error) and retired()[name] in error.remedy
    write(own, "")
    monkeypatch.setenv(f"RUBRICEM_{name.upper()}", "3")
    load_settings()
    assert retired()[name] in caplog.text


def test_an_unknown_key_and_a_bad_price_are_refused_with_file_place_and_choices(own: Path):
    path = write(own, 'modle = "1.5b"\n')
    error = refusal()
    assert str(error) == f"{path}: there is no setting 'modle' (did you mean model?)."
    assert "model" in error.remedy and "tool_calls" in error.remedy
    write(own, 'SOURCE = ["/etc"]\n')
    assert str(refusal()) == f"{path}: there is no setting 'SOURCE' (did you mean source?)."
    write(own, '[mcp_servers.a]\nurl = "http://a"\ntool = ["b"]\n')
    error = refusal()
    assert "there is no key 'tool' in mcp_servers.a (did you mean tools?)" in str(error)
    assert error.remedy.startswith("Allowed are command, args, env, url,")
    write(own, "[prices]\nsmall = [0.1, -1, 0.4]\n")
    assert "prices cannot be {'small': [0.1, -1, 0.4]} (at small.1): it should be" in str(refusal())


def test_a_bad_value_is_refused_with_its_origin_and_what_is_allowed(
    own: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write(own, 'decoding = "fred"\n')
    assert str(refusal()) == (
        f"{path}: decoding cannot be 'fred': it should be 'auto', 'forced' or 'free'."
    )
    monkeypatch.setenv("RUBRICEM_DECODING", "free")
    monkeypatch.setenv("RUBRICEM_TOOL_CALLS", "many")
    assert str(refusal()).startswith("RUBRICEM_TOOL_CALLS cannot be 'many': it should be a valid")
    assert str(refusal({"tool_calls": 0})) == (
        "--tool-calls cannot be 0: it should be greater than or equal to 1."
    )
    assert str(refusal({"tool_calls": 1, "answer_format": "epic"})) == (
        "--format cannot be 'epic': it should be 'long', 'short' or 'exact'."
    )
    assert "--retrieval: retrieval is no longer a setting" in str(
        refusal({"tool_calls": 1, "retrieval": "rerank"})
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        *(
            ({"base_url": a}, f"--base-url cannot be '{a}': ")
            for a in ("localhost:8000", "http://")
        ),
        *(
            ({"base_url": a}, f"--base-url cannot be '{a}': ")
            for a in ("ftp://x/v1", "http://[::1", "http://x:65536/v1")
        ),
        ({"base_url": "ftp://me:secret@x"}, "--base-url cannot be as given: must be"),
        *(({"source": s}, "must name at least one source") for s in (",", "python,,docs", " ")),
        *(
            ({"allow_hosts": (host,)}, "must be hosts such as wiki.local")
            for host in ("http://wiki.local", "*", "wiki.local/page", "me@wiki")
        ),
    ],
)
def test_what_is_no_address_no_source_and_no_host_is_refused(flags: dict[str, object], said: str):
    error = str(refusal(flags))
    assert said in error and error.startswith("--")


def test_a_key_is_never_shown_by_an_error_or_a_repr(own: Path):
    write(own, "api_key = 12345678\n")
    error = refusal()
    assert "12345678" not in f"{error} {error.remedy} {error.__cause__}"
    assert "hidden" not in repr(Settings(api_key="hidden"))  # type: ignore[arg-type]


def test_a_file_that_is_no_toml_or_cannot_be_read_is_named(own: Path):
    path = write(own, "model = \n")
    assert str(refusal()).startswith(f"{path} is not valid TOML: ")
    path.write_bytes(b'model = "\xff"\n')
    assert str(refusal()).startswith(f"{path} is not valid TOML: ")
    assert refusal().remedy == "Save it as UTF-8."
    path.write_bytes(b'\xef\xbb\xbfmodel = "as editors on Windows save it"\r\n')
    assert load_settings().model == "as editors on Windows save it"
    path.unlink()
    path.mkdir()
    assert str(refusal()) == f"{path} cannot be read: Is a directory."
    path.rmdir()
    path.symlink_to("/dev/zero")
    assert str(refusal()).startswith(f"{path} cannot be read: "), "its end is not waited for"


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MODEL", "a\udcff", "no text in UTF-8"),
        ("PRICES", 50_000 * "[" + 50_000 * "]", "RUBRICEM_PRICES is not valid JSON"),
        ("API_KEY", "one\ntwo", "one line of plain letters"),
        ("MCP_SERVERS", json.dumps({"w": {"url": "http://a.test", "tools": ["b"],
          "headers": {"A": "one\ntwo"}}}), "one line of plain letters"),
        ("DATA_DIR", "~nobodyatall", "home directory of nobody"),
        ("SOURCE", "python,~nobodyatall/x", "home directory of nobody"),
        ("CONTEXT_TOKENS", "99999999999999999999", "less than or equal to 10000000"),
    ],
)  # fmt: skip
def test_what_nothing_could_be_done_with_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
):
    monkeypatch.setenv(f"RUBRICEM_{variable}", value)
    error = refusal()
    assert said in str(error) and f"RUBRICEM_{variable}" in str(error) and len(str(error)) < 400
    assert "two" not in error.told()


def test_misspelt_variables_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    for name in ("RUBRICEM_MODLE", "RUBRICEM_DEBUG", "RUBRICEM_MODEL"):
        monkeypatch.setenv(name, "1")
    load_settings()
    assert [record.getMessage() for record in caplog.records] == [
        "RUBRICEM_MODLE names no setting; did you mean RUBRICEM_MODEL?"
    ]


KEY = SecretStr("sk-secret")
SERVER = "http://localhost:8000/v1"


def named(choice: PolicyChoice) -> tuple[object, ...]:
    """The choice by what was named: a model here, or model, address and key of a server."""
    return (
        (choice.model, choice.base_url, choice.api_key)
        if isinstance(choice, ServerChoice)
        else (choice.name,)
    )


DEFAULT = "qwen2.5-coder-1.5b"
WEIGHTS = ("1.5b", "0.5B", "qwen2.5-coder-0.5b", "my/model.gguf", "/a/model.bin")


@pytest.mark.parametrize(
    ("settings", "choice"),
    [
        ({}, (DEFAULT,)),
        ({"api_key": KEY}, (DEFAULT,)),
        *(({"model": model, "api_key": KEY}, (model,)) for model in (*WEIGHTS, "o/r:f.gguf")),
        ({"base_url": SERVER}, (None, SERVER, None)),
        ({"base_url": SERVER, "model": "org/repo"}, ("org/repo", SERVER, None)),
        ({"base_url": SERVER, "api_key": KEY}, (None, SERVER, "sk-secret")),
        ({"model": "gpt-4.1", "api_key": KEY}, ("gpt-4.1", OPENAI_URL, "sk-secret")),
        ({"model": "ft:gpt-4.1:me", "api_key": KEY}, ("ft:gpt-4.1:me", OPENAI_URL, "sk-secret")),
        ({"model": "mistralai:m", "api_key": KEY}, ("mistralai:m", LANGCHAIN, None)),
        ({"model": "qwen3:8b", "base_url": SERVER}, ("qwen3:8b", SERVER, None)),
    ],
)
def test_a_named_server_answers_else_weights_else_openai_and_a_key_alone_buys_nothing(
    settings: dict[str, Any], choice: tuple[object, ...]
):
    chosen = model_of(Settings(**settings))
    assert named(chosen) == choice
    assert "sk-secret" not in repr(chosen)


@pytest.mark.parametrize(
    ("url", "own", "key"),
    [
        ("http://localhost:8000/v1", None, "sk-secret"),
        ("http://localhost:8000/v1", "sk-other", "sk-other"),
        ("https://api.example/v1", None, None),
        ("https://api.example/v1", "sk-other", "sk-other"),
    ],
)
def test_the_policys_key_goes_to_no_other_server_that_checks(
    url: str, own: str | None, key: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RUBRICEM_CHECKER_KEY", own or "")
    checked = {"checker": f"o/m:8b@{url}/", "base_url": SERVER, "api_key": KEY}
    settings = Settings(**checked, extra_body={"a": 1})
    choice = setup_of(settings).checker
    assert isinstance(choice, ServerChoice) and not choice.extra_body
    assert named(choice) == ("o/m:8b", url, key)
    assert list(notices()) == []


@pytest.mark.parametrize(
    ("url", "key"), [("http://localhost:8000/v2", "sk-secret"), ("https://api.example/v1", None)]
)
def test_a_key_that_is_set_beside_a_server_goes_to_no_other_host(
    url: str, key: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    beside = {"base_url": SERVER, "api_key": "sk-secret"}
    for name, value in beside.items():
        monkeypatch.setenv(f"RUBRICEM_{name.upper()}", value)
    for there in (url, None if key is None else url):  # None: OpenAI's
        assert (_key(judging(load_settings(), "m", there)) or None) == key
    assert _key(load_settings({"base_url": url})) == key
    monkeypatch.delenv("RUBRICEM_BASE_URL")
    assert _key(load_settings({"base_url": url})) == "sk-secret", "it was set for whatever is named"
    monkeypatch.delenv("RUBRICEM_API_KEY")
    (file := tmp_path / "own.toml").write_text("".join(f'{k} = "{v}"\n' for k, v in beside.items()))
    monkeypatch.setenv("RUBRICEM_CONFIG", str(file))
    assert [_key(load_settings(f)) for f in ({}, {"base_url": url})] == ["sk-secret", key]


def _key(settings: Settings) -> str | None:
    return settings.api_key and settings.api_key.get_secret_value()


@pytest.mark.parametrize(
    "wrong", ["strict", "@http://localhost:1", "m@http://", "m@ftp://a", "m@http://me:pass@a/v1"]
)
def test_a_checker_that_is_none_or_holds_a_password_is_refused_and_not_shown(wrong: str):
    with pytest.raises(SettingsError, match="--checker cannot be") as refused:
        load_settings({"checker": wrong})
    assert "pass" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "recalls"),
    [
        ({"model": "0.5b"}, False),
        ({"model": "1.5b"}, True),
        ({"model": "small", "base_url": SERVER}, True),
    ],
)
def test_the_smaller_embedded_model_is_given_no_lessons(settings: dict[str, Any], recalls: bool):
    assert setup_of(load_settings(settings)).recalls == recalls


EMBEDDED_MODEL, SERVED = EmbeddedChoice("0.5b"), ServerChoice("m", "http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("wanted", "choice", "decoding"),
    [
        ("auto", EMBEDDED_MODEL, Decoding.FORCED),
        ("auto", SERVED, Decoding.FREE),
        ("free", EMBEDDED_MODEL, Decoding.FREE),
        ("forced", EMBEDDED_MODEL, Decoding.FORCED),
    ],
)
def test_decoding_is_forced_on_the_embedded_model_alone(
    wanted: str, choice: EmbeddedChoice | ServerChoice, decoding: Decoding
):
    assert decoding_of(load_settings({"decoding": wanted}), choice) is decoding


def test_paths_are_kept_whole_since_a_resume_may_start_elsewhere(folder: Path):
    for name in ("documents", "python"):
        (folder / name).mkdir()
    (folder / "my.gguf").write_text("")
    settings = load_settings({"source": ("documents", "python"), "model": "my.gguf"})
    choices = choices_of(settings)
    assert choices["source"] == [str(folder / "documents"), "python"]
    assert choices["model"] == str(folder / "my.gguf")
    assert "api_key" not in choices
