"""Every form that a collected run can be exported to, and what is told of it in sentences.

rows      training rows, one JSON object a line
sft       accepted trajectories as conversations
pairs     preference pairs
jsonl     trajectories with their judgements
parquet   rows or trajectories as one table
hf        the same as a folder for `datasets.load_from_disk`
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agent.rejection import Rule
from memory.runs import write_atomically
from memory.schema import Value
from training.export_conversations import conversation
from training.export_judged import JudgedTrajectory, judged_groups, judged_trajectories
from training.export_pairs import By, preference_pair
from training.export_tables import write_dataset, write_parquet
from training.exporting import write_rows
from training.row_rule import row_rule
from training.rows import TrainRow
from training.run_directory import RunDirectory
from training.tokenising import each_compiled

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
        return _lines(out, _conversations(run, options), "conversations")
    if form == "pairs":
        return _lines(out, _pairs(run, options), "pairs")
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


def _conversations(run: RunDirectory, options: ExportOptions) -> Iterator[Value | str]:
    limit = run.manifest().tool_calls
    return (conversation(t, options.rules, tool_calls=limit) for t in run.trajectories())


def _pairs(run: RunDirectory, options: ExportOptions) -> Iterator[Value | str]:
    dependence = row_rule(options.credit).dependence
    groups = judged_groups(run)
    return (preference_pair(group, options.by, options.margin, dependence) for group in groups)


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
