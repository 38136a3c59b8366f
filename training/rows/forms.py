"""What a collecting run becomes for a trainer: rows, and every other form it is exported to.

rows      training rows, one JSON object a line
sft       accepted trajectories as conversations
pairs     preference pairs
jsonl     trajectories with their judgements
parquet   rows or trajectories as one table
hf        the same as a folder for `datasets.load_from_disk`

Free rollouts that were judged give policy rows and, where there are reflections, those; forced
traces and those of a teacher give rows for imitation. What was sampled keeps its ids; traces,
and transcripts of a chat-only server, need a tokeniser and are never good for a policy-gradient
ratio.

A conversation is trained as in RubricEM (arXiv:2605.10899, appendix B.2): the system prompt, the
question, and one long turn of the assistant, of which the spans that it did not write itself (tool
output, notes of the runner) are to be left out of the loss. Trainers that take no spans read the
same as token rows with a mask.

Of a preference pair, in the form that preference trainers read, `prompt`, `chosen` and `rejected`
are lists of messages, with where they come from beside them: of each group the best and the worst,
where they are far enough apart. What is compared is a trajectory's return, which is that of its
first stage, or the score of one stage; who has none of it is in no pair.

All forms stand in one module, since they share who reads a run and how it is told of.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np

from rubricem.agent.research.free import system_prompt, user_message
from rubricem.agent.research.scaffold import Rule
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import model_of
from rubricem.agent.weights.resolve import resolve_files
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import (
    Author,
    Decoding,
    Judgement,
    Stage,
    Trajectory,
    TrajectoryGroup,
    Value,
    Versioned,
)
from rubricem.training.collect.directory import GroupRecord, RunDirectory, group_of
from rubricem.training.rows.compile import (
    NO_IDS,
    Compiled,
    absent_stages,
    compiled,
    policy_rows,
    reflection_rows,
    stage_scores,
)
from rubricem.training.rows.credit import (
    PAPER,
    SS_GRPO,
    Dependence,
    Floats,
    RowRule,
    row_rule,
    stage_returns,
)
from rubricem.training.rows.imitate import (
    breaking,
    free_turns,
    imitation_row,
    sft_row,
    unaccepted,
    unfit,
)
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import (
    Tokeniser,
    gguf_vocabulary,
    is_folder,
    read_tokeniser,
    retokenised,
    token_sequence,
    without_scaffold,
)
from rubricem.training.rows.tables import write_dataset, write_parquet


class JudgedTrajectory(Trajectory):
    """A trajectory with its place in the run, for a reader that has only this one line."""

    group: str
    step: int
    question_id: str
    judgement: Judgement | None
    """None: it was not judged"""


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """A group of a run; what is judged and what is not stand in the order of the trajectories."""

    record: GroupRecord
    rollouts: TrajectoryGroup
    judgements: tuple[Judgement | None, ...]

    def each(self) -> Iterator[JudgedTrajectory]:
        for trajectory, judgement in zip(self.rollouts.trajectories, self.judgements, strict=True):
            yield JudgedTrajectory(
                **dict(trajectory),
                group=self.record.id,
                step=self.record.step,
                question_id=self.record.question_id,
                judgement=judgement,
            )


def judged_groups(run: RunDirectory) -> Iterator[JudgedGroup]:
    """The groups of the finished steps, in order, one in memory at a time.

    Raises StoreError where a trajectory that a group names is not there, or a judgement is of
    nothing that a group names.
    """
    read, known = run.trajectories(), dict[str, Trajectory]()
    judging = _Judgements(run)
    for record in run.groups():
        for name in record.trajectories:
            _read_until(name, read, known, run)
        rollouts = group_of(record, known)
        judged = judging.of(record)
        yield JudgedGroup(record, rollouts, tuple(judged.get(name) for name in record.trajectories))
        for name in record.trajectories:
            known.pop(name, None)
    judging.end()


def judged_trajectories(run: RunDirectory) -> Iterator[JudgedTrajectory]:
    return (judged for group in judged_groups(run) for judged in group.each())


class _Judgements:
    """A run's judgements, which stand in the order of its groups; some may have none."""

    def __init__(self, run: RunDirectory) -> None:
        self._path = run.folder / "judgements.jsonl"
        self._left = run.judgements()
        self._next = next(self._left, None)

    def of(self, record: GroupRecord) -> dict[str, Judgement]:
        found: dict[str, Judgement] = {}
        while self._next is not None and self._next.trajectory_id in record.trajectories:
            found[self._next.trajectory_id] = self._next
            self._next = next(self._left, None)
        return found

    def end(self) -> None:
        if self._next is not None:
            raise StoreError(
                f"{self._path} judges {self._next.trajectory_id} out of its group's place.",
                "It was altered after it was written; take it from a copy.",
            )


def _read_until(
    name: str, read: Iterable[Trajectory], known: dict[str, Trajectory], run: RunDirectory
) -> None:
    if name in known:
        return
    for trajectory in read:
        known[trajectory.id] = trajectory
        if trajectory.id == name:
            return
    raise StoreError(
        f"{run.folder / 'trajectories.jsonl'} lacks the trajectory {name} of a group.",
        "It was altered after it was written; take it from a copy.",
    )


async def run_rows(
    run: RunDirectory, tokeniser: Tokeniser | None = None, rule: RowRule = SS_GRPO
) -> Compiled:
    """All rows of the finished steps at once, as `each_row` gives them."""
    return compiled([found async for found in each_row(run, tokeniser, rule)])


async def each_row(
    run: RunDirectory,
    tokeniser: Tokeniser | None = None,
    rule: RowRule = SS_GRPO,
    rules: Collection[Rule] = (),
) -> AsyncGenerator[TrainRow | str, None]:
    """The rows of the finished steps, one group in memory at a time.

    In the place of a sequence that gives no row stands the reason. Without a tokeniser what has
    no ids is such. `rules`: of what is imitated, the rejection rules beyond the first four.
    """
    if run.manifest().imitated:
        async for found in _imitation_rows(run, tokeniser, rules):
            yield found
        return
    for judged in judged_groups(run):
        group = judged.rollouts
        if tokeniser is not None:
            members = [await _with_ids(t, tokeniser) for t in group.trajectories]
            group = group.model_copy(update={"trajectories": tuple(members)})
        judgements = [judgement for judgement in judged.judgements if judgement]
        for found in policy_rows(group, judgements, rule, name=judged.record.id).each():
            yield found
    version = run.manifest().policy_version
    for _, written in groupby(run.reflections(), key=lambda candidate: candidate.trajectory_id):
        for found in reflection_rows(list(written), policy_version=version).each():
            yield found


def needs_tokeniser(run: RunDirectory) -> bool:
    """Whether some of the run's text has no ids that it could be trained on."""
    return run.manifest().imitated or any(
        token_sequence(t.segments) is None for t in run.trajectories()
    )


def write_rows(path: Path, rows: Iterable[TrainRow]) -> None:
    """One JSON object a line, the file replaced whole."""
    write_atomically(path, (row.model_dump_json() + "\n" for row in rows))


async def _imitation_rows(
    run: RunDirectory, tokeniser: Tokeniser | None, rules: Collection[Rule]
) -> AsyncGenerator[TrainRow | str, None]:
    manifest, broken = run.manifest(), breaking(rules)
    for trace in run.trajectories():
        if tokeniser is None:
            yield NO_IDS
        elif manifest.decoding is Decoding.FREE:
            yield await imitation_row(trace, tokeniser, broken)
        else:
            yield await sft_row(trace, tokeniser, manifest.tool_calls, broken)


async def _with_ids(trajectory: Trajectory, tokeniser: Tokeniser) -> Trajectory:
    if token_sequence(trajectory.segments) is not None:
        return trajectory
    return await retokenised(trajectory, tokeniser)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A tokeniser, and which vocabulary its ids are of."""

    tokeniser: Tokeniser
    vocabulary: str

    def known(self, row: TrainRow) -> TrainRow:
        """Others than those for imitation may have their sampler's ids."""
        if row.objective != "sft":
            return row
        return row.model_copy(update={"tokenizer": self.vocabulary})


async def compiled_run(folder: Path, rule: RowRule = SS_GRPO, model: str | None = None) -> Compiled:
    """All rows of a run's finished steps at once, as `each_compiled` gives them."""
    return compiled([found async for found in each_compiled(folder, rule, model)])


async def each_compiled(
    folder: Path,
    rule: RowRule = SS_GRPO,
    model: str | None = None,
    rules: Collection[Rule] = (),
) -> AsyncGenerator[TrainRow | str, None]:
    """The rows of a run's finished steps one after another, with reasons in the place of others.

    `model` names the model that text without ids is encoded for; None: the run's own.
    `rules`: of what is imitated, the rejection rules beyond the first four.
    """
    run = RunDirectory(folder)
    async with _tokeniser(run, model) as loaded:
        async for found in each_row(run, loaded.tokeniser if loaded else None, rule, rules):
            yield loaded.known(found) if loaded and isinstance(found, TrainRow) else found


async def compiled_traces(folder: Path, model: str, rules: Collection[Rule] = ()) -> Compiled:
    """Rows that imitate the accepted rollouts, whoever wrote them, as `model` encodes them.

    `rules`: the rejection rules beyond the first four.
    """
    run = RunDirectory(folder)
    run.manifest()
    async with _loaded(model) as loaded:
        found = [row async for row in _imitation_rows(run, loaded.tokeniser, rules)]
    return compiled(loaded.known(row) if isinstance(row, TrainRow) else row for row in found)


@asynccontextmanager
async def _tokeniser(run: RunDirectory, model: str | None) -> AsyncIterator[_Loaded | None]:
    kept = run.manifest().settings
    if not needs_tokeniser(run) or (kept["base_url"] and not model):
        yield None
        return
    async with _loaded(model or kept["model"]) as loaded:
        yield loaded


@asynccontextmanager
async def _loaded(model: str | None) -> AsyncIterator[_Loaded]:
    if model and is_folder(model):
        own = await asyncio.to_thread(read_tokeniser, Path(model).expanduser())
        yield _Loaded(own, own.vocabulary)
        return
    settings = load_settings({"model": model})
    settings = settings.model_copy(update={"base_url": None})
    choice = model_of(settings)
    if not choice.embedded:
        raise SettingsError(
            f"{settings.model!r} is no embedded model.", "Name the one to train: --model 0.5b"
        )
    async with choice.open_tokens() as embedded:
        files = await resolve_files(choice.name, directory=settings.weights_dir)
        yield _Loaded(embedded, await asyncio.to_thread(gguf_vocabulary, files.path))


Span = tuple[int, int]
"""(start, end) in characters, the end excluded"""


class ChatMessage(Value):
    role: str
    content: str


class Written(Value):
    """An assistant's turn, and which characters of it are not its own."""

    message: ChatMessage
    untrained: tuple[Span, ...]


class ExportedConversation(Versioned):
    """One accepted trajectory."""

    id: str
    trajectory: str
    messages: tuple[ChatMessage, ...]
    """system, user, assistant"""
    untrained: tuple[Span, ...]
    """of the assistant's message: no loss stands on them"""
    decoding: Decoding
    policy: str
    policy_version: str


def conversation(
    trajectory: Trajectory, rules: Collection[Rule] = (), *, tool_calls: int = 10
) -> ExportedConversation | str:
    """The conversation of a trajectory, or why it is not to be imitated.

    `rules` switches on those beyond the first four: `citation`, `support`. `tool_calls` is the
    limit that the system prompt of a re-cast trace names.
    """
    broken = breaking(rules)
    forced = trajectory.decoding is Decoding.FORCED
    turns = free_turns(trajectory) if forced else []
    if reason := unfit(trajectory, turns, broken) if forced else unaccepted(trajectory, broken):
        return reason
    if forced:
        written = _joined(
            piece for turn in turns for piece in ((turn.text, True), (turn.tool_output, False))
        )
        question = user_message(trajectory.question, trajectory.answer_format)
        opening = _messages(system_prompt(tool_calls), question)
    else:
        written, opening = written_by(trajectory), opening_of(trajectory)
    return ExportedConversation(
        id=f"{trajectory.id}:conversation",
        trajectory=trajectory.id,
        messages=(*opening, written.message),
        untrained=written.untrained,
        decoding=trajectory.decoding,
        policy=trajectory.policy,
        policy_version=trajectory.policy_version,
    )


def opening_of(trajectory: Trajectory) -> tuple[ChatMessage, ...]:
    """What stands before the assistant's turn, without a scaffold."""
    bare = without_scaffold(trajectory)
    user = "".join(s.text for s in bare.segments if s.kept and s.stage is None)
    return _messages(bare.system, user)


def _messages(system: str, user: str) -> tuple[ChatMessage, ...]:
    return ChatMessage(role="system", content=system), ChatMessage(role="user", content=user)


def written_by(trajectory: Trajectory) -> Written:
    """The transcript as the assistant's turn."""
    kept = (s for s in trajectory.segments if s.kept and s.stage is not None)
    return _joined((segment.text, segment.author is Author.POLICY) for segment in kept)


def _joined(pieces: Iterable[tuple[str, bool]]) -> Written:
    """Pieces of text, each with whether the policy wrote it; neighbouring spans become one."""
    text, spans = "", list[Span]()
    for piece, own in pieces:
        start, text = len(text), text + piece
        if own or not piece:
            continue
        if spans and spans[-1][1] == start:
            start = spans.pop()[0]
        spans.append((start, len(text)))
    return Written(message=ChatMessage(role="assistant", content=text), untrained=tuple(spans))


By = Literal["return", "plan", "research", "review", "answer"]
TOO_FEW = "fewer than two of the group have what is compared"
TOO_NEAR = "its best and worst are nearer than the margin"
OTHER_PROMPT = "its best and worst had different prompts"


class PreferencePair(Versioned):
    """Two answers to one prompt, and why the first is preferred."""

    id: str
    """the group's"""
    prompt: tuple[ChatMessage, ...]
    chosen: tuple[ChatMessage, ...]
    rejected: tuple[ChatMessage, ...]
    chosen_untrained: tuple[Span, ...]
    """characters that the policy did not write: tool output, notes of the runner"""
    rejected_untrained: tuple[Span, ...]
    by: By
    chosen_value: float
    rejected_value: float
    chosen_trajectory: str
    rejected_trajectory: str
    question_id: str
    step: int
    judge: str
    rubric_version: str
    policy: str
    policy_version: str


def preference_pair(
    group: JudgedGroup, by: By = "return", margin: float = 0.1, dependence: Dependence = PAPER
) -> PreferencePair | str:
    """The pair of a group, or why it has none; equal ones are never a pair.

    `margin` is in units of what is compared: scores are in [0, 1], returns in [0, the sum of the
    first row of the dependence].
    """
    values = compared(group, by, dependence)
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < 2:
        return TOO_FEW
    best, worst = best_and_worst(values)
    if values[best] - values[worst] < margin or values[best] == values[worst]:
        return TOO_NEAR
    chosen, rejected = (group.rollouts.trajectories[place] for place in (best, worst))
    prompt = opening_of(chosen)
    if prompt != opening_of(rejected):
        return OTHER_PROMPT
    judged = group.judgements[best]
    good, bad = written_by(chosen), written_by(rejected)
    return PreferencePair(
        id=group.record.id,
        prompt=prompt,
        chosen=(good.message,),
        rejected=(bad.message,),
        chosen_untrained=good.untrained,
        rejected_untrained=bad.untrained,
        by=by,
        chosen_value=float(values[best]),
        rejected_value=float(values[worst]),
        chosen_trajectory=chosen.id,
        rejected_trajectory=rejected.id,
        question_id=group.record.question_id,
        step=group.record.step,
        judge=judged.judge if judged else "",
        rubric_version=group.record.rubric_version,
        policy=chosen.policy,
        policy_version=chosen.policy_version,
    )


def compared(group: JudgedGroup, by: By, dependence: Dependence = PAPER) -> Floats:
    """What the members are compared by, (n,); NaN where it is not known."""
    if not group.judgements:
        return np.empty(0)
    scores = stage_scores(group.judgements)
    if by == "return":
        return stage_returns(scores, dependence, absent_stages(group.judgements))[:, 0]
    return np.asarray(scores[:, list(Stage).index(Stage(by))])


def best_and_worst(values: Floats | Sequence[float]) -> tuple[int, int]:
    """The places of the largest and the smallest known value, the first of equal ones."""
    return int(np.nanargmax(values)), int(np.nanargmin(values))


Form = Literal["rows", "sft", "pairs", "jsonl", "parquet", "hf"]
Of = Literal["rows", "trajectories"]
Results = AsyncGenerator[TrainRow | str, None]
NAMES: dict[Form, str] = {
    "rows": "rows.jsonl",
    "sft": "sft.jsonl",
    "pairs": "pairs.jsonl",
    "jsonl": "judged.jsonl",
}
"""of files in the run's folder; tables are called after what is in them"""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What some of the forms can be told; each ignores what is not its own."""

    of: Of = "rows"
    """parquet, hf: what the table holds"""
    credit: str = "ss-grpo"
    scaffold_ratio: str = "unscaffolded"
    """rows: of rollouts under a rubric scaffold"""
    model: str | None = None
    """the model, embedded or a folder, whose tokeniser is used for text without ids"""
    by: By = "return"
    margin: float = 0.1
    rules: frozenset[Rule] = frozenset()
    """of what is imitated: rejection rules beyond the first four"""


def place_of(run: Path, form: Form, options: ExportOptions) -> Path:
    """Where a form goes that is not sent elsewhere."""
    name = f"{options.of}.parquet" if form == "parquet" else f"{options.of}_hf"
    return run / NAMES.get(form, name)


async def export_run(folder: Path, form: Form, out: Path, options: ExportOptions) -> list[str]:
    """Write the finished steps of a run in a form; returns what is told of it.

    Raises SettingsError for a folder that is no run, and where a package is missing.
    """
    run = RunDirectory(folder)
    run.manifest()
    if form == "rows" or (form in ("parquet", "hf") and options.of == "rows"):
        rule = row_rule(options.credit, options.scaffold_ratio)
        results = each_compiled(folder, rule, options.model, options.rules)
        return await _rows(results, form, out)
    if form == "sft":
        limit = run.manifest().tool_calls
        talks = (conversation(t, options.rules, tool_calls=limit) for t in run.trajectories())
        return _lines(out, talks, "conversations")
    if form == "pairs":
        dependence = row_rule(options.credit).dependence
        compare = partial(preference_pair, by=options.by, margin=options.margin)
        pairs = (compare(group, dependence=dependence) for group in judged_groups(run))
        return _lines(out, pairs, "pairs")
    if form == "jsonl":
        return _lines(out, judged_trajectories(run), "trajectories with what was judged of them")
    write = write_parquet if form == "parquet" else write_dataset
    return [f"{write(out, judged_trajectories(run), JudgedTrajectory)} trajectories"]


@dataclass(slots=True)
class RowCounts:
    """What is told of rows that go by."""

    objectives: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    trained_tokens: int = 0
    barred: int = 0
    """no ratio may be formed of them, though they are not for imitation"""
    across: int = 0
    scaffolded: int = 0

    def passed(self, results: Iterable[TrainRow | str]) -> Iterator[TrainRow]:
        """The rows among them, each counted as it is taken; so is each reason."""
        for result in results:
            if isinstance(result, str):
                self.dropped[result] += 1
                continue
            self.objectives[result.objective] += 1
            self.trained_tokens += sum(result.loss_mask)
            self.barred += not result.ratio_allowed and result.objective != "sft"
            self.across += result.across_prompts
            self.scaffolded += result.recompute_logprobs
            yield result

    def told(self) -> list[str]:
        """What there is to train on, and what was left out."""
        rows = ", ".join(f"{count} {name}" for name, count in sorted(self.objectives.items()))
        told = [
            f"{self.objectives.total()} rows ({rows or 'none'}), "
            f"{self.trained_tokens} trained tokens"
        ]
        for count, what in (
            (self.barred, "not sampled as they stand: no policy-gradient ratio may be formed"),
            (self.across, "form their ratio to what was sampled under a scaffold"),
            (self.scaffolded, "sampled under a scaffold: their log-probabilities without it are "
             "to be computed"),
        ):  # fmt: skip
            told += [f"{count} of them {what}"] if count else []
        return told + _dropped(self.dropped.items())


async def _rows(results: Results, form: Form, out: Path) -> list[str]:
    """Write rows as they come, in a thread: tokenisers are asked in this one meanwhile."""
    counts = RowCounts()
    async with aclosing(results):
        rows = counts.passed(_drawn(results, asyncio.get_running_loop()))
        if form == "rows":
            await asyncio.to_thread(write_rows, out, rows)
        else:
            write = write_parquet if form == "parquet" else write_dataset
            await asyncio.to_thread(write, out, rows, TrainRow)
    return counts.told()


def _drawn(results: Results, loop: asyncio.AbstractEventLoop) -> Iterator[TrainRow | str]:
    """For a thread: what the loop brings forth, one after another."""

    async def following() -> TrainRow | str | None:
        return await anext(results, None)

    while (found := asyncio.run_coroutine_threadsafe(following(), loop).result()) is not None:
        yield found


def _lines(out: Path, found: Iterable[Value | str], what: str) -> list[str]:
    """Write the values a line each, as they come; reasons in their place are counted."""
    kept, dropped = 0, Counter[str]()

    def lines() -> Iterator[str]:
        nonlocal kept
        for value in found:
            if isinstance(value, str):
                dropped[value] += 1
            else:
                kept += 1
                yield value.model_dump_json() + "\n"

    write_atomically(out, lines())
    return [f"{kept} {what}", *_dropped(dropped.most_common())]


def _dropped(reasons: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{count} dropped: {reason}" for reason, count in reasons]
