"""A page as a reader sees it: its elements, parsed, without what is out of sight, notes marked.

Text hidden by its markup is there for machines, and left out: comments, scripts, `hidden` elements
and those that an inline style takes out of sight or strikes through. Style sheets are not computed,
so what only they hide stays; what they raise, lower or strike by its class is told so. Of a formula
that a script has drawn, its source or MathML is kept.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

from lxml import etree

from rubricem.agent.sources.readers.pages.surroundings import text_of
from rubricem.memory.errors import SourceError

_OUT_OF_SIGHT = re.compile(
    r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)"
    r"|opacity\s*:\s*0*(?:\.0+)?\s*(?=!|;|$)"
    r"|font-size\s*:\s*0*(?:\.0+)?\s*(?:px|em|rem|pt|%)?\s*(?=!|;|$)"
    r"|(?:left|right|top|bottom|text-indent|margin-left)\s*:\s*-\d{3,}"
    r"|clip\s*:\s*rect\(\s*0|clip-path\s*:\s*inset\(\s*(?:50|100)%"
    r"|text-decoration(?:-line)?\s*:[^;]*line-through)",
    re.I,
)
_RAISED = re.compile(r"(?:^|;)\s*vertical-align\s*:\s*(super|sub)\b", re.I)
_STRUCK = re.compile(r"(?:^|;)\s*text-decoration(?:-line)?\s*:[^;]*line-through", re.I)
_UNSEEN = (
    "script style template noscript del s strike svg iframe object canvas audio video select"
    " textarea button datalist rp"
)
_HIDDEN = "descendant::*[@hidden or self::dialog[not(@open)]]"
_PAGE_ENDS = "descendant::*[@role='doc-pagebreak' or @*[name()='epub:type']='pagebreak']"
"""which number the pages of the printed book"""
_RULE = re.compile(r"(?:^|(?<=[};/]))\s*+([\w.][\w\s.,-]{0,999})\{([^{}]{0,2000})\}")
_OF_CLASS = re.compile(r"(?:^|,)\s*(?:span)?\.([\w-]+)\s*(?=,|$)")
_STYLED = "descendant::*[@style]"
_TEX = (
    "descendant::script[starts-with(@type, 'math/tex')]"
    " | descendant::span[starts-with(@class, 'math')]"
)
TEX_BETWEEN = re.compile(
    r"\\\(((?:[^\\]|\\(?![()]))*+)\\\)|\\\[((?:[^\\]|\\(?![\[\]]))*+)\\\]|\$\$([^$]++)\$\$"
)
SIGNS_OF_TEX = ("math/tex", "athJax", "athjax", "katex", 'class="math')
_DRAWN = "descendant::*[@class='katex-html' or (self::nobr and @aria-hidden)]"
_DRAWN_OF_TEX = "descendant::*[@class='MathJax' or starts-with(@class, 'MathJax_')][not(.//math)]"
"""what scripts draw from a formula, which stays in the page as well"""
_XHTML = "http://www.w3.org/1999/xhtml"
_XML = re.compile(r"\s*<\?xml[^>]*>")
_VOID = "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
_EMPTY_ELEMENT = re.compile(rf"<(?!(?:{_VOID})\b)([a-zA-Z][\w:-]*)([^<>]*)/>", re.I)
"""as XHTML writes it, whereas HTML would wait for its end"""
_END = re.compile(r"</(?:body|html)\s*>", re.I)
CONTROLS = re.compile("[\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def html_tree(text: str) -> etree._Element | None:
    """The document, without its comments; None if there is none.

    Broken HTML is parsed much as by browsers. Raises SourceError where elements lie in each other
    deeper than the parser follows, some 2,000 levels.
    """
    if (declared := _XML.match(text)) or _XHTML in text[:1000]:
        # lxml refuses a text that declares an encoding, as it is decoded already.
        text = text[declared.end() if declared else 0 :]
        text = _EMPTY_ELEMENT.sub(r"<\1\2></\1>", text)
    # All that follows the end of the body would be lost, whereas browsers show it.
    text = _END.sub("", text.replace("\0", ""))
    if not text.strip():
        return None
    # Without `huge_tree`, all that follows 256 levels of elements is lost without a word.
    parser = etree.HTMLParser(
        no_network=True, remove_comments=True, remove_pis=True, huge_tree=True
    )
    tree = etree.fromstring(text, parser)
    last = parser.error_log.last_error
    if last is not None and last.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT:
        raise SourceError(
            "Its elements lie in each other too deeply.", "Save it in another format."
        )
    return tree


def empty(elements: Iterable[etree._Element]) -> None:
    """Clear the elements, and leave them in place.

    Removing each would move its following text to the preceding element, which takes quadratic time
    on a page of nothing else.
    """
    for element in elements:
        if element.getparent() is not None:
            element.clear(keep_tail=True)
            element.tag = "span"


def visible(text: str, *, tex: bool = False) -> etree._Element | None:
    """The document that a reader sees; None where there is none.

    `tex`: whether it has formulas in TeX, which a script of its readers draws.
    """
    if (tree := html_tree(text)) is None:
        return None
    if tex:
        for source in tree.xpath(_TEX):
            told = CONTROLS.sub("", text_of(source)).strip()
            if source.tag == "script" or (told[:1] == told[-1:] == "$"):
                empty(source.iterchildren())
                source.tag, source.text = "span", f"\\({told.strip('$')}\\)"
        empty(tree.xpath(_DRAWN_OF_TEX))
    if "aria-hidden" in text:
        empty(tree.xpath(_DRAWN))
    if "pagebreak" in text:
        empty(tree.xpath(_PAGE_ENDS))
    for frame in tree.xpath("descendant::iframe[@srcdoc]"):
        frame.tag, frame.text = "div", None
        frame[:] = filter(lambda inner: inner is not None, [html_tree(frame.get("srcdoc"))])
    _tell_drawings(tree)
    _style_by_class(tree)
    empty([*tree.iter(*_UNSEEN.split())])
    for span in tree.iter("span"):
        if found := _RAISED.search(span.get("style", "")):
            span.tag = found[1].lower()[:3]
    # Notes are hidden by books whose readers show them when they are asked for.
    kinds = ((e, f"{e.get('role', '')} {e.get('epub:type', '')}") for e in tree.xpath(_HIDDEN))
    empty([e for e, kind in kinds if "note" not in kind])
    empty([e for e in tree.xpath(_STYLED) if _OUT_OF_SIGHT.search(e.get("style"))])
    return tree


def _tell_drawings(tree: etree._Element) -> None:
    """Leave what is written in drawings (SVG), in their place."""
    for drawing in [*tree.iter("svg")]:
        labels = filter(None, (" ".join(text_of(e).split()) for e in drawing.iter("text")))
        if told := ", ".join(labels):
            drawing.clear(keep_tail=True)
            drawing.tag, drawing.text = "span", f" [drawing: {told}] "


def _style_by_class(tree: etree._Element) -> None:
    """Set in the elements what rules for their classes alone raise, lower or strike out."""
    rules: dict[str, str] = {}
    for names, rule in _RULE.findall("".join(sheet.text or "" for sheet in tree.iter("style"))):
        if found := _RAISED.search(rule) or _STRUCK.search(rule):
            rules |= dict.fromkeys(_OF_CLASS.findall(names.strip()), found[0])
    for element in tree.xpath("descendant::*[@class]") if rules else ():
        told = (rules[name] for name in element.get("class").split() if name in rules)
        element.set("style", ";".join((element.get("style", ""), *told)))


# Notes

NOTE_MARK = "note-mark"
"""an attribute of our own, for the element that holds a note"""
MARK = re.compile(r"[\[(]?\s*(\w{1,4}|[*†‡§¶#]{1,3})\s*[\])]?")
_REFERENCES = (
    ".//a[contains(@href, '#') and (ancestor::sup or descendant::sup or @role='doc-noteref'"
    " or contains(@class, 'note') or contains(@class, 'fnref')"
    " or contains(@*[name()='epub:type'], 'noteref'))]"
)
NAMED_NOTE = re.compile(r"note|fnref|reference|cite")
_ARROWS = re.compile(r"[\s\[↩↑⏎⤴^\]\ufe0e\ufe0f]*")
_HOLDERS = frozenset(("li", "p", "div", "aside", "section"))
_HIGHEST = 8
"""elements above the target of a link, among which its note is looked for"""
_LONGEST_NOTE = 4000
"""characters; what is longer is no note, but all of them"""


_Place = tuple[str, str]
"""the file of a page, "" for what is one by itself, and an id in it"""


@dataclass
class Notes:
    """The notes of a page, or of the pages of a book as they are read one after another."""

    page: str = ""
    """the name of the file that is read now"""
    marks: dict[_Place, str] = field(default_factory=dict)
    """by where links lead"""
    origins: set[_Place] = field(default_factory=set)
    """where links to notes are"""

    def place(self, link: etree._Element) -> _Place:
        """Where a link leads."""
        file, _, name = str(link.get("href", "")).rpartition("#")
        return (unquote(file.rpartition("/")[2]) or self.page) if self.page else "", name


def tell_notes(root: etree._Element, notes: Notes) -> None:
    """Make each link to a note a `sup`, and give each note its mark.

    What leads from a note back to the text is emptied.
    """
    marks, origins = notes.marks, notes.origins
    for link in root.xpath(_REFERENCES):
        target = notes.place(link)
        found = MARK.fullmatch(" ".join(text_of(link).split()))
        if not found or not target[1] or target in origins or _is_back(link):
            continue
        marks[target] = found[1] if marks.get(target, found[1]) == found[1] else ""
        above = link.getparent()
        around = (link, above, *link.iter("sup"))
        names = filter(None, (e.get(name) for e in around for name in ("id", "name")))
        origins.update((notes.page, name) for name in names)
        if above.tag != "sup":
            link.clear(keep_tail=True)
            link.tag, link.text = "sup", found[1]
            link.set("class", "note")
    for element in root.xpath(".//*[@id or @name]") if marks else ():
        named = (marks.get((notes.page, element.get(each, ""))) for each in ("id", "name"))
        mark = next(filter(None, named), "")
        if mark and (holder := _holder(element)) is not None:
            holder.set(NOTE_MARK, mark)
            empty([link for link in holder.iter("a", "sup") if _leads_back(link, notes, mark)])


def _holder(element: etree._Element) -> etree._Element | None:
    """The block that begins with an element, or is it."""
    holder = element
    for _ in range(_HIGHEST):
        if holder.tag in _HOLDERS:
            return holder if len(text_of(holder)) < _LONGEST_NOTE else None
        above = holder.getparent()
        if above is None or (above.text or "").strip() or holder.getprevious() is not None:
            break
        holder = above
    return None


def _is_back(link: etree._Element) -> bool:
    return link.get("role") == "doc-backlink" or "back" in link.get("class", "")


def _leads_back(link: etree._Element, notes: Notes, mark: str) -> bool:
    to, text = notes.place(link), text_of(link).strip()
    named = text.strip("[]().") == mark or _ARROWS.fullmatch(text)
    return bool(to[1] and (to in notes.origins or named)) or _is_back(link)
