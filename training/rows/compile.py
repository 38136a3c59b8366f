"""Compiles collected runs to rows: with advantages if they were judged, for imitation if traces.

Free rollouts that were judged give policy rows and rows of their reflections, in the ids that were
sampled; forced traces and a teacher's rollouts give rows for imitation, which need a tokeniser.

A forced trace is imitated in the form of free mode: the question that the runner repeats is left
out, each later turn begins with a thought (which sources are new), and the mark before an exact
answer is removed. A trace whose turns free mode would still refuse is dropped with the reason. The
loss covers everything that the policy has to write, but no tool output and no rejected attempt.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby, islice, takewhile
from pathlib import Path
from typing import Literal

from pydantic import Field

from rubricem.agent.learning.scoring import checked_by_rules, support_of
from rubricem.agent.models.opening import EmbeddedChoice
from rubricem.agent.models.policy import Renders, end_of_turn, response_ids
from rubricem.agent.reports.cited import Cited, cited_answer
from rubricem.agent.research.free import system_prompt, user_message
from rubricem.agent.settings.door import is_embedded
from rubricem.agent.transcript.question import Ask
from rubricem.agent.transcript.scaffold import (
    EXACT_LINE,
    Rule,
    find_violation,
    is_sent_back,
    parse,
    template,
    tool_error,
    turn_faults,
)
from rubricem.agent.weights.catalogue import DEFAULT_MODEL
from rubricem.agent.weights.store import WeightsStore
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import ALTERED, value_of, write_atomically
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Decoding,
    Judgement,
    Message,
    ReflectionCandidate,
    Status,
    Trajectory,
    TrajectoryGroup,
    Value,
    Versioned,
)
from rubricem.training.collect.directory import GroupRecord, Manifest, RunDirectory
from rubricem.training.rows.credit import (
    SS_GRPO,
    Compiled,
    RowRule,
    policy_rows,
    reflection_rows,
    separate_rows,
)
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import (
    gguf_vocabulary,
    is_folder,
    read_tokeniser,
    without_scaffold,
)

SWITCHED = (Rule.CITATION, Rule.SUPPORT, Rule.ALL_SUPPORT)
"""the rules that are off until they are named"""


class ChatMessage(Value):
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Demonstration:
    system: str
    user: str
    turns: tuple[ChatMessage, ...]
    """what the policy wrote, and what tools and runner put between; each is encoded as a whole"""

    @classmethod
    def of(cls, trajectory: Trajectory) -> "Demonstration":
        bare = without_scaffold(trajectory)
        kept = [segment for segment in bare.segments if segment.kept]
        opening = list(takewhile(lambda s: s.author is not Author.POLICY, kept))
        said = ((s.text, s.author is Author.POLICY) for s in kept[len(opening) :])
        return cls(bare.system, "".join(s.text for s in opening), tuple(_turns(said)))

    def opening(self) -> tuple[ChatMessage, ...]:
        system = ChatMessage(role="system", content=self.system)
        return system, ChatMessage(role="user", content=self.user)


TOOL, OWN = "tool", "assistant"
_THOUGHT = re.compile(r"\A\s*<think>\s*(.*?)\s*</think>\s*", re.S)


def _turns(said: Iterable[tuple[str, bool]]) -> Iterator[ChatMessage]:
    """One message a turn, in the form in which chat templates leave it as it is.

    `said`: texts, with whether the policy wrote them. Qwen3's template writes the thinking that a
    turn begins with on lines of its own.
    """
    for own, side in groupby((each for each in said if each[0]), key=lambda each: each[1]):
        text = "".join(part for part, _ in side)
        plain = _THOUGHT.sub(r"<think>\n\1\n</think>\n\n", text) if own else text.strip()
        yield ChatMessage(role=OWN if own else TOOL, content=plain)


def demonstrate(
    trajectory: Trajectory, stricter: Collection[Rule] = (), system: str | None = None
) -> Demonstration | str:
    """The demonstration of a finished trajectory that breaks no rule, or why there is none.

    `stricter`: those of `SWITCHED` that count; `system`: the prompt of a re-cast trace.
    """
    if trajectory.status is not Status.FINISHED:
        return f"it is {trajectory.status}, not finished"
    if broken := find_violation(trajectory, citations=Rule.CITATION in stricter):
        return f"rejected by the rule {broken.rule}"
    if rule := _unsupported(trajectory, stricter):
        return f"rejected by the rule {rule}"
    if trajectory.decoding is Decoding.FREE:
        return Demonstration.of(trajectory)
    found = recast(trajectory, system)
    own = (turn.content for turn in found.turns if turn.role == OWN)
    for number, text in enumerate(own, start=1):
        # One that its review sent back ends there, as free mode's do.
        faults = [] if is_sent_back(parse(text)) else turn_faults(text, number)
        if faults:
            return f"free mode refuses it: turn {number}: {faults[0]}"
    return found


Kind = Literal["run", "reflection"]


class Standing(Value):
    """How a run came out, as far as it is known: columns to choose by."""

    question_id: str = ""
    score: float | None = None
    """the judge's of the answer, or the reflection's"""
    value: float | None = None
    """the return of the first stage, by which the best of a group is found"""
    support: float | None = None
    """share of the answer's claims that their sources support, by the rules or as it was checked"""
    stages: tuple[float | None, ...] = ()
    """scores of plan, research, review and answer"""


class ExportedConversation(Standing, Versioned):
    """One accepted trajectory or reflection as messages, in the form that trainers read."""

    schema_version: int = 3
    id: str
    kind: Kind = "run"
    trajectory: str
    question: str = ""
    messages: tuple[ChatMessage, ...] = Field(min_length=3)
    """system and user, then assistant and tool by turns"""
    loss_mask: tuple[int, ...]
    decoding: Decoding
    policy: str
    policy_version: str

    @classmethod
    def of(
        cls, trajectory: Trajectory, stricter: Collection[Rule] = (), system: str | None = None
    ) -> "ExportedConversation | str":
        """That of a trajectory, or why it is not to be imitated, as `demonstrate` says."""
        shown = demonstrate(trajectory, stricter, system)
        if isinstance(shown, str):
            return shown
        return cls.of_demonstration(trajectory, f"{trajectory.id}:conversation", shown, "run")

    @classmethod
    def of_demonstration(
        cls, trajectory: Trajectory, name: str, shown: Demonstration, kind: Kind
    ) -> "ExportedConversation":
        messages = (*shown.opening(), *shown.turns)
        return cls(
            id=name, kind=kind, trajectory=trajectory.id, question=trajectory.question,
            messages=messages, loss_mask=tuple(int(m.role == OWN) for m in messages),
            decoding=trajectory.decoding, policy=trajectory.policy,
            policy_version=trajectory.policy_version,
        )  # fmt: skip


def accepted_reflections(run: RunDirectory) -> Iterator[tuple[str, ReflectionCandidate]]:
    """Those that entered the bank, with a name for each."""
    return ((f"{c.trajectory_id}:reflection", c) for c in run.reflections() if c.accepted)


def demonstrated_reflection(candidate: ReflectionCandidate) -> Demonstration:
    """A reflection as it is imitated: the run that it read is the user's message."""
    read, written = (segment.text for segment in candidate.segments)
    return Demonstration(template("reflect"), read, tuple(_turns([(written, True)])))


def free_prompt(manifest: Manifest) -> str:
    """What a policy is told in free mode under the settings that a run's traces were made with."""
    short = manifest.settings.get("system_prompt") == "short"
    return system_prompt(manifest.tool_calls, short=short)


def _unsupported(trajectory: Trajectory, stricter: Collection[Rule]) -> Rule | None:
    """The rule on support that a trajectory breaks; claims are taken as checked, else by rules."""
    if not {Rule.SUPPORT, Rule.ALL_SUPPORT} & set(stricter):
        return None
    checked = checked_by_rules(trajectory)
    cited = (piece for piece in cited_answer(checked).pieces if isinstance(piece, Cited))
    held = [any(c.verdict == "supported" for c in piece.citations) for piece in cited]
    if Rule.SUPPORT in stricter and not any(held):
        return Rule.SUPPORT
    # What nobody could check lowers no score, but is nothing to imitate, either.
    whole = all(held) and support_of(checked) == 1
    return Rule.ALL_SUPPORT if Rule.ALL_SUPPORT in stricter and not whole else None


_EVALUATION = "<state_evaluation>"
_FOUND = re.compile(r"^\[(\d+)\] .* \((S\d+)\)$", re.M)


def recast(trajectory: Trajectory, system: str | None = None) -> Demonstration:
    """A forced trace as free mode writes it, under a system prompt as `demonstrate` takes it."""
    turns: list[tuple[str, str]] = []
    body = (s for s in trajectory.segments if s.kept and s.stage is not None)
    for _, group in groupby(body, key=lambda segment: segment.turn):
        segments = list(group)
        text = "".join(s.text for s in segments if s.author is not Author.TOOL).strip()
        if turns:
            text = _with_thought(text, turns[-1][1])
        if trajectory.answer_format is AnswerFormat.EXACT:
            text = text.replace(f"\n{EXACT_LINE}", "\n")
        output = "".join(s.text for s in segments if s.author is Author.TOOL)
        turns.append((text, output and f"\n{output}"))
    user = user_message(Ask(trajectory.question, trajectory.answer_format))
    sides = [(said, own) for turn in turns for said, own in zip(turn, (True, False), strict=True)]
    return Demonstration(system or system_prompt(10), user, tuple(_turns(sides)))


def _with_thought(written: str, tool_output: str) -> str:
    """A later turn without the repeated question, begun by what the tool output changes."""
    _, tag, rest = written.partition(_EVALUATION)
    found = _FOUND.findall(rest.partition("</state_evaluation>")[0])
    if found:
        thought = " ".join(f"{source} answers [{number}]." for number, source in found)
    elif tool_error(tool_output) is not None:
        thought = "The search failed."
    else:
        thought = "The search brought nothing new."
    return f"<think>{thought}</think>\n{tag}{rest}"


async def imitation_row(
    trajectory: Trajectory,
    tokeniser: Renders,
    stricter: Collection[Rule] = (),
    system: str | None = None,
) -> TrainRow | str:
    """The row of a trajectory's demonstration, or why there is none, as `demonstrate` has it.

    The policy learns to end its turns, too.
    """
    shown = demonstrate(trajectory, stricter, system)
    if isinstance(shown, str):
        return shown
    return await demonstration_row(trajectory.id, trajectory.policy_version, shown, tokeniser)


async def demonstration_row(
    name: str, version: str, shown: Demonstration, tokeniser: Renders
) -> TrainRow | str:
    """The row of what is imitated under this name."""
    ids = list(
        await tokeniser.render([Message("system", shown.system), Message("user", shown.user)])
    )
    prompt, end = len(ids), await end_of_turn(tokeniser)
    mask = [0] * prompt
    for turn in shown.turns:
        if turn.role == OWN:
            written = await tokeniser.encode(turn.content)
            mask += [1] * len(written)
        else:  # begun by the end of the turn before
            written = await response_ids(tokeniser, turn.content)
            mask += [1] * len(end) + [0] * (len(written) - len(end))
        ids += written
    if shown.turns and shown.turns[-1].role == OWN:
        ids += end
        mask += [1] * len(end)
    if not any(mask):
        return "nothing of it has ids"
    return TrainRow.imitation(name, version, ids, prompt, mask)


NO_MODEL = "the model to train, in whose ids it is written, is not named"
NOTHING_LEFT_OUT: Mapping[str, str] = {}
Results = AsyncGenerator[TrainRow | str, None]
"""rows, and a reason in the place of each sequence that gives none"""


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """A group of a run; what is judged and what is not stand in the order of the trajectories."""

    record: GroupRecord
    rollouts: TrajectoryGroup
    judgements: tuple[Judgement | None, ...]


def judged_groups(run: RunDirectory) -> Iterator[JudgedGroup]:
    """The groups of the finished steps, in order, the rollouts of one in memory at a time.

    Raises StoreError where they do not fit the trajectories and judgements.
    """
    read, judged = run.trajectories(), {one.trajectory_id: one for one in run.judgements()}
    for record in run.groups():
        members = {one.id: one for one in islice(read, len(record.trajectories))}
        if lacking := [name for name in record.trajectories if name not in members]:
            path = run.folder / "trajectories.jsonl"
            raise StoreError(f"{path} lacks the trajectory {lacking[0]} of a group.", ALTERED)
        given = tuple(judged.pop(name, None) for name in record.trajectories)
        yield JudgedGroup(record, record.group(members), given)
    if judged:
        path = run.folder / "judgements.jsonl"
        raise StoreError(f"{path} judges {next(iter(judged))}, which is in no group.", ALTERED)


async def each_row(
    run: RunDirectory, tokeniser: Renders | None = None, rule: RowRule = SS_GRPO,
    stricter: Collection[Rule] = (), imitate: bool = False,
    left_out: Mapping[str, str] = NOTHING_LEFT_OUT,
) -> Results:  # fmt: skip
    """The rows of the finished steps, one group in memory at a time.

    `imitate`: the accepted rollouts are imitated, whoever wrote them, and the reflections that were
    accepted; `stricter` is for these, and `left_out` has why some trajectories are not.
    """
    manifest = run.manifest()
    version = manifest.policy_version
    if imitate or manifest.imitated:
        for trace in run.trajectories():
            if tokeniser is None or trace.id in left_out:
                yield left_out.get(trace.id, NO_MODEL)
            else:
                yield await imitation_row(trace, tokeniser, stricter, free_prompt(manifest))
        for name, one in accepted_reflections(run):
            if tokeniser is not None:
                yield await demonstration_row(
                    name, version, demonstrated_reflection(one), tokeniser
                )
        return
    for judged in judged_groups(run):
        of_group = policy_rows(judged.rollouts, judged.judgements, rule, name=judged.record.id)
        for found in of_group.each():
            yield found
    for _, written in groupby(run.reflections(), key=lambda candidate: candidate.trajectory_id):
        for found in reflection_rows([*written], policy_version=version).each():
            yield found


def write_rows(path: Path, rows: Iterable[Value]) -> None:
    write_atomically(path, (row.model_dump_json() + "\n" for row in rows))


def conversations_in(path: Path) -> list[ExportedConversation]:
    """Those of a file that `export --to sft` wrote; none of any other. Raises StoreError."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    if not lines or b'"messages"' not in lines[0]:
        return []
    return [value_of(line, ExportedConversation, ALTERED, str(path)) for line in lines]


async def conversation_row(one: ExportedConversation, tokeniser: Renders) -> TrainRow | str:
    """The row of a conversation, whose reflections are one turn."""
    system, user, *said = one.messages
    parts = _turns((message.content, message.role == OWN) for message in said)
    shown = Demonstration(system.content, user.content, tuple(parts))
    name = one.trajectory if one.kind == "run" else one.id
    return await demonstration_row(name, one.policy_version, shown, tokeniser)


def _encoded(found: TrainRow | str, vocabulary: str) -> TrainRow | str:
    """What is imitated is of the vocabulary of this hash."""
    if isinstance(found, str) or found.objective != "sft":
        return found
    return found.model_copy(update={"tokenizer": vocabulary})


async def compile_rows(
    path: Path, model: str, rule: RowRule, stricter: Collection[Rule] = (), *,
    imitate: bool = False, weights_dir: Path | None = None,
) -> Compiled | None:  # fmt: skip
    """Rows of a run, whatever was exported into it, or of conversations; None: it holds rows."""
    if imitate and (talks := conversations_in(path)):
        async with open_tokeniser(model, weights_dir) as (tokeniser, vocabulary):
            return separate_rows(
                [_encoded(await conversation_row(one, tokeniser), vocabulary) for one in talks]
            )
    if not (run := RunDirectory(path)).exists:
        return None
    encoded = each_encoded(run, model, rule, stricter, imitate, weights_dir)
    return separate_rows([found async for found in encoded])


async def each_encoded(
    run: RunDirectory, model: str | None, rule: RowRule, stricter: Collection[Rule],
    imitate: bool = False, weights_dir: Path | None = None,
    left_out: Mapping[str, str] = NOTHING_LEFT_OUT,
) -> Results:  # fmt: skip
    """As `each_row`, in the ids of a model; None: the embedded one that wrote the run, if any."""
    manifest, kept = run.manifest(), run.manifest().settings
    known = (imitate or manifest.imitated) and (model or not kept.get("base_url"))
    named = model or kept.get("model") or DEFAULT_MODEL
    opening = open_tokeniser(named, weights_dir) if known else nullcontext((None, ""))
    async with opening as (tokeniser, vocabulary):
        async for found in each_row(run, tokeniser, rule, stricter, imitate, left_out):
            yield _encoded(found, vocabulary)


@asynccontextmanager
async def open_tokeniser(
    model: str, weights_dir: Path | None = None
) -> AsyncIterator[tuple[Renders, str]]:
    """The tokeniser of a model, embedded or a folder, and its vocabulary's hash."""
    if is_folder(model):
        own = await asyncio.to_thread(read_tokeniser, Path(model).expanduser())
        yield own, own.vocabulary
        return
    if not is_embedded(model):
        raise SettingsError(
            f"{model!r} is no embedded model.",
            "Name the one to train: 0.5b, a GGUF file, or a folder with its own tokenizer.",
        )
    async with EmbeddedChoice(model, weights_dir).open_tokens() as embedded:
        files = await WeightsStore(weights_dir).model_files(model)
        yield embedded, await asyncio.to_thread(gguf_vocabulary, files.path)
