"""Which layer wins, what is refused and in what words.

The door: which model answers, that no call is paid for by accident, what else settings come to.
"""

import io
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from rubricem.agent.models.opening import EmbeddedChoice, PolicyChoice, ServerChoice
from rubricem.agent.settings import Settings, load_settings, settings_file, unknown_variables
from rubricem.agent.settings.door import OPENAI_URL, choices_of, decoding_of, model_of, setup_of
from rubricem.agent.settings.trust import WITHIN, acting
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import AnswerFormat, Decoding
from tests.conftest import COMMAND, ROOT, rubricem
from tests.conftest import refusal as refused


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
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
    assert (settings.tool_calls, settings.context_tokens) == (10, 8192)
    assert settings.data_dir == home / "data" / "rubricem"
    assert settings.weights_dir == home / "cache" / "rubricem" / "weights"
    assert {settings.origin(name) for name in Settings.model_fields} == {"default"}


def test_flag_beats_environment_beats_file_beats_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write(folder, "tool_calls = 2\nseed = 2\nthreads = 2\n")
    monkeypatch.setenv("RUBRICEM_TOOL_CALLS", "3")
    monkeypatch.setenv("RUBRICEM_SEED", "3")
    settings = load_settings({"tool_calls": 4})
    assert (settings.tool_calls, settings.seed, settings.threads) == (4, 3, 2)
    assert settings.origin("tool_calls") == "--tool-calls"
    assert settings.origin("seed") == "RUBRICEM_SEED"
    assert settings.origin("threads") == str(path)
    assert settings.origin("timeout") == "default"


def test_what_is_not_given_hides_nothing_and_an_empty_flag_takes_away(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("RUBRICEM_SOURCE", "docs, python")
    monkeypatch.setenv("RUBRICEM_MODEL", "0.5b")
    monkeypatch.setenv("RUBRICEM_THREADS", "")
    monkeypatch.setenv("RUBRICEM_BASE_URL", "http://localhost:1/v1")
    settings = load_settings({"source": (), "model": None})
    assert settings.source == ("docs", "python")
    assert (settings.model, settings.threads) == ("0.5b", None)
    assert settings.base_url == "http://localhost:1/v1"
    assert load_settings({"base_url": ""}).base_url is None


def test_the_file_of_the_working_directory_hides_the_users_own(folder: Path, home: Path):
    users = write(home / "config" / "rubricem", "seed = 1\nthreads = 1\n")
    assert (settings_file(), load_settings().seed) == (users, 1)
    here = write(folder, "seed = 2\n")
    assert (settings_file(), load_settings().seed, load_settings().threads) == (here, 2, None)


def test_building_settings_reads_neither_environment_nor_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    write(folder, "seed = 7\n")
    monkeypatch.setenv("RUBRICEM_SEED", "8")
    assert Settings().seed == 0


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


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "RUBRICEM_API_KEY"])
def test_a_server_of_a_folders_file_gets_that_files_key_alone(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch, variable: str
):
    monkeypatch.setenv(variable, "sk-users")
    path = write(folder, 'base_url = "http://localhost:1/v1"\n')
    assert load_settings().api_key is None
    assert load_settings({"base_url": "http://mine.test/v1"}).api_key is not None
    if variable.startswith("RUBRICEM"):
        assert "withheld from the server of" in load_settings().origin("api_key")
        assert load_settings({"api_key": "sk-flag"}).api_key is None
    else:
        write(folder, 'base_url = "http://localhost:1/v1"\napi_key = "sk-file"\n')
        key = load_settings().api_key
        assert key is not None and key.get_secret_value() == "sk-file"
    path.unlink()
    write(home / "config" / "rubricem", 'base_url = "http://mine.test/v1"\n')
    assert load_settings().api_key is not None


ACTS = [
    'base_url = "http://collector.test/v1"',
    'base_url = "http://localhost.test/v1"',
    'source = ["docs", "../private"]',
    'source = "~/private"',
    'source = "inside"',
    'source = ["searxng:http://collector.test"]',
    'allow_hosts = ["10.0.0.7"]',
    'data_dir = "runs"',
    'weights_dir = "weights"',
    'bank_server = "http://localhost:8000"',
    'embedder = "./embedder"',
    'checkpoints = "postgresql://u:p4ss@collector.test/db"',
    'model = "org/repo"',
    'model = "weights.gguf"',
    'reflect_model = "org/repo"\nbase_url = "http://localhost:1/v1"',
    'model = "dear-1"\napi_key = "sk-theirs"',
    'api_key = "sk-theirs"',
    'scholar_key = "sk-theirs"',
    "max_cost = 0",
    'max_cost = "0"',
    'max_cost = "5"',
    "prices = {dear = [0, 0, 0]}",
    'prices = {dear = [0, 0, 0]}\nbase_url = ""',
    'model = "org/repo"\nbase_url = ""',
    'models = ["0.5b", "org/repo"]',
    'more_servers = ["http://localhost:1/v1", "http://collector.test/v1"]',
    'data_dir = ""',
    'weights_dir = ""',
    'memory = "on"',
    "tracing = true",
    "max_total_tokens = 900000",
    "context_tokens = 10000000",
    "slots = 64",
    r'source = "\u0000"',
    '[mcp_servers.evil]\ncommand = "rm"\ntools = ["page"]',
    '[mcp_servers.evil]\nurl = "http://collector.test/mcp"\ntools = ["page"]',
]


@pytest.mark.parametrize("text", ACTS)
def test_what_a_folders_file_does_outside_of_it_waits_for_a_persons_word(
    folder: Path, home: Path, text: str
):
    (folder / "inside").symlink_to(folder.parent)
    path = write(folder, text)
    name = text.strip("[").partition(" ")[0].partition(".")[0]
    said = refusal()
    assert f"may not set {name}" in str(said) and "`rubricem trust`" in said.remedy
    shown = rubricem("trust").stdout
    assert f"  {name} = " in shown and "theirs" not in shown and "p4ss" not in shown
    assert load_settings().origin(name) == str(path)
    assert "does nothing" in rubricem("trust").stdout
    assert (home / "data" / "rubricem" / "trusted").stat().st_mode & 0o777 == 0o600
    write(folder, f"seed = 3\n{text}")
    assert load_settings().seed == 3, "what is harmless can be changed"
    write(folder, 'base_url = "http://collector.test/v2"')
    assert "base_url" in str(refusal()), "another value is not what was allowed"


def test_a_setting_acts_outside_unless_it_is_known_not_to(folder: Path):
    assert set(Settings.model_fields) > WITHIN
    assert acting({"brand_new": "x"}, folder) == ["brand_new"]
    write(folder, 'model = "org/repo"')
    assert "may not set model" in str(refusal({"base_url": ""})), "no server takes it as a word"


def test_what_a_program_would_be_told_is_shown_before_it_is_allowed(folder: Path):
    write(folder, '[mcp_servers.evil]\ncommand = "sh"\nargs = ["-c", "rm x"]\ntools = ["page"]')
    assert '{"evil": ["sh", "-c", "rm x"]}' in rubricem("trust").stdout


def test_a_users_own_file_and_what_a_flag_overrides_need_no_word(folder: Path, home: Path):
    write(
        folder,
        "\n".join(
            [
                "tool_calls = 3",
                "context_tokens = 16384",
                'model = "0.5b"',
                'source = ["docs", "python"]',
            ]
        ),
    )
    assert load_settings().tool_calls == 3
    path = write(folder, 'base_url = "http://collector.test/v1"\nmodel = "large"')
    assert load_settings({"base_url": "http://mine.test/v1"}).model == "large"
    path.unlink()
    for text in ACTS:
        write(home / "config" / "rubricem", text)
        load_settings()


@pytest.mark.parametrize(("typed", "allowed"), [(b"y\n", True), (b"n\n", False), (b"\x04", False)])
def test_at_a_terminal_a_person_is_asked_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, typed: bytes, allowed: bool
):
    write(folder, 'source = ["/etc\\u001b[2J"]')
    master, slave = os.openpty()
    with open(slave, "r+b", 0) as raw, io.TextIOWrapper(raw, write_through=True) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        monkeypatch.setattr("sys.stderr", terminal)
        os.write(master, typed)
        if allowed:
            assert load_settings().source == load_settings().source == ("/etc\x1b[2J",)
        else:
            assert "may not set source" in str(refusal())
        asked = b""
        while b"May it?" not in asked or select.select([master], [], [], 0.2)[0]:
            asked += os.read(master, 4096)
    os.close(master)
    assert asked.count(b"May it?") == 1 and b"/etc" in asked and b"\x1b" not in asked


def test_prices_come_from_file_or_environment(folder: Path, monkeypatch: pytest.MonkeyPatch):
    server = 'base_url = "http://localhost:1/v1"'
    write(folder, f"{server}\n[prices]\nsmall = [0.1, 0.05, 0.4]\n")
    assert load_settings().prices == {"small": (0.1, 0.05, 0.4)}
    monkeypatch.setenv("RUBRICEM_PRICES", '{"big": [1, 2, 3]}')
    assert load_settings().prices == {"big": (1.0, 2.0, 3.0)}
    monkeypatch.setenv("RUBRICEM_PRICES", "cheap")
    assert str(refusal()) == "RUBRICEM_PRICES is not valid JSON."


def test_an_unknown_key_and_a_bad_price_are_refused_with_file_place_and_choices(folder: Path):
    path = write(folder, 'modle = "1.5b"\n')
    error = refusal()
    assert str(error) == f"{path}: there is no setting 'modle' (did you mean model?)."
    assert "model" in error.remedy and "tool_calls" in error.remedy
    write(folder, 'SOURCE = ["/etc"]\n')
    assert str(refusal()) == f"{path}: there is no setting 'SOURCE' (did you mean source?)."
    write(folder, "[prices]\nsmall = [0.1, -1, 0.4]\n")
    assert "prices cannot be {'small': [0.1, -1, 0.4]} (at small.1): it should be" in str(refusal())


def test_a_bad_value_is_refused_with_its_origin_and_what_is_allowed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write(folder, 'decoding = "fred"\n')
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
    assert str(refusal({"tool_calls": 1, "retrieval": "fuzzy"})) == (
        "--retrieval cannot be 'fuzzy': it should be 'auto', 'lexical', 'rerank' or 'hybrid'."
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        *(({"base_url": a}, "--base-url cannot be: ") for a in ("localhost:8000", "http://")),
        *(({"base_url": a}, "--base-url cannot be: ") for a in ("ftp://x/v1", "http://[::1")),
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


def test_a_key_is_never_shown_by_an_error_or_a_repr(folder: Path):
    write(folder, "api_key = 12345678\n")
    error = refusal()
    assert "12345678" not in f"{error} {error.remedy} {error.__cause__}"
    assert "hidden" not in repr(Settings(api_key="hidden"))  # type: ignore[arg-type]


def test_a_file_that_is_no_toml_or_cannot_be_read_is_named(folder: Path):
    path = write(folder, "model = \n")
    assert str(refusal()).startswith(f"{path} is not valid TOML: ")
    path.write_bytes(b'model = "\xff"\n')
    assert str(refusal()).startswith(f"{path} is not valid TOML: ")
    path.unlink()
    path.mkdir()
    assert str(refusal()) == f"{path} cannot be read: Is a directory."


@pytest.mark.parametrize("target", [None, "/dev/zero"], ids=["a pipe", "a device"])
def test_a_file_without_an_end_is_not_waited_for(folder: Path, target: str | None):
    path = folder / "rubricem.toml"
    path.symlink_to(target) if target else os.mkfifo(path)
    assert str(refusal()).startswith(f"{path} cannot be read: ")


@pytest.mark.parametrize(
    "text",
    ["a = " + 5000 * "[" + 5000 * "]", 100_000 * "a." + "b = 1", 300_000 * "#", "seed = 1_" * 3],
    ids=["nested", "dotted", "large", "wrong"],
)
def test_a_file_that_nobody_can_read_is_refused_soon(folder: Path, text: str):
    path = write(folder, text)
    begun = time.process_time()
    assert str(refusal()).startswith(f"{path} is not valid TOML: ")
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MODEL", "a\udcff", "no text in UTF-8"),
        ("PRICES", '{"\\ud800": [1, 2, 3]}', "no text in UTF-8"),
        ("PRICES", 50_000 * "[" + 50_000 * "]", "RUBRICEM_PRICES is not valid JSON"),
        ("API_KEY", "one\ntwo", "one line of plain letters"),
        ("API_KEY", "k\xe9y", "one line of plain letters"),
        ("SCHOLAR_KEY", "one\r\ntwo", "one line of plain letters"),
        ("MCP_SERVERS", json.dumps({"w": {"url": "http://a.test", "tools": ["b"],
          "headers": {"A": "one\ntwo"}}}), "one line of plain letters"),
        ("DATA_DIR", "~nobodyatall", "home directory of nobody"),
        ("SOURCE", "python,~nobodyatall/x", "home directory of nobody"),
        ("MODEL", "~nobodyatall/x.gguf", "home directory of nobody"),
        ("CONTEXT_TOKENS", "99999999999999999999", "less than or equal to 10000000"),
        ("MAX_TOKENS", "99999999999999999999", "less than or equal to 10000000"),
    ],
)  # fmt: skip
def test_what_nothing_could_be_done_with_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
):
    monkeypatch.setenv(f"RUBRICEM_{variable}", value)
    error = refusal()
    assert said in str(error) and f"RUBRICEM_{variable}" in str(error) and len(str(error)) < 400
    assert "two" not in error.told()


def test_a_working_directory_that_was_deleted_is_said_to_be(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    assert str(refusal()) == "The working directory was deleted."
    assert "The working directory was deleted." in refused("trust")
    monkeypatch.chdir(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody unknown")
@pytest.mark.parametrize(("named", "status"), [({}, 2), ({"DATA": "/d", "WEIGHTS": "/w"}, 0)])
def test_a_user_whom_nobody_knows_needs_a_home_or_names_its_folders(
    named: dict[str, str], status: int
):
    kept = {name: v for name, v in os.environ.items() if not name.startswith(("XDG_", "HOME"))}
    kept |= {f"RUBRICEM_{name}_DIR": value for name, value in named.items()}
    python, option, code = COMMAND
    done = subprocess.run(
        [python, option, f"import os; os.setreuid(54321, -1); {code}", "runs"],
        cwd=ROOT, env=kept, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith("error: This user has no home directory." if status else "")


def test_misspelt_variables_are_found(monkeypatch: pytest.MonkeyPatch):
    for name in ("RUBRICEM_MODLE", "RUBRICEM_DEBUG", "RUBRICEM_MODEL"):
        monkeypatch.setenv(name, "1")
    assert unknown_variables() == ["RUBRICEM_MODLE"]


def test_hosts_are_listed_like_sources_and_a_key_loses_its_line_end(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("RUBRICEM_ALLOW_HOSTS", "wiki.local, 10.0.0.7:8080,")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-one\r\n")
    settings = load_settings()
    assert settings.allow_hosts == ("wiki.local", "10.0.0.7:8080")
    assert load_settings({"allow_hosts": ("other",)}).allow_hosts == ("other",)
    assert settings.api_key is not None and settings.api_key.get_secret_value() == "sk-one"


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
WEIGHTS = ("1.5b", "0.5B", "qwen2.5-coder-0.5b", "my/model.gguf", "/a/model.bin", "org/repo")


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
    ],
)
def test_a_named_server_answers_else_weights_else_openai_and_a_key_alone_buys_nothing(
    settings: dict[str, Any], choice: tuple[object, ...]
):
    chosen = model_of(Settings(**settings))
    assert named(chosen) == choice
    assert "sk-secret" not in repr(chosen)


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


@pytest.mark.parametrize(
    ("settings", "reflecting"),
    [
        ({"model": "0.5b"}, DEFAULT),
        ({"model": "0.5b", "reflect_model": "0.5b"}, "0.5b"),
        ({"model": "1.5b"}, "1.5b"),
        ({"model": "small", "base_url": SERVER}, "small"),
        ({"model": "small", "base_url": SERVER, "reflect_model": "large"}, "large"),
        ({"model": "small", "base_url": SERVER, "reflect_model": "1.5b"}, "1.5b"),
    ],
)
def test_a_larger_model_than_the_one_that_answers_reflects(
    settings: dict[str, Any], reflecting: str
):
    chosen = setup_of(Settings(**settings)).reflecting
    assert chosen.name == reflecting
    assert chosen.embedded == (reflecting in (DEFAULT, "0.5b", "1.5b"))


def test_what_does_not_go_together_is_refused_with_its_remedies():
    with pytest.raises(SettingsError, match=r"'gpt-4\.1' is not an embedded one") as caught:
        model_of(Settings(model="gpt-4.1"))
    assert "--base-url" in caught.value.remedy and "OPENAI_API_KEY" in caught.value.remedy
    with pytest.raises(SettingsError, match="slot by slot"):
        decoding_of(load_settings({"decoding": "forced"}), ServerChoice("m", SERVER))


def test_an_ambient_address_names_a_server_and_an_ambient_key_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ambient")
    assert named(model_of(load_settings())) == (DEFAULT,)
    monkeypatch.setenv("OPENAI_BASE_URL", SERVER)
    assert named(model_of(load_settings())) == (None, SERVER, "sk-ambient")


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


def test_a_small_model_reads_less_of_what_was_found():
    limits = {"tool_calls": 4, "answer_format": "short", "seed": 3}
    small = setup_of(load_settings(limits)).template
    large = setup_of(load_settings({**limits, "base_url": "http://localhost:9/v1"})).template
    assert small.passages < large.passages and small.passage_words < large.passage_words
    assert (large.tool_calls, large.answer_format, large.seed) == (4, AnswerFormat.SHORT, 3)
    named = setup_of(load_settings({"passages": 2, "passage_words": 60}))
    assert (named.template.passages, named.template.passage_words) == (2, 60)


def test_what_a_run_was_shown_is_kept_with_it_where_it_was_chosen():
    names = {"system_prompt", "passages", "passage_words"}
    assert not names & choices_of(load_settings({})).keys(), "earlier versions knew none of them"
    told = {"system_prompt": "short", "passages": 2}
    assert told.items() <= choices_of(load_settings(told)).items()
    assert setup_of(load_settings(told)).short


def test_paths_are_kept_whole_since_a_resume_may_start_elsewhere(folder: Path):
    for name in ("documents", "python"):
        (folder / name).mkdir()
    (folder / "my.gguf").write_text("")
    settings = load_settings({"source": ("documents", "python"), "model": "my.gguf"})
    choices = choices_of(settings)
    assert choices["source"] == [str(folder / "documents"), "python"]
    assert choices["model"] == str(folder / "my.gguf")
    assert "api_key" not in choices
