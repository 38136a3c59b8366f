"""HTML and XHTML.

What surrounds the text (navigation, header, footer, forms, scripts) is left out. White space
outside `pre` is collapsed, and block elements are on lines of their own.
"""

import re
from collections.abc import Iterable

from lxml import html

from rubricem.agent.sources.readers.document import Document, Input, Line, by_heading, title_of
from rubricem.agent.sources.readers.encoding import decode

_AROUND_THE_TEXT = "script style noscript template nav header footer aside form svg iframe button"
_LEFT_OUT = " | ".join(f".//{name}" for name in _AROUND_THE_TEXT.split())
_LEFT_OUT += " | .//*[@role='navigation']"
_NAMED = ".//div[@class or @id] | .//ul[@class or @id]"
_MENU = re.compile(
    r"(?:\A|[\s_-])(?:nav(?:bar|igation)?|breadcrumbs?|\w*(?:menu|sidebar))(?:[\s_-]|\Z)"
)
"""in the class or id of a block that leads to other pages, if links are most of its text"""
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_LINES = frozenset({"br", "li", "tr", "td", "th"})
_PARAGRAPHS = "p pre blockquote figcaption caption div section article main hr"
_GAPS = dict.fromkeys(_LINES, ("\n", "\n")) | dict.fromkeys(_PARAGRAPHS.split(), ("\n\n", "\n\n"))
# A term and what it means stay one paragraph, laid out as such.
_GAPS |= {"dt": ("\n\n", ""), "dd": ("\n    ", "\n\n")}
"""text inserted before and after a block"""
_MARK = "\ue000"
"""Precedes a heading's level and text; a private character that no page uses."""
_MARKED = re.compile(f"{_MARK}([1-6])(.*)")


def html_tree(text: str) -> html.HtmlElement | None:
    """The document, without its comments; None if there is none.

    Broken HTML is parsed as by browsers.
    """
    # lxml refuses a text that declares an encoding, as it is decoded already.
    text = re.sub(r"^\s*<\?xml[^>]*>", "", text).replace("\0", "")
    if not text.strip():
        return None
    parser = html.HTMLParser(no_network=True, remove_comments=True, remove_pis=True)
    return html.document_fromstring(text, parser=parser)


def empty(elements: Iterable[html.HtmlElement]) -> None:
    """Clear the elements, and leave them in place.

    Removing each would move its following text to the preceding element, which takes quadratic time
    on a page of nothing else.
    """
    for element in elements:
        element.clear(keep_tail=True)
        element.tag = "span"


def _is_menu(element: html.HtmlElement) -> bool:
    """Whether a block is called a menu, and has little text but that of its links."""
    if not _MENU.search(f"{element.get('class', '')} {element.get('id', '')}".lower()):
        return False
    linked = sum(len(str(link.text_content()).strip()) for link in element.iter("a"))
    return 2 * linked >= len("".join(str(element.text_content()).split()))


def html_lines(tree: html.HtmlElement | None) -> tuple[str, list[Line]]:
    """(the page's title or "", its lines); modifies the tree."""
    if tree is None:
        return "", []
    title = " ".join((tree.findtext(".//title") or "").split())
    body = tree.find("body")
    root = tree if body is None else body
    empty(root.xpath(_LEFT_OUT))
    empty([*filter(_is_menu, root.xpath(_NAMED))])
    _lay_out(root)
    lines = str(root.text_content()).splitlines()
    marked = ((_MARKED.match(line), line) for line in lines)
    return title, [(int(m[1]), m[2]) if m else (0, line.rstrip()) for m, line in marked]


# What XML cannot hold, though a page may: lxml reads it, and refuses to have it set again.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SPACE = re.compile(r"\s+")


def _writable(text: str, *, folded: bool) -> str:
    return _UNWRITABLE.sub("", _SPACE.sub(" ", text) if folded else text)


def _lay_out(root: html.HtmlElement) -> None:
    for element in list(root.iter()):
        if not isinstance(element.tag, str):
            continue
        preformatted = element.tag == "pre" or next(element.iterancestors("pre"), None) is not None
        if element.text:
            element.text = _writable(element.text, folded=not preformatted)
        if element.tail:
            folded = element.tag == "pre" or not preformatted
            element.tail = _writable(element.tail, folded=folded)
        if element.tag in _HEADINGS:
            name = " ".join(str(element.text_content()).split()).rstrip("¶# ")
            for child in list(element):
                element.remove(child)
            element.text = f"\n{_MARK}{element.tag[1]}{name}\n" if name else "\n"
        elif element.tag in _GAPS:
            before, after = _GAPS[element.tag]
            text = element.text or ""
            element.text = _gap_before(element, before) + (text if preformatted else text.lstrip())
            tail = element.tail or ""
            element.tail = after + (
                tail if preformatted and element.tag != "pre" else tail.lstrip()
            )


def _gap_before(element: html.HtmlElement, usual: str) -> str:
    """No gap before the first paragraph of a definition, and one line between terms of one.

    All paragraphs of a definition are indented.
    """
    above = element.getparent()
    if element.tag == "dt" and (earlier := element.getprevious()) is not None:
        return "\n" if earlier.tag == "dt" else usual
    while element.tag in ("p", "div") and above is not None and element.getprevious() is None:
        if (above.text or "").strip():
            break
        if above.tag == "dd":
            return ""
        element, above = above, above.getparent()
    within = element.tag in ("p", "div") and above is not None and above.tag == "dd"
    return f"{usual}    " if within else usual


def read_html(given: Input) -> Document:
    text, note = decode(given.content())
    title, lines = html_lines(html_tree(text))
    sections = by_heading(lines)
    return Document(title_of(sections, given.stem, title), sections, note)


READERS = dict.fromkeys((".html", ".htm"), read_html)
