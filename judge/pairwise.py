"""The pairwise judge: which of two replies is better, shown in both orders.

Judges prefer positions as well as replies. So each pair is read twice, once in either order, and
the consistency of the readings is reported: one order, even a drawn one, leaves the preference for
a place in the score. A reading that names no winner is unknown: neither a win nor a loss.

In a group of runs an answer's score is the share of its comparisons that it won. Each reading of a
pair counts once, so a pair whose orders contradict each other gives both answers one win of two; if
a probability was read, it counts as that part of a win, the expected one. A reading without a
verdict counts for neither. An answer that the policy never wrote loses, unread, to each that it did
write; one that was cut off from outside is not compared. Identical answers are read once and share
their score.

A chat server's model, and a local one that was trained to, write a chain of rubrics:

    chat      = <type>Chat</type> <rubric> items, <justify> </rubric> <eval> <answer>
    reasoning = <type>Reasoning</type> <solution> <eval> <answer>

with `<quote_A>`, `<summary_A>`, `<quote_B>`, `<summary_B>` inside `<eval>` and `[[A]]` or `[[B]]`
inside `<answer>` (RM-R1, arXiv:2505.02387; its ablations, without the kind or the rubric, are left
out). Only the verdict is required, and its tags are not. One parser serves training and evaluation.

From a local model that was not trained, the probabilities of A and of B as its next token are read.
A small model may prefer a position to any reply, so that one order says little: over both orders
the places cancel out. So a pair takes two calls. One call on both orders would take as many tokens,
and its one verdict would leave no two orders to compare.
"""

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from typing import Literal, Protocol

from rubricem.judge.base import (
    CHARACTERS,
    QUESTION_CHARACTERS,
    answer_judgement,
    failed_score,
    fit_messages,
    instruct,
    no_score,
    sight_of,
    unread,
)
from rubricem.judge.evidence import answer_shown, pair_shown
from rubricem.judge.readers import ChoiceSeries
from rubricem.memory.asking import TRIES, ask_until, correction, usage_of_error
from rubricem.memory.errors import RubricemError
from rubricem.memory.schema import (
    NO_USAGE,
    ChatModel,
    ChoiceReader,
    Completion,
    GroupJudgement,
    Message,
    RubricBuffer,
    Sampling,
    Stage,
    StageScore,
    TokenPolicy,
    Trajectory,
    TrajectoryGroup,
    Usage,
)
from rubricem.memory.text import cut, fence, split_thinking, without_markers

Side = Literal["A", "B"]

_CITED = re.compile(r"<(quote|summary)_([AB])>(.*?)</\1_\2>", re.S | re.I)
_CITED_OPEN = re.compile(r"<(?:quote|summary)_[AB]>.*?(?=</eval>|\Z)", re.S | re.I)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.S | re.I)
_BARE = re.compile(r"\[\[\s*([AB])\s*\]\]", re.I)
_REPLY = r"(?:(?:reply|response|answer|assistant|chatbot|option|\u56de[\u590d\u7b54])\W*)?"
_NAMED = re.compile(
    rf"\W*{_REPLY}([AB])(?:\W+(?:is better|wins)(?:\W+than\W+{_REPLY}[AB])?)?[\W_]*", re.I
)
_LAST = re.compile(rf"(?:^|:|boxed|\*\*)[^\w\n]*(?i:{_REPLY})([AB])\W*\Z", re.M)
_END = 200
"""characters of a text's end in which a verdict without tags is looked for"""
_TAGS = re.compile(
    r"<(?=/?(?:type|rubric|item|justify|solution|eval|answer|quote_[AB]|summary_[AB]|think)>)"
    r"|\[(?=\[\s*[AB]\s*\]\])",
    re.I,
)


def verdict_of(text: str) -> Side | None:
    """The last verdict in answer tags that stands neither in a quote nor in thinking.

    Where no tags hold one, the letter in double brackets, if there is only one letter in them; else
    the letter in which the text ends, alone on its line, behind a colon or emphasised. White space,
    emphasis and case do not matter. A quote that is never closed ends with the evaluation, so that
    what a truncated judge quoted is not taken for its verdict.
    """
    said = _CITED_OPEN.sub("", _CITED.sub("", split_thinking(text)[1]))
    inside = map(_NAMED.fullmatch, _ANSWER.findall(said))
    letters = [named[1].upper() for named in inside if named]
    bare = {
        letter.upper() for letter in _BARE.findall(said) or _LAST.findall(said.rstrip()[-_END:])
    }
    last = letters[-1] if letters else bare.pop() if len(bare) == 1 else None
    return None if last is None else "A" if last == "A" else "B"


def reward(text: str, better: Side) -> float:
    """+1 where the verdict names the better reply, else -1: what a pairwise judge is trained on."""
    return 1.0 if verdict_of(text) == better else -1.0


def without_tags(text: str) -> str:
    """A reply to be judged in which none of the judge's own tags or verdicts can be read as one."""
    return _TAGS.sub("\u2039", text)


def _inside(text: str, tag: str) -> str:
    """What the first such tag holds; to the end of the text where it is never closed."""
    found = re.search(rf"<{tag}>(.*?)(?:</{tag}>|\Z)", text, re.S | re.I)
    return found[1].strip() if found else ""


@dataclass(frozen=True, slots=True)
class Preference:
    """What one reading of two replies says: A is the one that was shown first."""

    winner: Side | None
    reason: str
    """why it wins; or, where nobody does, what went wrong"""
    first_share: float | None = None
    """probability that the first is better, where it was read and not written"""
    text: str = ""
    """what the model wrote, where it wrote its verdict"""
    usage: Usage = NO_USAGE


class Comparer(Protocol):
    """Reads one pair in one order. Raises JudgeError or PolicyError where the model fails."""

    @property
    def name(self) -> str: ...

    async def prefer(self, question: str, first: str, second: str) -> Preference: ...


async def ask_preference(comparer: Comparer, question: str, first: str, second: str) -> Preference:
    """What the comparer says; where its model fails, a preference without a winner."""
    try:
        return await comparer.prefer(question, first, second)
    except RubricemError as error:
        return Preference(None, error.told(), usage=usage_of_error(error))


@dataclass(frozen=True, slots=True)
class PairReading:
    """A preference, with the order in which the pair was shown."""

    swapped: bool
    preference: Preference

    @property
    def first_wins(self) -> bool | None:
        """Whether the pair's first reply won, wherever it was shown."""
        if self.preference.winner is None:
            return None
        return (self.preference.winner == "A") != self.swapped

    @property
    def first_share(self) -> float | None:
        """The probability of the pair's first reply; 0 or 1 where only a verdict was written."""
        share = self.preference.first_share
        if share is not None:
            return 1 - share if self.swapped else share
        return None if self.first_wins is None else float(self.first_wins)


Readings = tuple[PairReading, ...]
"""of one pair, in both orders"""


class PairwiseJudge:
    """Compares replies with one comparer, and judges groups as the stage judge does by it.

    It uses no rubrics.
    """

    def __init__(self, comparer: Comparer) -> None:
        self._comparer = comparer
        self.name = comparer.name

    async def compare(
        self, question: str, first: str, second: str, swapped: tuple[str, str] | None = None
    ) -> Readings:
        """Which reply is better, in both orders. Raises nothing that the judge's model causes.

        `swapped`: how the two are shown in the other order, where they are then worded otherwise.
        """
        given, back = await asyncio.gather(
            ask_preference(self._comparer, question, first, second),
            ask_preference(self._comparer, question, *(swapped or (second, first))),
        )
        return PairReading(False, given), PairReading(True, back)

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """One judgement for each trajectory; the buffer comes back as it is.

        A judge that fails leaves answers unscored with the reason. The usage is the group's,
        since a comparison belongs to two runs.
        """
        settled = [unread(trajectory, Stage.ANSWER) for trajectory in group.trajectories]
        room = getattr(self._comparer, "characters", CHARACTERS) // 2
        texts = {
            i: answer_shown(t, room) for i, t in enumerate(group.trajectories) if settled[i] is None
        }
        answers = {text: group.trajectories[i] for i, text in texts.items()}
        pairs = list(combinations(answers, 2))

        def read_pair(first: Trajectory, second: Trajectory) -> Awaitable[Readings]:
            orders = pair_shown(first, second, room), pair_shown(second, first, room)
            return self.compare(group.question, *orders[0], swapped=orders[1])

        read = await asyncio.gather(*(read_pair(*map(answers.__getitem__, p)) for p in pairs))
        compared = dict(zip(pairs, read, strict=True))
        absent = sum(score is not None and score.missing for score in settled)
        won = {answer: _score(answer, compared, absent) for answer in answers}
        scores = [known or won[texts[place]] for place, known in enumerate(settled)]
        readings = list(chain.from_iterable(read))
        failed = [r.preference.reason for r in readings if r.first_share is None]
        notes = []
        if failed:
            notes.append(f"{len(failed)} of {len(readings)} readings named no winner: {failed[0]}")
        if len(failed) < len(readings):
            notes.append(consistency(read))
        return GroupJudgement(
            judgements=tuple(
                answer_judgement(trajectory, self.name, score)
                for trajectory, score in zip(group.trajectories, scores, strict=True)
            ),
            buffer=buffer,
            notes=tuple(notes),
            usage=sum((reading.preference.usage for reading in readings), NO_USAGE),
        )


def consistency(compared: Sequence[Readings]) -> str:
    """How far readings of pairs hang on what was shown first."""
    readings = list(chain.from_iterable(compared))
    decided = [r for r in readings if r.first_wins is not None]
    shown_first_won = sum(r.preference.winner == "A" for r in decided)
    both = [won for each in compared if None not in (won := {r.first_wins for r in each})]
    return (
        f"{sum(len(won) == 1 for won in both)} of {len(both)} pairs had the same winner in both "
        f"orders; what was shown first won {shown_first_won} of {len(decided)} readings; "
        f"{len(readings) - len(decided)} of {len(readings)} named no winner."
    )


REASONS = 3
"""reasons that an explanation tells"""


def _score(answer: str, compared: Mapping[tuple[str, str], Readings], absent: int) -> StageScore:
    """The share of its comparisons that an answer won; each run without an answer is one won."""
    shares, reasons, faults = [1.0] * absent, list[str](), list[str]()
    for pair, readings in compared.items():
        for reading in readings if answer in pair else ():
            share, said = reading.first_share, reading.preference.reason
            if share is None:
                faults.append(said)
                continue
            shares.append(share if answer == pair[0] else 1 - share)
            fate = "Drawn" if share == 0.5 else "Won" if shares[-1] > 0.5 else "Lost"
            side = "B" if (answer == pair[0]) == reading.swapped else "A"
            reasons += [f"{fate} as {side}: {said}"] if said else []
    if shares:
        told = f"Won {sum(shares):.3g} of {len(shares)} comparisons."
        why, share = " ".join((told, *reasons[:REASONS])), sum(shares) / len(shares)
        return StageScore(stage=Stage.ANSWER, score=share, justification=why)
    return failed_score(faults[0]) if faults else no_score("no other answer to compare")


SHOWN_CHARACTERS = 4_000
"""of a text without a verdict that is shown to the model again"""
REASON_CHARACTERS = 600


class ChatComparer:
    """A `Comparer` over a chat server."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.name = model.name
        self.characters = sight_of(model)
        """of two answers with their evidence; other comparers cut what they are given"""

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        """The model's verdict; asked for again, with what was wrong, while there is none."""
        messages = chain_messages(question, first, second, self.characters)
        last = ""

        def again(reply: str, fault: str) -> list[Message]:
            nonlocal last
            last = reply
            told = f"That reply cannot be used: {fault}. Write the whole comparison again."
            return [*messages, *correction(reply, told, SHOWN_CHARACTERS)]

        text, fault, used = await ask_until(self._model, messages, _require_verdict, again)
        if text is None:
            said = f"{self.name} named no winner in {TRIES} tries: {fault}"
            return Preference(None, said, text=last, usage=used)
        return _preference(text, first, second, used)


def _require_verdict(reply: Completion) -> str:
    """The reply's text, if it names a winner."""
    if verdict_of(reply.text) is not None:
        return reply.text
    if reply.stop_reason == "length":
        raise ValueError("it was cut off before its verdict; write less")
    raise ValueError("it does not end in <answer>[[A]]</answer> or <answer>[[B]]</answer>")


def _preference(text: str, first: str, second: str, usage: Usage) -> Preference:
    """Of a text that names a winner."""
    return Preference(verdict_of(text), reason_of(text, first, second), text=text, usage=usage)


def render_pair(question: str, first: str, second: str, characters: int) -> str:
    """Question and replies, fenced, with the judge's own tags disarmed; long replies are cut."""
    room = max(characters // 2, characters - min(len(first), len(second)))
    return fence(
        {
            "request": cut(question, QUESTION_CHARACTERS),
            "reply A": cut(without_tags(first), room),
            "reply B": cut(without_tags(second), room),
        }
    )


def reason_of(text: str, first: str, second: str) -> str:
    """The judge's evaluation, or else its solution, its text or the end of its thinking; and
    whether its quotes are real.
    """
    thought, said = split_thinking(text)
    plain = _BARE.sub("", re.sub(r"</?\w+>", " ", _ANSWER.sub("", said))).strip(" *\n")
    whole = _inside(said, "eval") or _inside(said, "solution") or plain
    why = " ".join((whole or thought[-REASON_CHARACTERS:]).split())
    shown = {"A": without_markers(without_tags(first)), "B": without_markers(without_tags(second))}
    quotes = [m for m in _CITED.finditer(said) if m[1].lower() == "quote" and m[3].strip()]
    invented = sum(_plain(m[3]) not in _plain(shown[m[2].upper()]) for m in quotes)
    told = f"({invented} of its {len(quotes)} quotes do not stand there.)" if invented else ""
    return " ".join(filter(None, (cut(why, REASON_CHARACTERS), told)))


def _plain(text: str) -> str:
    return " ".join(text.split()).strip("\"'“”… ")


def chain_messages(question: str, first: str, second: str, characters: int) -> list[Message]:
    """What a judge is asked; replies are cut to so many characters together."""
    return instruct("pairwise", render_pair(question, first, second, characters))


def verdict_end(text: str) -> int | None:
    """Where a judge's text ends, once it names a winner; None while it does not."""
    end = text.lower().rfind("</answer>")
    if end < 0 or verdict_of(text) is None:
        return None
    return end + len("</answer>")


OPTIONS = ("A", "B")
ASK = "Which reply is better, A or B?"


class ChoiceComparer:
    """A `Comparer` over a `ChoiceReader`."""

    def __init__(self, reader: ChoiceReader) -> None:
        self._series = ChoiceSeries(reader)
        self.name = reader.name

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        [(share, _)], usage = await self._series.weigh(
            "pairwise_choice",
            lambda characters: render_pair(question, first, second, characters),
            [ASK],
            OPTIONS,
        )
        reason = f"The model gives what it was shown first a probability of {share:.2f}."
        winner: Side | None = None if share == 0.5 else "A" if share > 0.5 else "B"
        return Preference(winner, reason, first_share=share, usage=usage)


CHAIN_TOKENS = 2048
"""that a judge may write of one pair"""


class ChainComparer:
    """A `Comparer` over a model that continues token ids."""

    def __init__(self, model: TokenPolicy, max_tokens: int = CHAIN_TOKENS) -> None:
        self._model = model
        self.name = model.name
        self._max_tokens = max_tokens

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        """What the model writes at temperature 0; the same pair is always read alike."""
        asked = partial(chain_messages, question, first, second)
        _, prefix = await fit_messages(self._model, asked, self._max_tokens)
        sampling = Sampling(max_tokens=self._max_tokens, temperature=0.0, seed=0)
        reply = await self._model.complete(prefix, sampling, verdict_end)
        if verdict_of(reply.text) is None:
            ended = "it was cut off" if reply.stop_reason == "length" else "it ended"
            reason = f"{self.name} named no winner: {ended} without a verdict."
            return Preference(None, reason, text=reply.text, usage=reply.usage)
        return _preference(reply.text, first, second, reply.usage)
