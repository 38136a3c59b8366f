"""Prompts: one Markdown file each, filled in one pass over the original template."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_FIELD = re.compile(r"\{\{(\w+)\}\}")


@cache
def template(name: str) -> str:
    """The text of `agent/prompts/NAME.md`."""
    return (files("agent") / "prompts" / f"{name}.md").read_text(encoding="utf-8").strip()


def fill(text: str, values: Mapping[str, str]) -> str:
    """Put values into the `{{fields}}` of a template.

    One pass, so that what is put in is never read as a template itself.
    """
    return _FIELD.sub(lambda field: values[field[1]], text)
