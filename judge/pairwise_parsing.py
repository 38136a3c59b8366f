"""The chain of rubrics that a pairwise judge writes: its parts, and the reply that wins by it.

    chat      = <type>Chat</type> <rubric> items, <justify> </rubric> <eval> <answer>
    reasoning = <type>Reasoning</type> <solution> <eval> <answer>

with `<quote_A>`, `<summary_A>`, `<quote_B>`, `<summary_B>` inside `<eval>` and `[[A]]` or `[[B]]`
inside `<answer>`. Only the verdict is required; the other parts are read where they stand. One
parser serves training and evaluation; the two rules of the published code, which differ, are
here for comparison. Source: RM-R1 (arXiv:2505.02387).
"""

import re
from dataclasses import dataclass
from typing import Literal

Side = Literal["A", "B"]
Kind = Literal["chat", "reasoning"]

TAIL = 80
"""characters at the end of a text that the published reward looks at"""
_THOUGHT = re.compile(r"\A.*</think>|<think>.*\Z", re.S | re.I)
_CITED = re.compile(r"<(quote|summary)_([AB])>(.*?)</\1_\2>", re.S | re.I)
_CITED_OPEN = re.compile(r"<(?:quote|summary)_[AB]>.*?(?=</eval>|\Z)", re.S | re.I)
_VERDICT = re.compile(r"<answer>\s*\[\[\s*([AB])\s*\]\]\s*</answer>", re.I)
_TAGS = re.compile(
    r"<(?=/?(?:type|rubric|item|justify|solution|eval|answer|quote_[AB]|summary_[AB]|think)>)", re.I
)
_SHARE = re.compile(r"\(\s*(\d+(?:\.\d+)?)\s*%\s*\)|(\d+(?:\.\d+)?)\s*%")
_BULLET = re.compile(r"^(?:[-*•]\s+|\d+[.):]?\s+)+")


@dataclass(frozen=True, slots=True)
class WeightedItem:
    """One line of the rubric that the judge wrote for itself."""

    text: str
    percent: float | None
    """its weight as written; the weights of a rubric need not sum to 100"""


@dataclass(frozen=True, slots=True)
class Quote:
    """What the judge says one reply holds, word for word."""

    side: Side
    text: str


@dataclass(frozen=True, slots=True)
class Chain:
    """A judge's whole text, taken apart; what it left out is empty or None."""

    verdict: Side | None
    kind: Kind | None = None
    rubric: tuple[WeightedItem, ...] = ()
    justification: str = ""
    """of the rubric"""
    solution: str = ""
    evaluation: str = ""
    quotes: tuple[Quote, ...] = ()


def parse_chain(text: str) -> Chain:
    """The parts of a judge's text. Any text is read; one without a verdict has verdict None."""
    said = _THOUGHT.sub("", text)
    rubric, evaluation = _inside(said, "rubric"), _inside(said, "eval")
    cited = [(what.lower(), side.upper(), words.strip()) for what, side, words in _found(said)]
    return Chain(
        verdict=verdict_of(text),
        kind=_kind(_inside(said, "type")),
        rubric=_items(re.sub(r"<justify>.*?(?:</justify>|\Z)", "", rubric, flags=re.S | re.I)),
        justification=_inside(rubric, "justify"),
        solution=_inside(said, "solution"),
        evaluation=evaluation,
        quotes=tuple(
            Quote("A" if side == "A" else "B", words) for what, side, words in cited
            if what == "quote" and words
        ),
    )  # fmt: skip


def verdict_of(text: str) -> Side | None:
    """The last well-formed verdict that stands neither in a quote nor in thinking.

    White space and case inside the tag do not matter. A quote that is never closed ends with
    the evaluation, so that what a truncated judge quoted is not taken for its verdict.
    """
    said = _CITED_OPEN.sub("", _CITED.sub("", _THOUGHT.sub("", text)))
    letters = _VERDICT.findall(said)
    if not letters:
        return None
    return "A" if letters[-1].upper() == "A" else "B"


def reward(text: str, better: Side) -> float:
    """+1 where the verdict names the better reply, else -1: what a pairwise judge is trained on."""
    return 1.0 if verdict_of(text) == better else -1.0


def published_reward(text: str, better: Side) -> float:
    """The published training rule: the exact tag, and only the right one, in the last characters.

    White space, case and a verdict further from the end count as wrong there.
    """
    tail = text[-TAIL:]
    right, wrong = (f"<answer>[[{s}]]</answer>" in tail for s in _both(better))
    return 1.0 if right and not wrong else -1.0


def published_verdict(text: str) -> Side | None:
    """The published evaluation rule: one of the two letters anywhere in the text, not both.

    No tag is needed, and a letter that was only quoted spoils the verdict.
    """
    first, second = "[[A]]" in text, "[[B]]" in text
    if first == second:
        return None
    return "A" if first else "B"


def real_quotes(chain: Chain, first: str, second: str) -> tuple[Quote, ...]:
    """The quotes that stand in the reply they are ascribed to, white space aside."""
    shown = {"A": _plain(first), "B": _plain(second)}
    return tuple(quote for quote in chain.quotes if _plain(quote.text) in shown[quote.side])


def without_tags(text: str) -> str:
    """A reply to be judged in which none of the judge's own tags can be read as a tag."""
    return _TAGS.sub("\u2039", text)


def _both(better: Side) -> tuple[Side, Side]:
    return ("A", "B") if better == "A" else ("B", "A")


def _found(text: str) -> list[tuple[str, str, str]]:
    return [(found[1], found[2], found[3]) for found in _CITED.finditer(text)]


def _inside(text: str, tag: str) -> str:
    """What the first such tag holds; to the end of the text where it is never closed."""
    found = re.search(rf"<{tag}>(.*?)(?:</{tag}>|\Z)", text, re.S | re.I)
    return found[1].strip() if found else ""


def _kind(word: str) -> Kind | None:
    plain = word.casefold()
    if plain == "chat":
        return "chat"
    return "reasoning" if plain == "reasoning" else None


def _items(rubric: str) -> tuple[WeightedItem, ...]:
    """Its lines; where some carry a weight, only those."""
    lines = re.split(r"</?item>|[\n·]", rubric, flags=re.I)
    items = [_item(plain) for line in lines if (plain := _BULLET.sub("", line.strip()).strip())]
    weighted = tuple(item for item in items if item.percent is not None)
    return weighted or tuple(items)


def _item(line: str) -> WeightedItem:
    shares = list(_SHARE.finditer(line))
    if not shares:
        return WeightedItem(line, None)
    share = next((s for s in shares if s[1]), shares[0])
    text = f"{line[: share.start()].rstrip()}{line[share.end() :]}"
    return WeightedItem(text.strip(" :-\u2013\u2014"), float(share[1] or share[2]))


def _plain(text: str) -> str:
    return " ".join(text.split()).strip("\"'“”… ")
