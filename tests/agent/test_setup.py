"""The door: which model the settings name, and what else they come to."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from rubricem.agent.models.opening import EmbeddedChoice, PolicyChoice, ServerChoice
from rubricem.agent.settings import Settings, load_settings
from rubricem.agent.settings.door import OPENAI_URL, choices_of, decoding_of, model_of, setup_of
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import AnswerFormat, Decoding

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
) -> None:
    chosen = model_of(Settings(**settings))
    assert named(chosen) == choice
    assert "sk-secret" not in repr(chosen)


def test_what_does_not_go_together_is_refused_with_its_remedies() -> None:
    with pytest.raises(SettingsError, match=r"'gpt-4\.1' is not an embedded one") as caught:
        model_of(Settings(model="gpt-4.1"))
    assert "--base-url" in caught.value.remedy and "OPENAI_API_KEY" in caught.value.remedy
    with pytest.raises(SettingsError, match="slot by slot"):
        decoding_of(load_settings({"decoding": "forced"}), ServerChoice("m", SERVER))


def test_an_ambient_address_names_a_server_and_an_ambient_key_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_paths_are_kept_whole_since_a_resume_may_start_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("documents", "python"):
        (tmp_path / name).mkdir()
    (tmp_path / "my.gguf").write_text("")
    settings = load_settings({"source": ("documents", "python"), "model": "my.gguf"})
    choices = choices_of(settings)
    assert choices["source"] == [str(tmp_path / "documents"), "python"]
    assert choices["model"] == str(tmp_path / "my.gguf")
    assert "api_key" not in choices
