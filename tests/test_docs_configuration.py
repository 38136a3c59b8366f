"""The page of settings is what the code reads, and says of every key what it means."""

import re
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr

from agent.settings import Settings
from docs import configuration
from docs.configuration import PAGE, TABLES, default_of, kind_of, meanings, renewed
from training.local.config import EngineConfig, TrainConfig


class Shown(BaseModel):
    """A model with a field of each kind."""

    share: float = Field(default=0.5, ge=0, lt=1)
    """first line
    and second; None: nothing"""
    key: SecretStr | None = None
    """a key"""
    pair: tuple[int, int] = (1, 2)
    """two"""
    names: Annotated[tuple[str, ...], "words"]
    """some"""
    form: Literal["a", "b"] = "a"


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert renewed(text) == text, "make it anew: python -m docs.configuration"


@pytest.mark.parametrize("name", TABLES)
def test_every_key_has_its_row_on_the_page(name: str) -> None:
    [table] = re.findall(rf"<!-- table {name} -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(TABLES[name][0].model_fields)


def test_a_row_says_the_variable_and_the_flag_of_a_setting() -> None:
    row = "| `answer_format` | `RUBRICEM_ANSWER_FORMAT` | `--format` | `long`, `short`, `exact` |"
    assert row in PAGE.read_text(encoding="utf-8")


def test_values_and_defaults_are_told_in_words() -> None:
    fields = Shown.model_fields
    assert {name: kind_of(field) for name, field in fields.items()} == {
        "share": "number from 0 below 1",
        "key": "text, kept secret",
        "pair": "2 integers",
        "names": "list: text",
        "form": "`a`, `b`",
    }
    assert {name: default_of(name, field) for name, field in fields.items()} == {
        "share": "`0.5`",
        "key": "",
        "pair": "`[1, 2]`",
        "names": "(required)",
        "form": '`"a"`',
    }


def test_a_meaning_is_the_docstring_below_the_field_also_of_a_base() -> None:
    assert meanings(TrainConfig)["out"] == meanings(EngineConfig)["out"] != ""
    found = dict(configuration.documented(Shown))
    assert found["share"] == "first line and second; not set: nothing"
    assert "form" not in found


def test_a_key_without_a_meaning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, "settings", (Shown, False))
    with pytest.raises(LookupError, match=r"Shown\.\w+ has no docstring"):
        renewed("<!-- table settings -->\n<!-- end -->\n")


def test_a_stale_table_is_made_anew_and_what_stands_around_is_kept() -> None:
    found = renewed("Before.\n<!-- table mcp_servers -->\nold\n<!-- end -->\nAfter.\n")
    assert found.startswith("Before.\n") and found.endswith("<!-- end -->\nAfter.\n")
    assert "old" not in found and "| `command` |" in found


def test_no_secret_has_a_default_that_the_page_would_show() -> None:
    secrets = [name for name, field in Settings.model_fields.items() if "secret" in kind_of(field)]
    assert {"api_key", "scholar_key", "checkpoints"} <= set(secrets)
    assert {default_of(name, Settings.model_fields[name]) for name in secrets} == {""}
