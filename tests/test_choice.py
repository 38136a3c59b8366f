"""Which model answers, and that no call is paid for by accident."""

from typing import Any

import pytest
from pydantic import SecretStr

from agent.choice import OPENAI_URL, EmbeddedChoice, PolicyChoice, ServerChoice, choose_policy
from agent.settings import Settings, load_settings
from memory.errors import SettingsError

KEY = SecretStr("sk-secret")
SERVER = "http://localhost:8000/v1"


def chosen(**settings: Any) -> PolicyChoice:
    return choose_policy(Settings(**settings))


def test_nothing_named_is_the_embedded_default() -> None:
    assert chosen() == EmbeddedChoice("qwen2.5-coder-1.5b")


def test_a_key_alone_never_causes_a_paid_call(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(api_key=KEY) == EmbeddedChoice("qwen2.5-coder-1.5b")
    assert chosen(api_key=KEY, model="0.5b") == EmbeddedChoice("0.5b")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ambient")
    assert choose_policy(load_settings()) == EmbeddedChoice("qwen2.5-coder-1.5b")


@pytest.mark.parametrize(
    "model",
    [
        "1.5b",
        "0.5B",
        "qwen2.5-coder-0.5b",
        "my/model.gguf",
        "/a/model.bin",
        "org/repo",
        "o/r:f.gguf",
    ],
)
def test_names_of_weights_are_embedded(model: str) -> None:
    assert chosen(model=model, api_key=KEY) == EmbeddedChoice(model)


def test_a_named_server_is_asked_whatever_the_model_is_called() -> None:
    assert chosen(base_url=SERVER) == ServerChoice(None, SERVER, None)
    assert chosen(base_url=SERVER, model="org/repo") == ServerChoice("org/repo", SERVER, None)
    assert chosen(base_url=SERVER, api_key=KEY) == ServerChoice(None, SERVER, "sk-secret")


def test_another_model_is_openais_when_there_is_a_key() -> None:
    assert chosen(model="gpt-4.1", api_key=KEY) == ServerChoice("gpt-4.1", OPENAI_URL, "sk-secret")


def test_another_model_without_server_or_key_is_refused_with_both_remedies() -> None:
    with pytest.raises(SettingsError, match=r"'gpt-4\.1' is not an embedded one") as caught:
        chosen(model="gpt-4.1")
    assert "--base-url" in caught.value.remedy
    assert "OPENAI_API_KEY" in caught.value.remedy


def test_openai_base_url_names_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", SERVER)
    assert choose_policy(load_settings()) == ServerChoice(None, SERVER, None)


def test_a_choice_does_not_show_its_key() -> None:
    assert "sk-secret" not in repr(chosen(base_url=SERVER, api_key=KEY))
