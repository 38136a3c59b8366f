"""The lines of text of an HTML document, and which of them are headings.

What surrounds the text (navigation, header, footer, forms, scripts) is left out. White space
outside `pre` is folded, and block elements stand on lines of their own.
"""

import re

from lxml import html

Line = tuple[int, str]
"""(level of the heading that the line is, 0 for text; the line)"""

_LEFT_OUT = [
    "script",
    "style",
    "noscript",
    "template",
    "nav",
    "header",
    "footer",
    "aside",
    "form",
    "svg",
    "iframe",
    "button",
]
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_BLOCKS = frozenset(
    [
        "p",
        "li",
        "pre",
        "td",
        "th",
        "tr",
        "dt",
        "dd",
        "blockquote",
        "figcaption",
        "caption",
        "div",
        "section",
        "article",
        "main",
        "br",
        "hr",
    ]
)
_MARK = "\ue000"
"""Before a heading's level and text; a private character that no page has a use for."""


def html_lines(text: str) -> tuple[str, list[Line]]:
    """(the page's title or "", its lines). Broken HTML is read as browsers would."""
    # lxml refuses a text that declares an encoding, as it is decoded already.
    text = re.sub(r"^\s*<\?xml[^>]*\?>", "", text).replace(_MARK, "").replace("\0", "")
    if not text.strip():
        return "", []
    tree = html.document_fromstring(text, parser=html.HTMLParser(no_network=True))
    title = " ".join((tree.findtext(".//title") or "").split())
    body = tree.find("body")
    root = tree if body is None else body
    for element in root.xpath(" | ".join(f".//{name}" for name in _LEFT_OUT) + " | .//comment()"):
        element.drop_tree()
    _lay_out(root)
    return title, [_line(line) for line in str(root.text_content()).splitlines()]


def _lay_out(root: html.HtmlElement) -> None:
    for element in list(root.iter()):
        if not isinstance(element.tag, str):
            continue
        preformatted = element.tag == "pre" or any(e.tag == "pre" for e in element.iterancestors())
        if element.text and not preformatted:
            element.text = re.sub(r"\s+", " ", element.text)
        if element.tail and (element.tag == "pre" or not preformatted):
            element.tail = re.sub(r"\s+", " ", element.tail)
        if element.tag in _HEADINGS:
            _mark_heading(element)
        elif element.tag in _BLOCKS:
            gap = "\n" if element.tag in ("br", "li", "tr", "td", "th", "dt", "dd") else "\n\n"
            element.text = gap + (element.text or "")
            element.tail = gap + (element.tail or "")


def _mark_heading(element: html.HtmlElement) -> None:
    name = " ".join(str(element.text_content()).split()).rstrip("¶# ")
    for child in list(element):
        element.remove(child)
    element.text = f"\n{_MARK}{str(element.tag)[1]}{name}\n" if name else "\n"
    element.tail = element.tail or ""


def _line(line: str) -> Line:
    if line.startswith(_MARK):
        return int(line[1]), line[2:]
    return 0, line.rstrip()
