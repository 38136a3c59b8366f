"""The relative judge: all attempts of a group in one call, each scored against the others.

The attempts share one prompt: what they found, or conversations have in common, is sent once, and
each is shown under a number, in an order shuffled by a recorded seed; scores are returned by that
number. This is RULER (OpenPipe, 2025). Each group is shown once, as there: a second showing in the
opposite order would double the price of a judge whose scores only rank, and scores of two calls are
on no common scale, so what a small context cannot hold is cut. A model scores by writing JSON, or
by its probabilities. If the judge fails, the group is unscored with the reason, never 0.

Attempts are our runs, or conversations of any agent in the form of OpenAI's interface, with their
system prompt and tool definitions. The score of a run stands for its answer; training spreads it
over the other stages.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol

from rubricem.judge.base import (
    BYTES_A_TOKEN,
    LEAST_TOOL_CHARACTERS,
    QUESTION_CHARACTERS,
    answer_judgement,
    cut_off,
    failed_score,
    is_written,
    no_score,
    outcome,
    prompt,
    sight_of,
)
from rubricem.judge.evidence import show
from rubricem.judge.readers import ChoiceSeries, Score, on_scale, scale_of
from rubricem.memory.asking import ReplyForm, Valid, ask_entries, usage_of_error
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import (
    NO_USAGE,
    ChatModel,
    ChoiceReader,
    GroupJudgement,
    Message,
    RubricBuffer,
    Stage,
    StageScore,
    Trajectory,
    TrajectoryGroup,
    Usage,
)
from rubricem.memory.text import cut, digest_of, fence, fill

ALONE = "A lone attempt was scored by itself: there was nothing to hold it against."
IDENTICAL = "All attempts are the same: one was scored, and its score is everyone's."


NOTHING = "(nothing beyond what is shared)"


@dataclass(frozen=True, slots=True)
class GroupText:
    """The shared beginning, "" if there is none, and one text for each attempt."""

    shared: str
    attempts: tuple[str, ...]
    passages: str = ""
    """what they found, each once; "" if they show it themselves"""


@dataclass(frozen=True, slots=True)
class Read:
    """For each attempt, in the order shown, a score in [0, 1] and an explanation, or None."""

    scores: tuple[tuple[float, str] | None, ...]
    usage: Usage = NO_USAGE
    fault: str = ""
    """why some are None"""


class AttemptReader(Protocol):
    """Scores attempts against one another. Raises JudgeError or PolicyError if it cannot."""

    name: str
    rubric_version: str
    """identifies the standards that it applies"""
    characters: int
    """most characters of attempts that it can be shown at once"""

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


class RelativeJudge:
    """Judges groups as the stage judge does, with one reader; it uses no buffer."""

    def __init__(self, reader: AttemptReader, seed: int = 0, *, shuffled: bool = True) -> None:
        """`shuffled`: whether attempts are shown in an order drawn by the seed, not as given."""
        self._reader, self._shuffled = reader, shuffled
        self.name = reader.name
        self._seed = seed

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """One judgement for each trajectory; the seed of its order is in the version.

        A judge that fails leaves answers unscored. The usage is the group's, since one call is
        about all runs.
        """
        seed = self._seed + step
        found = await self.scores(group, seed)
        version = f"{self._reader.rubric_version} seed {seed}"
        return GroupJudgement(
            judgements=tuple(
                answer_judgement(run, self.name, score, version)
                for run, score in zip(group.trajectories, found.scores, strict=True)
            ),
            buffer=buffer,
            notes=found.notes,
            usage=found.usage,
        )

    async def scores(self, group: TrajectoryGroup, seed: int = 0) -> RelativeScores:
        """A score of each trajectory's answer; raises nothing if the judge fails."""
        runs = group.trajectories

        def text(places: Sequence[int]) -> GroupText:
            shown = show([runs[place] for place in places], self._reader.characters)
            read = zip(shown.texts, shown.notes, strict=True)
            attempts = tuple(f"{attempt}\n{note}".rstrip() for attempt, note in read)
            return GroupText("", attempts, shown.passages)

        said = [run.transcript() for run in runs]
        return await self._scores_of(group.question, said, unreadable(runs), text, seed)

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
        check_conversations(dict(enumerate(conversations, start=1)))
        said = [json.dumps(one, sort_keys=True, default=str) for one in conversations]
        reasons = [""] * len(said)
        if not any(conversations):
            reasons = ["nothing was written"] * len(said)

        def text(places: Sequence[int]) -> GroupText:
            shown = [conversations[place] for place in places]
            return conversations_text(shown, tools, self._reader.characters)

        task = task_of(conversations[0]) if conversations else ""
        return await self._scores_of(task, said, reasons, text, seed)

    async def _scores_of(
        self,
        question: str,
        said: Sequence[str],
        reasons: Sequence[str],
        text: Callable[[Sequence[int]], GroupText],
        seed: int,
    ) -> RelativeScores:
        """`said`: of each attempt all of it. `reasons`: why one is not to be read, or "". `text`:
        how the attempts at some places are shown together.
        """
        scores = [no_score(reason) for reason in reasons]
        together: dict[str, list[int]] = {}
        for place, reason in enumerate(reasons):
            if not reason:
                together.setdefault(said[place], []).append(place)
        if not together:
            return RelativeScores(tuple(scores))
        # Those that say the same are shown once, and its score is everyone's.
        twins = list(together.values())
        count = len(twins)
        order = random.Random(seed).sample(range(count), count) if self._shuffled else range(count)
        read = await outcome(self._reader.read(question, text([twins[i][0] for i in order]), seed))
        if not isinstance(read, Read):
            read = Read((None,) * count, usage_of_error(read), read.told())
        for i, given in zip(order, read.scores, strict=True):
            told = failed_score(read.fault)
            if given:
                told = StageScore(stage=Stage.ANSWER, score=given[0], justification=given[1])
            for place in twins[i]:
                scores[place] = told
        notes = [read.fault] if None in read.scores else []
        if count == 1 and read.scores[0]:
            notes.append(IDENTICAL if len(twins[0]) > 1 else ALONE)
        return RelativeScores(tuple(scores), tuple(notes), read.usage)


def unreadable(trajectories: Sequence[Trajectory]) -> list[str]:
    """For each one why it cannot be compared with others, or "".

    That is the case if it was cut off by others than the policy, or if none has any text. An empty
    one among others is simply the weakest.
    """
    if not any(is_written(trajectory, stage) for trajectory in trajectories for stage in Stage):
        return ["nothing was written"] * len(trajectories)
    return [cut_off(trajectory, Stage.ANSWER) for trajectory in trajectories]


def check_conversations(conversations: Mapping[int, Conversation]) -> None:
    """Raises SettingsError for anything that is no message of such a conversation.

    By their numbers, from 1 on, or their lines in a file.
    """
    for number, conversation in conversations.items():
        for place, message in enumerate(conversation, start=1):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise SettingsError(
                    f"Message {place} of conversation {number} has no role.",
                    'Give messages as {"role": "user", "content": "..."}.',
                )


def conversation_groups(
    rows: Mapping[int, Any],
) -> Iterator[tuple[list[int], list[Conversation], list[Mapping[str, Any]]]]:
    """The groups in rows of {"messages", "tools", "group"}: their lines, conversations, tools.

    Rows that name no group belong together if they begin with the same words, up to the first
    message that is not the system's or the user's. Raises SettingsError for anything that is no
    such row.
    """
    groups: dict[str, list[int]] = {}
    for number, row in rows.items():
        if not isinstance(row, Mapping) or not isinstance(row.get("messages"), list):
            raise SettingsError(
                f"Line {number} holds no conversation.",
                'Write a line for each as {"messages": [...], "tools": [...]}.',
            )
        check_conversations({number: row["messages"]})
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


class GivenScore(ReplyForm):
    """One entry of a reply, under our names or RULER's."""

    id: str
    explanation: str = ""
    score: Score


class GivenScores(ReplyForm):
    """The reply: one entry for each attempt."""

    scores: Valid[GivenScore]


DIGITS = tuple("0123456789")


class ChatAttemptReader:
    """An `AttemptReader` over a chat server: one call for the whole group."""

    def __init__(self, model: ChatModel, rubric: str = "") -> None:
        self._model = model
        self.characters = sight_of(model)
        self.name = model.name
        self._rubric = rubric.strip() or prompt("relative_rubric")
        self.rubric_version = version_of(self._rubric)

    async def read(self, question: str, text: GroupText, seed: int) -> Read:
        names = [str(number) for number in range(1, len(text.attempts) + 1)]
        system = fill(prompt("relative"), {"rubric": self._rubric})
        messages = [Message("system", system), Message("user", render_attempts(question, text))]
        given = await ask_entries(
            self._model,
            messages,
            GivenScores,
            names,
            seed=seed,
            check=lambda entries: scale_of([entry.score for entry in entries]),
        )
        scale = scale_of([entry.score for entry in given.found if entry])
        read = ((on_scale(e.score, scale), e.explanation) if e else None for e in given.found)
        return Read(tuple(read), given.usage, given.fault)


class ChoiceAttemptReader:
    """An `AttemptReader` over probabilities: the expected grade of each attempt, 0 to 9, over 9.

    It explains nothing.
    """

    def __init__(self, reader: ChoiceReader) -> None:
        self._series = ChoiceSeries(reader)
        self.name = reader.name
        self.characters = reader.context_tokens * BYTES_A_TOKEN
        self.rubric_version = version_of(prompt("relative_choice"))

    async def read(self, question: str, text: GroupText, seed: int) -> Read:
        parts = len(text.attempts) + bool(text.shared) + bool(text.passages)

        def shown(characters: int) -> str:
            each = characters // parts
            attempts = tuple(cut(attempt, each) for attempt in text.attempts)
            shared, passages = cut(text.shared, each), cut(text.passages, each)
            return render_attempts(question, GroupText(shared, attempts, passages))

        numbers = range(1, len(text.attempts) + 1)
        grades, usage = await self._series.weigh(
            "relative_choice",
            shown,
            [f"The grade of attempt {number}, from 0 to 9?" for number in numbers],
            DIGITS,
            "this many attempts fill",
        )
        expected = (sum(grade * chance for grade, chance in enumerate(each)) for each in grades)
        return Read(tuple((value / (len(DIGITS) - 1), "") for value in expected), usage)


def version_of(rubric: str) -> str:
    """Identifies a text of standards, as stored and looked up."""
    return f"relative-{digest_of(rubric, 8)}"


def render_attempts(question: str, text: GroupText) -> str:
    """The task, what was found, the common beginning, then the attempts under their numbers."""
    parts = [fence({"task": question}), *([text.passages] if text.passages else [])]
    if text.shared:
        parts.append(f"What all attempts have in common:\n{text.shared}")
    numbered = enumerate(text.attempts, start=1)
    return "\n\n".join([*parts, *(f"Attempt {number}:\n{said}" for number, said in numbered)])
