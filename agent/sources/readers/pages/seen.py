"""A page as a reader sees it: its elements, parsed, without what is out of sight, notes marked.

Text that nobody sees is left out: comments, scripts, `hidden` elements and those that a style, its
own or of a sheet within the page, takes out of sight or strikes through, unless a control of the
page shows them. Of a formula that a script has drawn, its source or MathML is kept.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote

from lxml import etree
from lxml.cssselect import CSSSelector, SelectorError

from rubricem.agent.sources.readers.encoding import names_of
from rubricem.agent.sources.readers.pages.surroundings import text_of
from rubricem.memory.errors import SourceError

_NAMES = names_of("looks")
_HIDING = {name: re.compile(told) for name, told in _NAMES["hidden"].items()}
_SIDES = ("height", "max-height", "width", "max-width")
_FOLLOWED = {*_HIDING, *_SIDES, *_NAMES["followed"]}
_NOTHING = re.compile(r"0(?:\.0*)?(?:[a-z]+|%)?")
_TO_ITSELF = re.compile("\\s*[¶#§🔗\ue000-\uf8ff]\\s*")
"""the text of a link that leads to where it stands"""
_BOLD = re.compile("bold|[6-9]00")
_HIGHER = re.compile(r"super|text-top|\.?[1-9]")
_STYLED = "descendant::*[@style or @role or @hidden or self::dialog[not(@open)]]"
_CONTROLLED = "//@aria-controls | //@data-target | //@data-bs-target | //a/@href"
_PAGE_ENDS = "descendant::*[@role='doc-pagebreak' or @*[name()='epub:type']='pagebreak']"
"""which number the pages of the printed book"""
_ASIDE = re.compile(_NAMES["aside"], re.S)
"""in a sheet: comments, and rules for print, for other windows and for what moves"""
_WEIGHTS = ("#", r"[.:\[]", r"(?:^|[\s>+~])\w")
"""of a selector's parts: ids, then classes and the like, then names of elements"""
_NO_NAME = re.compile(r"\([^()]*\)|\[[^\]]*\]")
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


def visible(text: str, *, tex: bool = False, sheets: bool = True) -> etree._Element | None:
    """The document that a reader sees; None where there is none.

    `tex`: whether it has formulas in TeX, which a script of its readers draws; `sheets`: whether
    its style sheets are followed, which may hide all until a script runs.
    """
    if (tree := html_tree(text)) is None:
        return None
    if tex:
        for source in tree.xpath(_NAMES["tex"]):
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
    if sheets:
        _apply_sheets(tree)
    _follow_styles(tree)
    empty(tree.xpath(_NAMES["buttons"]))
    empty([*tree.iter(*_NAMES["unseen"])])
    links = (e for e in tree.iter("a") if e.text and not len(e) and "#" in e.get("href", "#"))
    empty([link for link in links if _TO_ITSELF.fullmatch(link.text or "")])
    for table in tree.xpath("//table[tfoot]"):
        table.extend(table.findall("tfoot"))
    return tree


def _tell_drawings(tree: etree._Element) -> None:
    """Leave what is written in drawings (SVG), in their place."""
    for drawing in [*tree.iter("svg")]:
        texts = drawing.xpath("descendant::text[not(ancestor::defs)]")
        # Parts of a text that have places of their own are lines.
        labels = ((" " * bool(e.xpath("tspan[@x or @dy]"))).join(e.itertext()) for e in texts)
        if told := ", ".join(filter(None, (" ".join(label.split()) for label in labels))):
            drawing.clear(keep_tail=True)
            drawing.tag, drawing.text = "span", f" [drawing: {told}] "


def _apply_sheets(tree: etree._Element) -> None:
    """Set in each element what the page's style sheets say of its looks, the weightiest last."""
    sheets = tree.xpath("//style[not(@media) or @media='all' or @media='screen']/text()")
    names = {name for each in tree.xpath("//@class | //@id") for name in each.split()}
    rules = list[tuple[tuple[int, ...], int, CSSSelector, str]]()
    # Split, not searched for: pictures and fonts may stand in a sheet as megabytes of letters.
    for rule in _ASIDE.sub("", "\n".join(sheets)).split("}"):
        begun, _, told = rule.rpartition("{")
        chosen = re.split("[{;]", begun)[-1]
        for one in chosen.split(",") if _look(told).keys() & _FOLLOWED else ():
            if names.issuperset(re.findall(r"[.#]([\w-]+)", _NO_NAME.sub("", one))):
                weight = (len(re.findall(kind, one)) for kind in _WEIGHTS)
                with suppress(SelectorError):
                    chooses = CSSSelector(one, translator="html")
                    rules.append(((*weight,), len(rules), chooses, told))
    styles = defaultdict[etree._Element, list[str]](list)
    for _, _, chooses, told in sorted(rules):
        with suppress(etree.XPathError):
            for element in chooses(tree):
                styles[element].append(told)
    for element, several in styles.items():
        element.set("style", ";".join((*several, element.get("style", ""))))


def _follow_styles(tree: etree._Element) -> None:
    """Leave out what is out of sight; what is raised or shown as a block or a cell becomes one."""
    still = next(tree.iter("script"), None) is None  # else one may open what has no height
    shown = {name for each in tree.xpath(_CONTROLLED) for name in each.split("#")[-1].split()}
    for element in tree.xpath(_STYLED):
        look, kind = _look(element.get("style", "")), element.get("role", "")
        hidden = element.tag == "dialog" or element.get("hidden") is not None
        hidden = hidden or any(_HIDING[n].fullmatch(look[n]) for n in _HIDING.keys() & look.keys())
        if still and look.get("overflow") == "hidden":
            hidden = hidden or any(_NOTHING.fullmatch(look.get(name, "")) for name in _SIDES)
        # Notes are hidden by books whose readers show them when they are asked for.
        asked_for = "note" in f"{kind} {element.get('epub:type')}" or kind == "tabpanel"
        at, top = look.get("vertical-align", ""), look.get("top", "")
        raised = (top[:1] == "-" and look.get("position") == "relative") or _HIGHER.match(at)
        script = "sub" if at == "sub" else "sup" * bool(raised)
        if hidden and not asked_for and element.get("id") not in shown:
            empty([element])
        elif script and element.tag in ("span", "a", "i", "b", "em", "small"):
            inner = etree.Element(script)
            inner.text, inner[:], element.text = element.text, element[:], None
            element.append(inner)
        elif element.tag in ("td", "span") and _BOLD.match(look.get("font-weight", "")):
            element.tag = "th" if element.tag == "td" else "b"
        elif element.tag in ("div", "span"):
            named = _NAMES["shown_as"]
            element.tag = named.get(kind) or named.get(look.get("display")) or element.tag


@lru_cache(4096)
def _look(style: str) -> dict[str, str]:
    """The properties that a style sets, of several values for one the weightiest."""
    told: dict[str, str] = {}
    for name, _, value in (each.partition(":") for each in style.lower().split(";")):
        if "!" in value or "!" not in told.get(name.strip(), ""):
            told[name.strip()] = value.strip()
    return {name: value.partition("!")[0].strip() for name, value in told.items()}


# Notes

NOTE_MARK = "note-mark"
"""an attribute of our own, for the element that holds a note"""
MARK = re.compile(r"[\[(]?\s*(\w{1,4}|[*†‡§¶#]{1,3})\s*[\])]?")
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
    for link in root.xpath(_NAMES["references"]):
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
            for link in [*holder.iter("a", "sup")]:
                to, text = notes.place(link), text_of(link).strip()
                leads = text.strip("[]().") == mark or _ARROWS.fullmatch(text)
                if (to[1] and (to in notes.origins or leads)) or _is_back(link):
                    empty([link])


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
