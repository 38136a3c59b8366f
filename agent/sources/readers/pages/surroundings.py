"""What surrounds the text of a page: menus, banners, forms, links to other pages.

It is told by the names of elements, by their roles and by what blocks are called. Nothing is left
out that holds most of a page.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from lxml import html

_CANDIDATES = (
    ".//nav | .//header | .//footer | .//aside | .//form | .//*[@role]"
    " | .//*[self::div or self::ul or self::ol or self::section or self::table or self::td"
    " or self::p or self::span][@class or @id]"
)
_MOST_CANDIDATES = 4000
_ROLES = frozenset(
    ("navigation", "search", "contentinfo", "complementary", "dialog", "alertdialog")
)
_NOTES = re.compile(
    r"footnote|endnote|references|admonition|callout|note\b|warning|tip\b|important"
)
_WORDS = r"(?:\A|[\s_-])(?:{})(?:[\s_-]|\Z)"
_MENU = re.compile(
    _WORDS.format(
        r"nav(?:bar|igation)?|breadcrumbs?|\w*(?:menu|sidebar)|related|share|sharing|social|tags?"
        r"|pagination|pager|recommended|popular|trending|widgets?|links|header|footer|archives?"
        r"|categories|navbox|teasers?|more"
    )
)
"""called so, a block leads to other pages, if links are most of its text"""
_NOISE = re.compile(
    _WORDS.format(
        r"cookies?|consent|gdpr|newsletter|subscribe|subscription|signup|popup|modal|adverts?"
        r"|advertisement|sponsored|promo|skip|sr-only|visually-hidden|screen-reader-text|noprint"
        r"|printfooter|share|sharing|social|linenos?|lineno|gutter|line-numbers|comments?|respond"
        r"|catlinks|mw-editsection|mw-jump-link|disqus_thread|author-bio|byline-share"
    )
)
MOST_AROUND = 0.5
"""share of a page's text above which something is no surrounding, whatever it is called"""
MOST_NOISE = 0.3
LEAST_MAIN = 0.2
"""share of what is seen below which what a page calls its main part is not taken to be it"""
LEAST_ARTICLE = 0.5


def size_of(element: html.HtmlElement) -> int:
    """Characters of text, without white space."""
    return len("".join(str(element.text_content()).split()))


def _leads_away(element: html.HtmlElement) -> bool:
    """Whether links to other pages are most of its text."""
    links = (e for e in element.iter("a") if not e.get("href", "#").startswith("#"))
    return 2 * sum(map(size_of, links)) >= size_of(element)


def _is_around(element: html.HtmlElement, total: int) -> bool:
    tag, role = element.tag, element.get("role", "")
    called = f"{element.get('class', '')} {element.get('id', '')}".lower()
    if role.startswith("doc-") or (tag in ("aside", "footer") and _NOTES.search(called)):
        return False
    if tag == "nav" or role == "navigation":
        return True
    if tag == "header":
        titled = next(element.iter("h1", "h2"), None) is not None
        return not titled or _leads_away(element)
    if tag in ("footer", "aside", "form") or role in _ROLES:
        return size_of(element) < MOST_AROUND * total
    if _NOISE.search(called) and size_of(element) < MOST_NOISE * total:
        return True
    return bool(_MENU.search(called)) and _leads_away(element)


def surroundings_of(root: html.HtmlElement) -> Iterator[html.HtmlElement]:
    """The elements of a page that are around its text."""
    total = size_of(root)
    for element in islice(root.xpath(_CANDIDATES), _MOST_CANDIDATES):
        if _is_around(element, total):
            yield element


def main_of(root: html.HtmlElement) -> html.HtmlElement:
    """The main part of a page, as it is marked, or all of it."""
    total = size_of(root)
    main = _largest(root.xpath(".//main | .//*[@role='main']"))
    if main is not None and size_of(main) >= LEAST_MAIN * total:
        root, total = main, size_of(main)
    articles = [e for e in root.iter("article") if next(e.iterancestors("article"), None) is None]
    if len(articles) == 1 and size_of(articles[0]) >= LEAST_ARTICLE * total:
        return articles[0]
    return root


def _largest(elements: Iterable[html.HtmlElement]) -> html.HtmlElement | None:
    return max(elements, key=size_of, default=None)
