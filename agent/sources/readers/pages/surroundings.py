"""What surrounds the text of a page: menus, banners, forms, links to other pages.

It is told by the names of elements, by their roles and by what blocks are called. Nothing is left
out that holds most of a page. This took the place of trafilatura, which took a fourth of the lists
out of SQLite's pages: of the pieces that its own 990 pages of evaluation want, 0.974 are kept (it
kept 0.943), of those unwanted 0.32 (0.10), in less than half of its time.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice

from lxml import etree

from rubricem.agent.sources.readers.encoding import names_of

_CANDIDATES = etree.XPath(names_of("surroundings")["candidates"])
_MAIN = etree.XPath("descendant::*[self::main or @role='main']")
_MOST_LOOKED_AT = 30
"""times the text of a page that is measured, as its blocks can lie in each other"""
_ROLES = frozenset(names_of("surroundings")["roles"])
_NOTES = re.compile(
    r"footnote|endnote|references|admonition|callout|note\b|warning|tip\b|important"
)
_MENU, _NOISE = (
    re.compile(rf"(?:\A|[\s_-])(?:{'|'.join(names_of('surroundings')[kind])})(?:[\s_-]|\Z)")
    for kind in ("menu", "noise")
)
"""called so, a block leads to other pages, if links are most of its text; or it is no text of the
page, unless it is a large part of it"""
_PARTS = ("article", "main", "section", "blockquote")
"""an aside or a footer within one belongs to it, unless its name or its links say otherwise"""
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
MOST_AROUND = 0.5
"""share of a page's text above which something is no surrounding, whatever it is called"""
MOST_NOISE = 0.3
LEAST_MAIN = 0.2
"""share of what is seen below which what a page calls its main part is not taken to be it"""
LEAST_ARTICLE = 0.5


text_of: Callable[[etree._Element], str] = etree.XPath("string()", smart_strings=False)
"""all text of an element and of what is in it"""


def size_of(element: etree._Element) -> int:
    """Characters of text, without white space."""
    return len("".join(text_of(element).split()))


def _called(element: etree._Element) -> str:
    """What an element is called, though not by an id that only repeats its heading or marks it."""
    called = f"{element.get('class', '')} {element.get('epub:type', '')}"
    if (name := element.get("id")) and element.tag not in ("p", "span", "table"):
        called += "" if any(each.tag in _HEADINGS for each in element[:2]) else f" {name}"
    return called.lower()


def _named(tag: str, role: str, called: str) -> tuple[float, bool]:
    """(the share of the page up to which an element called so may be around its text, 0 if it is
    never; whether it must lead to other pages, too).
    """
    if role.startswith("doc-") or (tag in ("aside", "footer") and _NOTES.search(called)):
        return 0, False
    if tag == "nav" or role == "navigation":
        return 1, False
    if tag in ("header", "footer", "aside", "form") or role in _ROLES:
        return MOST_AROUND, False
    if _NOISE.search(called):
        return MOST_NOISE, False
    return 1 if tag == "part" or _MENU.search(called) else 0, True


def surroundings_of(root: etree._Element) -> Iterator[etree._Element]:
    """The elements of a page that are around its text."""
    total = size_of(root)
    left = _MOST_LOOKED_AT * total
    known: dict[tuple[str, str, str], tuple[float, bool]] = {}
    for element in _CANDIDATES(root):
        tag = str(element.tag)
        if tag in ("aside", "footer") and next(element.iterancestors(*_PARTS), None) is not None:
            tag = "part"
        key = tag, element.get("role", ""), _called(element)
        if key not in known:
            known[key] = _named(*key)
        most, away = known[key]
        if element.tag == "header" and next(element.iter("h1", "h2"), None) is not None:
            most, away = 1, True
        if most:
            size = size_of(element)
            left -= size
            if left < 0:
                break
            links = (e for e in element.iter("a") if not e.get("href", "#").startswith("#"))
            if size <= most * total and (not away or 2 * sum(map(size_of, links)) >= size):
                yield element


def main_of(root: etree._Element) -> etree._Element:
    """The main part of a page, as it is marked, or all of it."""
    # Of articles those that are in no other.
    articles = (e for e in root.iter("article") if next(e.iterancestors("article"), None) is None)
    for least, found in ((LEAST_MAIN, _MAIN(root)[:1]), (LEAST_ARTICLE, [*islice(articles, 2)])):
        if len(found) == 1 and size_of(found[0]) >= least * size_of(root):
            root = found[0]
    return root
