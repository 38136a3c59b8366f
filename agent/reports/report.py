"""What a report says of a trajectory, as Markdown for people and one JSON object for programs.

The list of sources is rendered here from what was fetched, never from what a model wrote; it has
only sources that the answer cites, each with the sentence on which its claims rest. Titles, paths,
quotes and the answer are untrusted text and are escaped for their place. `prose` keeps the Markdown
of an answer (headings, lists, emphasis, code, links to http and https); `literal` keeps none. A
backslash is inserted only before what would become HTML, an image, an entity or a link elsewhere.
If, as parsed by a renderer, that does not make a text harmless, all of its HTML is escaped as
entities, and every bracket and mark of code by a backslash.

The results of verification are counted over pairs of claim and source as they were written, before
any repair.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit

from rubricem.agent.reports.cited import (
    DOUBTS,
    Citation,
    Cited,
    CitedAnswer,
    Mark,
    Uncited,
    bracket_marks,
    cited_answer,
    claim_of,
)
from rubricem.agent.transcript.question import tokens_told
from rubricem.agent.transcript.scaffold import Mark as ItemMark
from rubricem.agent.transcript.scaffold import ScaffoldDocument, parse, rubric_items
from rubricem.memory.schema import (
    Author,
    Decoding,
    Recollection,
    Source,
    Stage,
    Status,
    Trajectory,
    Usage,
    Verification,
)
from rubricem.memory.text import one_line, pluralise, printable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_OFF = ["reference", "html_block", "html_inline", "entity", "code"]
_TASK = re.compile(r"\[([ xX])\]\s+")
_BOXES = {" ": "\u2610 ", "x": "\u2611 "}
PLACE = re.compile("\ufdd0(\\d+)\ufdd1")
"""placeholder of a mark while the text is escaped: noncharacters, which no text keeps"""


def web_address(location: str) -> str | None:
    """The location as an address that is safe to link; None if it is no http(s) address."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return None
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        return None
    return quote(location.strip(), safe="!#$%&*+,-./:;=?@[]_~", errors="replace")


ALIGNED = ("left", "center", "right")
"""classes of a table's cells, by the alignment of their columns"""


def grammar() -> "MarkdownIt":
    """The grammar of answers; its tokens are markdown-it's, plus `math_inline` and its like.

    CommonMark with tables, task lists and formulas, but without HTML, reference links and entities,
    which answers contain only by accident. Only http and https are linked. An image becomes a link,
    so that nothing is loaded unasked. Formulas are written between dollars or in the round and
    square brackets of LaTeX; a dollar beside a digit outside of them is money.
    """
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin
    from mdit_py_plugins.texmath import texmath_plugin

    markdown = MarkdownIt("commonmark", {"html": False})
    markdown.enable(["table", "strikethrough"]).disable(_OFF)
    markdown.use(
        dollarmath_plugin,
        allow_labels=False, allow_space=False, allow_digits=False, double_inline=True,
    ).use(texmath_plugin, delimiters="brackets")  # fmt: skip
    markdown.validateLink = lambda url: web_address(url) is not None  # type: ignore[method-assign]
    markdown.inline.ruler.before("emphasis", "name", _keep_name)
    markdown.core.ruler.push("answer", _adapt)
    return markdown


_NAME = re.compile(r"__(?:[a-z0-9_]+|[A-Z0-9_]+)__")


def _keep_name(state: "StateInline", silent: bool) -> bool:
    """A name of code such as `__init__` is no strong emphasis, and keeps its underscores."""
    if (name := _NAME.match(state.src, state.pos)) is None:
        return False
    state.pending += "" if silent else name[0]
    state.pos = name.end()
    return True


def _adapt(state: "StateCore") -> None:
    """Make images links and task boxes letters, and put headings below those of the page."""
    for before, token in zip([None, None, *state.tokens], state.tokens, strict=False):
        if token.type.startswith("heading"):
            token.tag = f"h{min(6, int(token.tag[1]) + 1)}"
        aligned = str(token.attrs.pop("style", "")).removeprefix("text-align:")
        if aligned in ALIGNED:
            token.attrs["class"] = aligned
        if token.type != "inline" or not token.children:
            continue
        token.children = [kept for child in token.children for kept in _link_image(child)]
        first = token.children[0]
        if before and before.type == "list_item_open" and (task := _TASK.match(first.content)):
            first.content = _BOXES[task[1].lower()] + first.content[task.end() :]


def _link_image(token: "Token") -> "Iterator[Token]":
    if token.type != "image":
        yield token
        return
    opens, text = token.copy(), token.copy()
    opens.type, opens.tag, opens.nesting = "link_open", "a", 1
    opens.attrs, opens.children, opens.content = {"href": token.attrs["src"]}, None, ""
    text.type, text.tag, text.children = "text", "", None
    text.content = token.content or f"image at {urlsplit(str(token.attrs['src'])).hostname}"
    yield from (opens, text, opens.copy(type="link_close", nesting=-1, attrs={}))


def alive(text: str) -> bool:
    """Whether CommonMark finds HTML, an image or a link to elsewhere than the web in the text."""
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark")
    reader.validateLink = lambda url: True  # type: ignore[method-assign]
    blocks = reader.parse(text)
    tokens = [inner for block in blocks for inner in [block, *(block.children or ())]]
    return any(
        token.type in ("html_block", "html_inline", "image")
        or (token.type == "link_open" and not web_address(str(token.attrs["href"])))
        for token in tokens
    )


_FENCE = re.compile(r"(`{3,})[^`]*$")
_KEPT = re.compile(r"((?<![\\`])`[^`\n]+`(?!`)|<https?://[^\s<>]+>)")
_MARKUP = r"<(?=[A-Za-z/!?])|&(?=#?\w{1,32};)|!(?=\[)"
_LINKED = re.compile(r"!\[([^\]\n]*)\](?=\(https?://)")
_LIVING = re.compile(rf"{_MARKUP}|(?<=\])(?:\((?!https?://)|:)")
_SPECIAL_PATTERN = (
    rf"{_MARKUP}|\](?=[(\[:])|[\\`*~|]|(?<!\w)_|_(?!\w)|^[#+=>-]|(?<=^\d)[.)]|(?<=^\d\d)[.)]"
)
_SPECIAL = re.compile(_SPECIAL_PATTERN)
_IN_LINK = re.compile(rf"[\[\]]|{_SPECIAL_PATTERN}")


def prose(text: str) -> str:
    """A printable text with its structure kept and nothing else that a renderer would obey."""
    light = _escape_lines(text, _light)
    return _escape_lines(text, _strict) if alive(light) else light


def _escape_lines(text: str, escape: Callable[[str], str]) -> str:
    """Each line through `escape`; lines of code unchanged."""
    lines, fence = [], ""
    for line in text.splitlines():
        # A fence is trusted only at the margin: elsewhere its end depends on the block around it.
        mark = _FENCE.match(line)
        if fence:
            lines.append(line)
            fence = "" if re.fullmatch(rf" {{0,3}}{fence}`*[ \t]*", line) else fence
        elif mark:
            fence = mark[1]
            lines.append(line)
        else:
            lines.append(escape(line))
    return "\n".join([*lines, fence] if fence else lines)


def literal(text: str) -> str:
    """The text on one line, with every character that means something in Markdown escaped."""
    return _SPECIAL.sub(r"\\\g<0>", one_line(text))


def link(title: str, location: str) -> str:
    """The title, linked if the location is a web address."""
    address = web_address(location)
    shown = _IN_LINK.sub(r"\\\g<0>", one_line(title))
    return f"[{shown}]({address})" if address else literal(title)


def _light(line: str) -> str:
    # An address in angle brackets is a link; an image becomes one.
    inert = (part if at % 2 else _LIVING.sub(r"\\\g<0>", _LINKED.sub(r"[\1]", part))
             for at, part in enumerate(_KEPT.split(line)))  # fmt: skip
    return "".join(inert)


def _strict(line: str) -> str:
    text = re.sub(r"[\[\]`]", r"\\\g<0>", line)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


TITLE = "Recalled from earlier runs"
QUESTION = 200


def recalled_lines(trajectory: Trajectory) -> list[str]:
    """One printable line for each item; the ids, for runs that kept only those."""
    items = trajectory.recollections or [Recollection(id=name) for name in trajectory.recalled]
    return [_line(item, trajectory) for item in items if item.kind == "reflection"]


def _line(item: Recollection, trajectory: Trajectory) -> str:
    how = "this very question" if item.own else "a similar question"
    if item.similarity is not None:
        how = f"{how} ({item.similarity:.2f})"
    if not item.question:
        return item.id
    asked = one_line(item.question, QUESTION)
    same = item.own and asked == one_line(trajectory.question, QUESTION)
    said = [how if same else f"{how}: {asked}"]
    if item.score is not None:
        said.append(f"scored {item.score:.2f}")
    return " \u00b7 ".join([*said, item.id])


NO_ANSWER = "No answer was written."
NOTHING_ANSWERS = (
    "nothing that was read answers it; other words, another source or a larger model may find it"
)
NOT_CERTAIN = (
    "the model itself doubts what is marked so below; hold it against the sentence that it rests on"
)
SHOWN_UNCITED = 80
"""characters of a sentence that cites nothing, where it is named"""
QUOTE_LIMIT = 400

_ENDED = {
    Status.PARTIAL: "Ended early",
    Status.NO_EVIDENCE: "No evidence",
    Status.FAILED: "Failed",
}
_PROMISED = (
    "question answer citations dropped_citations verification stages usage seconds status "
    "reason ended_by trajectory_id thread recalled recollections investigations sent missed"
)
"""keys of the object for programs, in order; a trajectory's own are taken as they are"""


def markdown(trajectory: Trajectory) -> str:
    """The report as Markdown; in the format `exact` its last line is the bare answer."""
    answer = cited_answer(trajectory)
    body = render_marked(answer, prose, bracket_marks) if answer.pieces else NO_ANSWER
    title = f"# {literal(trajectory.question)}"
    parts = [title, *map(literal, notes(trajectory, answer)), body]
    if answer.sources:
        parts += ["## Sources", *(_document(answer, each) for each in documents(answer))]
    parts += [literal(note) for note in end_notes(trajectory, answer)]
    if recalled := recalled_lines(trajectory):
        parts += [f"## {TITLE}", "\n".join(f"- {literal(line)}" for line in recalled)]
    parts += ["---", literal(" · ".join(facts(trajectory)))]
    if answer.bare:
        parts.append(prose(answer.bare))
    return "\n\n".join(part for part in parts if part) + "\n"


def as_json(trajectory: Trajectory) -> dict[str, Any]:
    """The answer with its sources, for programs; text is as written, not escaped."""
    answer, names = cited_answer(trajectory), _PROMISED.split()
    told = trajectory.model_dump(mode="json", include=set(names)) | {
        "answer": answer.text(),
        "citations": [_citation(citation) for citation in answer.citations],
        "dropped_citations": answer.dropped,
        "stages": [
            {"stage": stage.value, "text": text} for stage, text in stage_texts(trajectory).items()
        ],
        "trajectory_id": trajectory.id,
    }
    return {name: told[name] for name in names}


def render_marked(answer: CitedAnswer, escape: Callable[[str], str], mark: Mark) -> str:
    """The body of the answer through `escape`, with marks that `escape` did not see."""
    parts = parts_in(answer, escape)
    return "".join(part if isinstance(part, str) else mark(part) for part in parts)


def parts_in(answer: CitedAnswer, escape: Callable[[str], str]) -> Iterator[str | Cited | Uncited]:
    """The body through `escape`, with the claims that carry marks between its texts."""
    places: list[Cited | Uncited] = []

    def hold(piece: Cited | Uncited) -> str:
        places.append(piece)
        return f"\ufdd0{len(places) - 1}\ufdd1"

    for at, part in enumerate(PLACE.split(escape(answer.body(hold)))):
        yield places[int(part)] if at % 2 else part


def stage_texts(trajectory: Trajectory) -> dict[Stage, str]:
    """The text of each stage that was reached, in the order of stages, whoever wrote it."""
    kept = [s for s in trajectory.segments if s.kept]
    texts = {stage: "".join(s.text for s in kept if s.stage is stage) for stage in Stage}
    return {stage: text.strip() for stage, text in texts.items() if text.strip()}


def latest_rubric(document: ScaffoldDocument) -> list[str]:
    """The items of the last rubric that has any."""
    found = (rubric_items(document.inner(block)) for block in reversed(document.find("rubric")))
    return next((items for items in found if items), [])


State = Literal["open", "met", "partly", "missing", "unmarked"]
"""`open` before a review; `unmarked` if the review has no mark for the item"""

LONGEST_ITEM = 400
MOST_ITEMS = 100


def checklist(transcript: str) -> list[dict[str, Any]]:
    """The rubric of a question item by item, as marked by the last review so far.

    A mark belongs to the item that its line begins with, or else, if no item lacks one, to the item
    in the same position: a reviewer may add items. Only a mark ticks an item.
    """
    document = parse(printable(transcript))
    items = latest_rubric(document)[:MOST_ITEMS]
    marks = document.review_marks()[:MOST_ITEMS]
    marked: dict[int, ItemMark] = {}
    for place, mark in enumerate(marks):
        begun = [at for at, item in enumerate(items) if mark.item.startswith(item)]
        if begun:
            marked[begun[0]] = mark
        elif len(marks) >= len(items) > place:
            marked.setdefault(place, mark)
    unmarked: State = "unmarked" if document.last("rubric_review").strip() else "open"
    return [
        {
            "n": at + 1,
            "text": one_line(item, LONGEST_ITEM),
            **_state(item, marked.get(at), unmarked),
        }
        for at, item in enumerate(items)
    ]


def _state(item: str, mark: ItemMark | None, unmarked: State) -> dict[str, str]:
    if mark is None:
        return {"state": unmarked, "note": ""}
    said = mark.item.removeprefix(item).strip(" .:,;")
    note = " \u00b7 ".join(filter(None, (said, ", ".join(mark.ids))))
    return {"state": mark.state, "note": one_line(note, LONGEST_ITEM)}


def notes(trajectory: Trajectory, answer: CitedAnswer) -> list[str]:
    """What a reader has to know before the answer: an early end, dropped ids, doubts."""
    said = []
    if trajectory.status is not Status.FINISHED:
        reason = end_reason(trajectory) or "no reason was given."
        if trajectory.status is Status.NO_EVIDENCE and not trajectory.sources:
            reason = f"{reason.rstrip('.')}; what follows rests on no source."
        doubted = trajectory.ended_by == "uncertain"
        how = "Not certain" if doubted else _ENDED[trajectory.status]
        said.append(f"{how}: {reason}")
    said += _shortfalls(trajectory)
    if answer.dropped:
        marks = pluralise(answer.dropped, "citation mark")
        were = "was" if answer.dropped == 1 else "were"
        said.append(f"{marks} named no retrieved source and {were} removed.")
    if invented := len(answer.invented):
        one = invented == 1
        what = "1 address or reference" if one else f"{invented} addresses or references"
        said.append(f"{what} of the answer {'is' if one else 'are'} of no retrieved source.")
    return said + doubts(trajectory, answer)


LONGEST_SENT = 200
"""characters of what was sent to a public service, and of why a search failed"""


def end_notes(trajectory: Trajectory, answer: CitedAnswer) -> list[str]:
    """What a reader may want to know behind the sources: what is uncited, what was read."""
    said = []
    if count := len(answer.uncited):
        what = "1 sentence states" if count == 1 else f"{count} sentences state"
        some = "; ".join(
            f"\u201c{one_line(each, SHOWN_UNCITED)}\u201d" for each in answer.uncited[:2]
        )
        said.append(f"{what} a number or a name without a source: {some}{'; ...' * (count > 2)}")
    if trajectory.private:
        for service in dict.fromkeys(to for to, _ in trajectory.sent):
            asked = dict.fromkeys(text for to, text in trajectory.sent if to == service)
            quoted = "; ".join(f"\u201c{one_line(text, LONGEST_SENT)}\u201d" for text in asked)
            said.append(f"Sent to {service}, beside private sources: {quoted}")
    if missed := [one_line(why, LONGEST_SENT).rstrip(".") for why in trajectory.missed]:
        said.append(f"Not all was searched: {'; '.join(missed[:2])}{'; ..' * (len(missed) > 2)}.")
    return [*said, *(f"{line[:1].upper()}{line[1:]}" for line in trajectory.reading)]


def _shortfalls(trajectory: Trajectory) -> list[str]:
    """What was done without, of a run that a server's model wrote."""
    said = []
    whole = trajectory.status is Status.FINISHED and trajectory.decoding is Decoding.FREE
    if whole and not parse(trajectory.transcript()).find("review"):
        said.append("The model did not hold its answer against its rubric before it gave it.")
    resumed = {p.after for p in trajectory.investigations if p.status is Status.FINISHED}
    for number, part in enumerate(trajectory.investigations, start=1):
        if part.status is not Status.FINISHED and number not in resumed:
            how = "failed" if part.status is Status.FAILED else "ended early"
            asked = one_line(part.question, SHOWN_UNCITED)
            why = one_line(part.reason).rstrip(".") or "it found nothing"
            said.append(f"An investigation {how}, \u201c{asked}\u201d: {why}.")
    if trajectory.left_out:
        outputs = sum(s.author is Author.TOOL for s in trajectory.segments if s.kept)
        said.append(
            f"The model's context was full: of {outputs} results the oldest {trajectory.left_out} "
            "were no longer before it when it wrote the end."
        )
    if trajectory.cut_prompt:
        read, sent = trajectory.cut_prompt
        said.append(
            f"The server read {read:,} of about {sent:,} tokens that it was sent, and did not say "
            "so: its context may be set too small."
        )
    return said


def end_reason(trajectory: Trajectory) -> str:
    """Why a run ended as it did, for its reader; the answer itself says what was not found."""
    if trajectory.ended_by == "uncertain":
        return NOT_CERTAIN
    missed = trajectory.status is Status.NO_EVIDENCE and trajectory.ended_by == "not_found"
    return NOTHING_ANSWERS if missed else one_line(trajectory.reason)


def searches(trajectory: Trajectory) -> int:
    """Tool calls of a run, or of its investigations."""
    parts = trajectory.investigations
    return sum(part.tool_calls for part in parts) if parts else trajectory.tool_calls


def facts(trajectory: Trajectory) -> list[str]:
    """Figures of the run, each as a short phrase."""
    usage, recalled = trajectory.usage, len(recalled_lines(trajectory))
    phrases = [
        trajectory.status.value.replace("_", " "),
        one_line(trajectory.policy),
        pluralise(parts, "investigation") if (parts := len(trajectory.investigations)) else "",
        pluralise(searches(trajectory), "search"),
        check_summary(trajectory),
        f"{pluralise(recalled, 'reflection')} recalled" if recalled else "",
        tokens_told(usage),
        f"${usage.cost:.4f}" if usage.cost else "",
        duration(trajectory.seconds),
    ]
    return [phrase for phrase in phrases if phrase]


def duration(seconds: float) -> str:
    """`0.4 s`, `41 s`, `2 min 5 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def price(usage: Usage) -> str:
    return "no price known" if usage.cost is None else f"${usage.cost:.4f}"


def quotes(answer: CitedAnswer, source: Source) -> list[str]:
    """What the claims that a source supports rest on, on one line each: sentences, or its begin.

    If it supports none, what comes closest to them. None is a part of another.
    """
    of = answer.of(source)
    told = [c for c in of if c.verdict != "unsupported"] or of
    found = dict.fromkeys(claim_of(q) for c in told for q in c.shown if any(map(str.isalpha, q)))
    whole = [q for q in found if not any(q in other for other in found if other != q)]
    return [one_line(quote, QUOTE_LIMIT) for quote in whole or [source.text]]


def whereabouts(source: Source) -> list[str]:
    """Where a source is: its address, the place in it, and the addresses of copies."""
    also = f"also at {', '.join(source.copies)}" if source.copies else ""
    return [one_line(part) for part in (source.location, source.place, also) if part]


def documents(answer: CitedAnswer) -> list[list[Source]]:
    """The cited sources, those of one file or page together, by the first of their numbers."""
    found: dict[tuple[str, str], list[Source]] = {}
    for source in answer.sources:
        found.setdefault((source.location, source.title), []).append(source)
    return list(found.values())


def _document(answer: CitedAnswer, sources: Sequence[Source]) -> str:
    """A file or page, with each of its parts that is cited below it where there are several."""
    first, many = sources[0], len(sources) > 1
    blocks = [f"**{link(first.title, first.location)}** · {literal(one_line(first.location))}"]
    for source in sources:
        mark = f"**[{answer.of(source)[0].number}]**"
        where = [literal(part) for part in whereabouts(source)][many:]
        head = mark if many else f"{mark} {link(source.title, source.location)}"
        blocks.append(" · ".join([head, *where]))
        blocks += [f"> {literal(quote)}" for quote in quotes(answer, source)]
    return "\n\n".join(blocks if many else blocks[1:])


def _citation(citation: Citation) -> dict[str, Any]:
    source, support = citation.source, ("verdict", "reason", "overlap")
    told = source.model_dump(mode="json", include={"id", "title", "location", "place", "copies"})
    return {
        "id": citation.id,
        "number": citation.number,
        "claim": citation.claim,
        "support": {name: getattr(citation, name) for name in support},
        "source": told | {"passage": source.text},
    }


_SAID = {"supported": "supported", **DOUBTS, "unchecked": "not checked"}


def check_summary(trajectory: Trajectory) -> str:
    """Who checked the citations and with what result, as a short phrase; "" if nobody did."""
    found = trajectory.verification
    if found is None or not found.checks:
        return ""
    return f"citations checked by {one_line(found.checker)}: {check_counts(trajectory)}"


def check_counts(trajectory: Trajectory) -> str:
    """`3 supported, 1 not supported`; "" if nobody checked."""
    found = trajectory.verification
    if found is None:
        return ""
    counts = Counter(check.verdict for check in found.checks)
    named = [f"{counts[name]} {_SAID[name]}" for name in _SAID if counts[name]]
    return ", ".join(named) or "none"


def doubts(trajectory: Trajectory, answer: CitedAnswer) -> list[str]:
    """Sentences for the reader: doubtful claims, what repair did, and which checker stood in."""
    found = trajectory.verification
    if found is None:
        return []
    bad = len({c.claim for c in answer.citations if c.verdict == "unsupported"})
    were = "was" if bad == 1 else "were"
    what = f"Marked below: {pluralise(bad, 'claim')} {were} not supported by a cited source."
    said = one_line(found.note)
    note = [f"{said[0].upper()}{said[1:]}."] if said else []
    return [*([what] if bad else []), *_repair_notes(found), *note]


def _repair_notes(found: Verification) -> list[str]:
    became = [repair.became for repair in found.repairs]
    rewritten, removed = sum(map(bool, became)), became.count("")
    return [
        f"{pluralise(count, 'sentence')} said what no cited source supports: {what}."
        for count, what in ((rewritten, "rewritten from the sources"), (removed, "removed"))
        if count
    ]
