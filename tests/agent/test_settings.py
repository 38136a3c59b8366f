"""Which layer wins, what is refused and in what words.

Which model answers, and that no call is paid for by accident.
"""

from pathlib import Path

import pytest

from rubricem.agent.settings import (
    Settings,
    load_settings,
    settings_file,
    unknown_variables,
)
from rubricem.memory.errors import SettingsError


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


def test_nothing_set_gives_the_defaults(home: Path) -> None:
    settings = load_settings()
    assert (settings.model, settings.base_url, settings.api_key) == (None, None, None)
    assert settings.source == ("python",)
    assert (settings.tool_calls, settings.context_tokens) == (10, 8192)
    assert settings.data_dir == home / "data" / "rubricem"
    assert settings.weights_dir == home / "cache" / "rubricem" / "weights"
    assert {settings.origin(name) for name in Settings.model_fields} == {"default"}


def test_flag_beats_environment_beats_file_beats_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
) -> None:
    monkeypatch.setenv("RUBRICEM_SOURCE", "docs, python")
    monkeypatch.setenv("RUBRICEM_MODEL", "0.5b")
    monkeypatch.setenv("RUBRICEM_THREADS", "")
    monkeypatch.setenv("RUBRICEM_BASE_URL", "http://localhost:1/v1")
    settings = load_settings({"source": (), "model": None})
    assert settings.source == ("docs", "python")
    assert (settings.model, settings.threads) == ("0.5b", None)
    assert settings.base_url == "http://localhost:1/v1"
    assert load_settings({"base_url": ""}).base_url is None


def test_the_file_of_the_working_directory_hides_the_users_own(folder: Path, home: Path) -> None:
    users = write(home / "config" / "rubricem", "seed = 1\nthreads = 1\n")
    assert (settings_file(), load_settings().seed) == (users, 1)
    here = write(folder, "seed = 2\n")
    assert (settings_file(), load_settings().seed, load_settings().threads) == (here, 2, None)


def test_building_settings_reads_neither_environment_nor_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "seed = 7\n")
    monkeypatch.setenv("RUBRICEM_SEED", "8")
    assert Settings().seed == 0


def test_openai_variables_lie_under_every_other_layer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://openai.test/v1/")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ambient")
    settings = load_settings()
    assert settings.base_url == "http://openai.test/v1"
    assert settings.origin("base_url") == "OPENAI_BASE_URL"
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == "sk-ambient"
    monkeypatch.setenv("RUBRICEM_API_KEY", "own")
    write(folder, 'base_url = "http://file.test/v1"\n')
    settings = load_settings()
    assert settings.base_url == "http://file.test/v1"
    assert settings.origin("api_key") == "RUBRICEM_API_KEY"


def test_a_file_from_elsewhere_cannot_collect_the_ambient_key(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ambient")
    path = write(folder, 'base_url = "http://collector.test/v1"\n')
    assert load_settings().api_key is None
    assert load_settings({"base_url": "http://mine.test/v1"}).api_key is not None
    path.unlink()
    write(home / "config" / "rubricem", 'base_url = "http://mine.test/v1"\n')
    assert load_settings().api_key is not None


def test_prices_come_from_file_or_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "[prices]\nsmall = [0.1, 0.05, 0.4]\n")
    assert load_settings().prices == {"small": (0.1, 0.05, 0.4)}
    monkeypatch.setenv("RUBRICEM_PRICES", '{"big": [1, 2, 3]}')
    assert load_settings().prices == {"big": (1.0, 2.0, 3.0)}
    monkeypatch.setenv("RUBRICEM_PRICES", "cheap")
    assert str(refusal()) == "RUBRICEM_PRICES is not valid JSON."


def test_an_unknown_key_and_a_bad_price_are_refused_with_file_place_and_choices(
    folder: Path,
) -> None:
    path = write(folder, 'modle = "1.5b"\n')
    error = refusal()
    assert str(error) == f"{path}: there is no setting 'modle'."
    assert "model" in error.remedy and "tool_calls" in error.remedy
    write(folder, "[prices]\nsmall = [0.1, -1, 0.4]\n")
    assert "prices cannot be {'small': [0.1, -1, 0.4]} (at small.1): it should be" in str(refusal())


def test_a_bad_value_is_refused_with_its_origin_and_what_is_allowed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        "--retrieval cannot be 'fuzzy': it should be 'lexical' or 'hybrid'."
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
def test_what_is_no_address_no_source_and_no_host_is_refused(
    flags: dict[str, object], said: str
) -> None:
    error = str(refusal(flags))
    assert said in error and error.startswith("--")


def test_a_key_is_never_shown_by_an_error_or_a_repr(folder: Path) -> None:
    write(folder, "api_key = 12345678\n")
    error = refusal()
    assert "12345678" not in f"{error} {error.remedy} {error.__cause__}"
    assert "hidden" not in repr(Settings(api_key="hidden"))  # type: ignore[arg-type]


def test_a_file_that_is_no_toml_or_cannot_be_read_is_named(folder: Path) -> None:
    path = write(folder, "model = \n")
    assert str(refusal()).startswith(f"{path} is not valid TOML: ")
    path.write_bytes(b'model = "\xff"\n')
    assert str(refusal()).startswith(f"{path} is not valid TOML: ")
    path.unlink()
    path.mkdir()
    assert str(refusal()) == f"{path} cannot be read: Is a directory."


def test_misspelt_variables_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUBRICEM_MODLE", "RUBRICEM_DEBUG", "RUBRICEM_MODEL"):
        monkeypatch.setenv(name, "1")
    assert unknown_variables() == ["RUBRICEM_MODLE"]


def test_hosts_are_listed_like_sources_and_a_key_loses_its_line_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RUBRICEM_ALLOW_HOSTS", "wiki.local, 10.0.0.7:8080,")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-one\r\n")
    settings = load_settings()
    assert settings.allow_hosts == ("wiki.local", "10.0.0.7:8080")
    assert load_settings({"allow_hosts": ("other",)}).allow_hosts == ("other",)
    assert settings.api_key is not None and settings.api_key.get_secret_value() == "sk-one"
