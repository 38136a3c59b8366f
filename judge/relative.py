"""The relative judge: all attempts of a group in one call, each scored against the others.

The attempts share one prompt: what they have in common is sent once, and each is shown under a
number, shuffled by a recorded seed; scores are returned by that number. A second pass shows them in
the opposite order, and the score is the mean of both. The idea is that of RULER (OpenPipe, 2025). A
model scores by writing JSON, or by its probabilities. If the judge fails, the group is unscored
with the reason, never 0.

Attempts are our runs, or conversations of any agent in the form of OpenAI's interface, with their
system prompt and tool definitions.

In place of other judges, its lists of scores become judgements of stages. A list holds the scores
of a group's attempts relative to one another, for one stage. Either there is one list for whole
runs, which stands for the answer, and whose score training spreads over the other stages; or each
stage has its own list, made in a call of its own from what the runs wrote and read in that stage.
It is one module, above 600 lines, since showing, reading and scaling belong to one judge.
"""

import asyncio
import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import fmean, pstdev
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from rubricem.judge.base import (
    CHARACTERS,
    FAILED,
    LEAST_TOOL_CHARACTERS,
    NOTHING,
    QUESTION_CHARACTERS,
    GroupText,
    cut_off,
    expected_value,
    group_text,
    instruct,
    is_written,
    outcome,
    prompt,
    stage_segments,
    unread,
)
from rubricem.memory.asking import Bill, ask_json, usage_of_error, weigh_options
from rubricem.memory.errors import JudgeError, SettingsError
from rubricem.memory.schema import (
    NO_CRITERIA,
    NO_USAGE,
    ChatModel,
    ChoiceReader,
    GroupJudgement,
    Judgement,
    Message,
    RubricBuffer,
    Stage,
    StageScore,
    Trajectory,
    TrajectoryGroup,
    Usage,
)
from rubricem.memory.text import cut, digest_of, fence, fill, fit

LARGE = 8
"""attempts beyond which judges are known to lose the overview"""
ALONE = "A lone attempt was scored by itself: there was nothing to hold it against."
MANY = f"{{shown}} attempts are many for one call: judges are steadier on groups of 4 to {LARGE}."
IDENTICAL = "All attempts are the same: one was scored, and its score is everyone's."


@dataclass(frozen=True, slots=True)
class Read:
    """A score in [0, 1] and an explanation for each attempt, in the order shown."""

    scores: tuple[tuple[float, str], ...]
    usage: Usage = NO_USAGE


class AttemptReader(Protocol):
    """Scores attempts against one another. Raises JudgeError or PolicyError if it cannot."""

    @property
    def name(self) -> str: ...

    @property
    def rubric_version(self) -> str:
        """Identifies the standards that it applies."""
        ...

    @property
    def characters(self) -> int:
        """Most characters of attempts that it can be shown at once."""
        ...

    async def read(self, question: str, text: GroupText, seed: int) -> Read:
        """Scores of the attempts in the text, which are numbered 1, 2, ... in order."""
        ...


@dataclass(frozen=True, slots=True)
class RelativeScores:
    """Scores in [0, 1] of one group, and how it was shown."""

    scores: tuple[StageScore, ...]
    """one for each trajectory, in order"""
    notes: tuple[str, ...] = ()
    """failures, limits of the scores, and how far they depend on the order shown"""
    usage: Usage = NO_USAGE
    """of all calls, failed ones included"""


Conversation = Sequence[Mapping[str, Any]]
"""messages in the form of OpenAI's interface: role, content, tool_calls"""
Pass = tuple[tuple[int, ...], Read]
_TASK = (
    "The attempts show one stage alone of work on the task below: its {stage}. Hold them to what "
    "that stage is for.\n\n{question}"
)


class RelativeJudge:
    """Judges groups as the stage judge does, with one reader; it uses no buffer.

    `passes`: 2 also shows each group in the opposite order. `by_stage`: each stage has a list of
    its own; otherwise one list is for whole runs, and stands for the answer.
    """

    def __init__(
        self, reader: AttemptReader, passes: int = 1, seed: int = 0, *, by_stage: bool = False
    ) -> None:
        if passes not in (1, 2):
            raise ValueError("a group is read once, or twice in opposite orders")
        self._reader = reader
        self.name = reader.name
        self._passes = passes
        self._seed = seed
        self._by_stage = by_stage

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """One judgement for each trajectory; the seed of its order is in the version.

        A judge that fails leaves the stage of its list unscored. The usage is the group's, since
        one call is about all runs.
        """
        seed, runs = self._seed + step, group.trajectories
        if self._by_stage:
            found = await asyncio.gather(*(self._of_stage(group, stage, seed) for stage in Stage))
        else:
            found = [await self.scores(group, seed)]
        # A stage that no list stands for has no criteria.
        lists = {s: [StageScore(stage=s, unscored_reason=NO_CRITERIA)] * len(runs) for s in Stage}
        lists |= {one.scores[0].stage: list(one.scores) for one in found if one.scores}
        listed = zip(
            (f"{stage}: " for stage in Stage) if self._by_stage else [""], found, strict=True
        )
        notes = [f"{before}{note}" for before, one in listed for note in one.notes]
        return GroupJudgement(
            judgements=tuple(
                Judgement(
                    trajectory_id=run.id,
                    judge=self.name,
                    rubric_version=f"{self._reader.rubric_version} seed {seed}",
                    stages=tuple(lists[stage][place] for stage in Stage),
                )
                for place, run in enumerate(runs)
            ),
            buffer=buffer,
            notes=tuple(notes),
            usage=sum((one.usage for one in found), NO_USAGE),
        )

    async def scores(self, group: TrajectoryGroup, seed: int = 0) -> RelativeScores:
        """A score of each trajectory's answer; raises nothing if the judge fails."""
        runs = group.trajectories
        return await self._of_runs(group.question, runs, unreadable(runs), seed, Stage.ANSWER)

    async def _of_runs(
        self,
        question: str,
        runs: Sequence[Trajectory],
        reasons: Sequence[str],
        seed: int,
        stage: Stage,
    ) -> RelativeScores:
        def text(places: Sequence[int]) -> GroupText:
            return group_text([runs[place] for place in places], self._reader.characters)

        said = [run.transcript() for run in runs]
        return await self._scores_of(question, said, reasons, text, seed, stage)

    async def scores_of_messages(
        self,
        conversations: Sequence[Conversation],
        tools: Sequence[Mapping[str, Any]] = (),
        seed: int = 0,
    ) -> RelativeScores:
        """The same for conversations in the form of OpenAI's interface, of any agent.

        Their common beginning, including the system prompt, is shown once, after the definitions of
        the `tools` they had. Raises SettingsError for anything that is no such conversation.
        """
        check_conversations(conversations)
        said = [json.dumps(one, sort_keys=True, default=str) for one in conversations]
        reasons = [""] * len(said)
        if not any(conversations):
            reasons = ["nothing was written"] * len(said)

        def text(places: Sequence[int]) -> GroupText:
            shown = [conversations[place] for place in places]
            return conversations_text(shown, tools, self._reader.characters)

        task = task_of(conversations[0]) if conversations else ""
        return await self._scores_of(task, said, reasons, text, seed, Stage.ANSWER)

    async def _scores_of(
        self,
        question: str,
        said: Sequence[str],
        reasons: Sequence[str],
        text: Callable[[Sequence[int]], GroupText],
        seed: int,
        stage: Stage,
    ) -> RelativeScores:
        """`said`: of each attempt all of it. `reasons`: why one is not to be read, or "". `text`:
        how the attempts at some places are shown together.
        """
        reasons = list(reasons)
        places = [i for i, reason in enumerate(reasons) if not reason]
        if not places:
            return _scores(stage, reasons, [], [], NO_USAGE)
        together: dict[str, list[int]] = {}
        for place in places:
            together.setdefault(said[place], []).append(place)
        # Those that say the same are shown once, and its score is everyone's.
        twins = list(together.values())
        read, faults, usage = await self._read(question, text([same[0] for same in twins]), seed)
        given = [
            {place: s for i, s in zip(order, one.scores, strict=True) for place in twins[i]}
            for order, one in read
        ]
        for place in places:
            reasons[place] = "" if given else f"{FAILED}: {faults[0]}"
        if given and len(twins) == 1:
            faults = [IDENTICAL if len(places) > 1 else ALONE, *faults]
        elif given and len(twins) > LARGE:
            faults = [MANY.format(shown=len(twins)), *faults]
        return _scores(stage, reasons, given, faults, usage)

    async def _of_stage(self, group: TrajectoryGroup, stage: Stage, seed: int) -> RelativeScores:
        """The runs' text in the stage, read as if it were everything they wrote.

        Runs that need no judge are not compared with.
        """
        known = [unread(trajectory, stage) for trajectory in group.trajectories]
        alone = [
            t.model_copy(update={"segments": tuple(stage_segments(t, stage))})
            for t, score in zip(group.trajectories, known, strict=True)
            if score is None
        ]
        question = _TASK.format(stage=stage.value, question=group.question)
        read = await self._of_runs(question, alone, [""] * len(alone), seed, stage)
        given = iter(read.scores)
        return replace(read, scores=tuple(score or next(given) for score in known))

    async def _read(
        self, question: str, text: GroupText, seed: int
    ) -> tuple[list[Pass], list[str], Usage]:
        """The passes that worked, the faults of those that did not, and the cost of all."""
        orders = orders_of(len(text.attempts), seed, self._passes)
        shown = (GroupText(text.shared, tuple(text.attempts[i] for i in o)) for o in orders)
        tasks = [self._reader.read(question, each, seed) for each in shown]
        passes, faults, usage = list[Pass](), list[str](), NO_USAGE
        for order, found in zip(orders, await asyncio.gather(*map(outcome, tasks)), strict=True):
            if isinstance(found, Read):
                passes.append((order, found))
                usage += found.usage
            else:
                faults.append(found.told())
                usage += usage_of_error(found)
        return passes, faults, usage


def unreadable(trajectories: Sequence[Trajectory]) -> list[str]:
    """For each one why it cannot be compared with others, or "".

    That is the case if it was cut off by others than the policy, or if none has any text. An empty
    one among others is simply the weakest.
    """
    if not any(is_written(trajectory, stage) for trajectory in trajectories for stage in Stage):
        return ["nothing was written"] * len(trajectories)
    return [cut_off(trajectory, Stage.ANSWER) for trajectory in trajectories]


def _scores(
    stage: Stage,
    reasons: Sequence[str],
    passes: Sequence[Mapping[int, tuple[float, str]]],
    notes: Sequence[str],
    usage: Usage,
) -> RelativeScores:
    """`passes`: the scores of each that counts, by index, in the order shown."""
    given = [[one[place] for one in passes if place in one] for place in range(len(reasons))]
    gaps = [abs(found[0][0] - found[1][0]) for found in given if len(found) == 2]
    scores = []
    for found, reason in zip(given, reasons, strict=True):
        numbers = [score for score, _ in found]
        scores.append(
            StageScore(
                stage=stage,
                score=fmean(numbers) if numbers else None,
                justification=found[0][1] if found else "",
                unscored_reason="" if numbers else reason,
                spread=pstdev(numbers) if len(numbers) > 1 else None,
            )
        )
    moved = [f"The order shown moved scores by {fmean(gaps):.2f}."] if gaps else []
    return RelativeScores(tuple(scores), (*notes, *moved), usage)


def orders_of(count: int, seed: int, passes: int) -> list[tuple[int, ...]]:
    """A shuffled order, and its opposite for a second pass; a single attempt has one order."""
    order = tuple(random.Random(seed).sample(range(count), count))
    return [order, order[::-1]][: passes if count > 1 else 1]


def check_conversations(conversations: Sequence[Conversation]) -> None:
    """Raises SettingsError for anything that is no message of such a conversation."""
    for number, conversation in enumerate(conversations, start=1):
        for place, message in enumerate(conversation, start=1):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise SettingsError(
                    f"Message {place} of conversation {number} has no role.",
                    'Give messages as {"role": "user", "content": "..."}.',
                )


def conversation_groups(
    rows: Sequence[Any],
) -> Iterator[tuple[list[int], list[Conversation], list[Mapping[str, Any]]]]:
    """The groups in rows of {"messages", "tools", "group"}: their indices, conversations, tools.

    Rows that name no group belong together if they begin with the same words, up to the first
    message that is not the system's or the user's. Raises SettingsError for anything that is no
    such row.
    """
    groups: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or not isinstance(row.get("messages"), list):
            raise SettingsError(
                f"Row {number + 1} holds no conversation.",
                'Write a line for each as {"messages": [...], "tools": [...]}.',
            )
        check_conversations([row["messages"]])
        named = row.get("group")
        key = f"named {named}" if named is not None else json.dumps(_opening(row["messages"]))
        groups.setdefault(key, []).append(number)
    for places in groups.values():
        told = (rows[place].get("tools") for place in places)
        tools: list[Mapping[str, Any]] = next(filter(None, told), [])
        yield places, [rows[place]["messages"] for place in places], tools


def _opening(conversation: Conversation) -> list[Mapping[str, Any]]:
    return list(takewhile(lambda m: m["role"] in ("system", "developer", "user"), conversation))


def task_of(conversation: Conversation) -> str:
    """The subject of a conversation: the user's last message before anybody answers."""
    opening = _opening(conversation)
    asked = [m for m in opening if m["role"] == "user"] or opening or list(conversation[:1])
    return cut(_content(asked[-1]), QUESTION_CHARACTERS) if asked else ""


def conversations_text(
    conversations: Sequence[Conversation], tools: Sequence[Mapping[str, Any]], characters: int
) -> GroupText:
    """The tools and common messages, then each one's rest, in this many characters.

    A single conversation shares nothing. Tool output is cut first.
    """
    length = 0
    for together in zip(*conversations, strict=False) if conversations[1:] else ():
        if any(message != together[0] for message in together[1:]):
            break
        length += 1
    offered = json.dumps(list(tools), ensure_ascii=False, default=str) if tools else ""
    each = (characters - len(offered)) // (len(conversations) + (length > 0))
    each = max(each, characters // (2 * len(conversations) + 2))
    begun = _conversation_text(conversations[0][:length], each) if length else ""
    shared = {"tools": cut(offered, characters // 4), "messages": begun}
    rests = (_conversation_text(one[length:], each) for one in conversations)
    return GroupText(
        fence({name: text for name, text in shared.items() if text}) if tools or begun else "",
        tuple(fence({"messages": rest}) if rest else NOTHING for rest in rests),
    )


def _conversation_text(messages: Conversation, characters: int) -> str:
    returned = [m["role"] in ("tool", "function") for m in messages]
    texts = [_message_text(m) for m in messages]
    own = sum(len(text) for text, tool in zip(texts, returned, strict=True) if not tool)
    each = max((characters - own) // max(sum(returned), 1), LEAST_TOOL_CHARACTERS)
    fitted = (cut(t, each) if tool else t for t, tool in zip(texts, returned, strict=True))
    return cut("\n".join(fitted), characters)


def _message_text(message: Mapping[str, Any]) -> str:
    named = f" {message['name']}" if message.get("name") else ""
    calls = [
        f"[calls {call['function'].get('name', '')}: {call['function'].get('arguments', '')}]"
        for call in message.get("tool_calls") or ()
        if isinstance(call, Mapping) and isinstance(call.get("function"), Mapping)
    ]
    return "\n".join(filter(None, (f"{message['role']}{named}: {_content(message)}", *calls)))


def _content(message: Mapping[str, Any]) -> str:
    """The text of a message; of its parts the texts, and of other parts their kind."""
    content = message.get("content")
    if not isinstance(content, list):
        return "" if content is None else str(content)
    parts = (part if isinstance(part, Mapping) else {"text": part} for part in content)
    return "\n".join(str(p.get("text") or f"({p.get('type', 'something')})") for p in parts)


ONE, TEN, HUNDRED = 1.5, 10.0, 100.0
"""the largest plain number that indicates a scale to 1, to 10 and to 100"""
_NUMBER = r"([+-]?\d+(?:\.\d+)?|[+-]?\.\d+)"
_FRACTION = re.compile(rf"{_NUMBER}\s*(?:/|out of|of)\s*{_NUMBER}", re.I)
_PERCENT = re.compile(rf"{_NUMBER}\s*%")
_ID = re.compile(r"\W*+(?:attempt|trajectory|id)?[\s_#-]*(\d+)\W*", re.I)


@dataclass(frozen=True, slots=True)
class Raw:
    """A number as written; `scaled`: it named its own scale."""

    value: float
    scaled: bool = False


def raw_score(value: Any) -> Raw:
    """Raises ValueError unless it is a finite number."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, str):
        return _read_form(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("the score must be a number from 0 to 1")
    return Raw(_finite(value))


def in_unit_range(scores: Sequence[Raw]) -> list[float]:
    """Scores of one group in [0, 1]. Raises ValueError if their scale cannot be inferred."""
    plain = [score.value for score in scores if not score.scaled]
    most = max(plain, default=0.0)
    if most > HUNDRED:
        raise ValueError("the scores must be numbers from 0 to 1")
    scale = 1.0 if most <= ONE else TEN if most <= TEN else HUNDRED
    if scale > 1 and any(0 < value < 1 for value in plain):
        raise ValueError("the scores are on different scales; each must be from 0 to 1")
    return [min(max(s.value if s.scaled else s.value / scale, 0.0), 1.0) for s in scores]


def plain_id(value: Any) -> str:
    """An attempt's number however it was written; text without a number stays as it is."""
    match = _ID.fullmatch(str(value))
    # Thousands of digits are refused by `int`, and no attempt's number.
    return str(int(match[1])) if match and len(match[1]) < 100 else str(value)


class GivenScore(BaseModel):
    """One entry of a reply."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    id: Annotated[str, BeforeValidator(plain_id), WithJsonSchema({"type": "string"})]
    explanation: Annotated[str, BeforeValidator(lambda value: value or "")] = ""
    score: Annotated[Raw, BeforeValidator(raw_score), WithJsonSchema({"type": "number"})] = Field()


class GivenScores(BaseModel):
    """The reply: exactly one entry for each attempt, on one scale."""

    scores: list[GivenScore]


def id_fault(given: Sequence[str], wanted: Sequence[str]) -> str:
    """What is wrong with the ids of a reply, or ""."""
    if sorted(given) == sorted(wanted):
        return ""
    missing = [name for name in wanted if name not in given]
    twice = sorted({name for name in given if given.count(name) > 1})
    foreign = sorted(set(given) - set(wanted))
    parts = {"missing": missing, "more than once": twice, "unknown": foreign}
    told = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
    return f"it needs exactly {len(wanted)} entries, one for each id, and has {len(given)} ({told})"


def _read_form(text: str) -> Raw:
    if match := _FRACTION.fullmatch(text):
        value, scale = map(float, match.groups())
        if scale <= 0:
            raise ValueError(f"{text!r} is no score")
        return Raw(_finite(value / scale), scaled=True)
    if match := _PERCENT.fullmatch(text):
        return Raw(_finite(float(match.group(1)) / 100), scaled=True)
    try:
        return Raw(_finite(float(text)))
    except ValueError:
        raise ValueError("the score must be a number from 0 to 1") from None


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("the score must be a finite number from 0 to 1")
    return float(value)


DIGITS = tuple("0123456789")
CHARACTERS_A_TOKEN = 3
ASKED_TOKENS = 200
"""reserved for the question about one attempt"""


class ChatAttemptReader:
    """An `AttemptReader` over a chat server: one call for the whole group."""

    def __init__(
        self,
        model: ChatModel,
        rubric: str = "",
    ) -> None:
        self._model = model
        self.name = model.name
        self._rubric = rubric.strip() or prompt("relative_rubric")
        self.characters = CHARACTERS

    @property
    def rubric_version(self) -> str:
        return version_of(self._rubric)

    async def read(self, question: str, text: GroupText, seed: int) -> Read:
        names = [str(number) for number in range(1, len(text.attempts) + 1)]

        def check(reply: GivenScores) -> None:
            if fault := id_fault([given.id for given in reply.scores], names):
                raise ValueError(fault)
            in_unit_range([given.score for given in reply.scores])

        system = fill(prompt("relative"), {"rubric": self._rubric})
        messages = [Message("system", system), Message("user", render_attempts(question, text))]
        reply, usage = await ask_json(self._model, messages, GivenScores, check=check, seed=seed)
        ordered = sorted(reply.scores, key=lambda given: int(given.id))
        values = in_unit_range([given.score for given in ordered])
        said = (given.explanation for given in ordered)
        return Read(tuple(zip(values, said, strict=True)), usage)


class ChoiceAttemptReader:
    """An `AttemptReader` over probabilities: the expected grade of each attempt, 0 to 9, over 9.

    All attempts are one prefix that stays in the model's cache. It explains nothing.
    """

    def __init__(self, reader: ChoiceReader) -> None:
        self._reader = reader
        self.name = reader.name
        self.characters = reader.context_tokens * CHARACTERS_A_TOKEN

    @property
    def rubric_version(self) -> str:
        return version_of(prompt("relative_choice"))

    async def read(self, question: str, text: GroupText, seed: int) -> Read:
        before = await self._fit(question, text)
        scores = list[tuple[float, str]]()
        with Bill() as bill:
            for number in range(1, len(text.attempts) + 1):
                asked = f"{before}\n\nThe grade of attempt {number}, from 0 to 9?"
                messages = instruct("relative_choice", asked)
                chances, used = await weigh_options(self._reader, messages, DIGITS)
                scores.append((expected_value(chances) / (len(DIGITS) - 1), ""))
                bill.usage += used
        return Read(tuple(scores), bill.usage)

    async def _fit(self, question: str, whole: GroupText) -> str:
        """All attempts, cut equally until they leave room. Raises JudgeError if they never do."""

        def text(longest: int) -> str:
            attempts = tuple(cut(attempt, longest) for attempt in whole.attempts)
            return render_attempts(question, GroupText(cut(whole.shared, longest), attempts))

        longest, _ = await fit(
            lambda longest: self._reader.render(instruct("relative_choice", text(longest))),
            self._reader.context_tokens - ASKED_TOKENS,
            max(map(len, (whole.shared, *whole.attempts))),
            JudgeError(
                "this many attempts do not fit into the judge's context",
                "Raise context_tokens, judge smaller groups, or judge with a server's model.",
            ),
            least=60,
        )
        return text(longest)


def version_of(rubric: str) -> str:
    """Identifies a text of standards, as stored and looked up."""
    return f"relative-{digest_of(rubric, 8)}"


def render_attempts(question: str, text: GroupText) -> str:
    """The task, the common beginning, then the attempts under their numbers."""
    parts = [fence({"task": question})]
    if text.shared:
        parts.append(f"What all attempts have in common:\n{text.shared}")
    numbered = enumerate(text.attempts, start=1)
    return "\n\n".join([*parts, *(f"Attempt {number}:\n{said}" for number, said in numbered)])
