"""What the pages of runs have in common: their style sheet, and a policy that allows no more."""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from agent.reports.printable import printable

STYLE = "run_page_style.html"
_STYLE = re.compile(r"<style>(.*?)</style>", re.S)


def rendered(template: str, filters: Mapping[str, Callable[..., str]], **values: Any) -> str:
    """A template of this room with its values, all of them escaped, as one page."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"plain": printable, **filters}
    style = _read(STYLE).strip()
    return environment.from_string(_read(template)).render(
        style=style, style_hash=_hash(style), **values
    )


@cache
def _read(name: str) -> str:
    return (files("training") / name).read_text(encoding="utf-8")


def _hash(style: str) -> str:
    """What the page's policy names its one style sheet by."""
    sheet = _STYLE.search(style)
    assert sheet, "there is a style sheet"
    return "sha256-" + base64.b64encode(hashlib.sha256(sheet[1].encode()).digest()).decode()
