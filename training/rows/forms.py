"""The forms that a collecting run is exported to, for trainers.

A conversation is trained as in RubricEM (arXiv:2605.10899, appendix B.2): system prompt, question,
turns of the assistant; what it did not write stands between in the role `tool`, out of the loss.
For TRL the same is written in ids with labels. verl is given questions.
"""

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rubricem.agent.learning.scoring import checked_by_rules, support_of
from rubricem.agent.transcript.scaffold import Rule
from rubricem.memory.errors import SettingsError, import_extra
from rubricem.memory.runs import writable
from rubricem.memory.schema import Trajectory, Value, Versioned
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.questions import Curriculum, Question
from rubricem.training.rows.compile import (
    NO_MODEL,
    ExportedConversation,
    Results,
    accepted_reflections,
    each_encoded,
    free_prompt,
    judged_groups,
    reflection_shown,
    write_rows,
)
from rubricem.training.rows.credit import NO_IDS, SAMPLE, UNSCORED, RowRule, row_rule
from rubricem.training.rows.row import TrainRow


class TokenRow(Versioned):
    """What is imitated of one trajectory, as TRL's SFTTrainer takes what is in ids already."""

    id: str
    input_ids: tuple[int, ...]
    labels: tuple[int, ...]
    """the id where it is trained, else -100"""

    @classmethod
    def of(cls, row: TrainRow) -> "TokenRow":
        labels = (i if on else -100 for i, on in zip(row.ids, row.loss_mask, strict=True))
        return cls(id=row.id, input_ids=row.ids, labels=tuple(labels))


AGENT = "rubricem"
"""verl's name of this project's data and agent loop (training/verl/launch/agent_loop.yaml)"""


def write_verl(path: Path, questions: Iterable[Question], *, held_out: bool = False) -> int:
    """Write questions as verl's RLHFDataset reads them; returns how many there are."""
    told = {"held_out": True} if held_out else {}
    return _write_verl(path, (_verl_row(n, q, **told) for n, q in enumerate(questions)))


def write_windows(path: Path, questions: Sequence[Question], size: int, windows: int) -> int:
    """Write them in the order of a curriculum whose steps have `size`, one pass of it.

    verl has to read them unshuffled, `size` in a batch. Raises SettingsError where the questions
    make no whole batches: verl fills a short one from the next.
    """
    if size < 1 or not questions or len(questions) % size:
        raise SettingsError(
            f"{len(questions)} questions make no whole batches of {size}.",
            "Give --batch as data.train_batch_size has it, and a multiple of it of questions.",
        )
    curriculum = Curriculum(questions, size, windows)
    batches = [curriculum.batch(step) for step in range(curriculum.steps)]
    if any(len(batch.questions) != size for batch in batches):
        raise SettingsError(
            "A question stands twice among those of one batch.", "Leave the second one out."
        )
    # By their words, since two questions of a file may have one id.
    places = {question.question: number for number, question in enumerate(questions)}
    return _write_verl(
        path,
        (
            _verl_row(places[question.question], question, fresh=batch.fresh)
            for batch in batches
            for question in batch.questions
        ),
    )


def _verl_row(number: int, question: Question, **told: bool) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": question.question}],
        "data_source": AGENT,
        "agent_name": AGENT,
        "reward_model": {"style": "model", "ground_truth": ""},
        "extra_info": {
            "index": number,
            "id": question.id,
            # What the policy is not shown is a text, since verl's own columns have one type each.
            "asked": question.model_dump_json(exclude_defaults=True),
            **told,
        },
    }


def _write_verl(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    pyarrow, parquet = import_extra("pyarrow", "data"), import_extra("pyarrow.parquet", "data")
    listed = list(rows)
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as place:
            whole = Path(place) / path.name
            parquet.write_table(pyarrow.Table.from_pylist(listed), whole)
            os.replace(whole, path)
    return len(listed)


Form = Literal["rows", "sft", "trl"]
NAMES: dict[Form, str] = {
    "rows": "rows.jsonl",
    "sft": "sft.jsonl",
    "trl": "trl.jsonl",
}
UNJUDGED, NOT_BEST = "it has no return", "another of its group has a higher return"
LOW, DOUBTED = "its return is below --min-return", "its support is below --min-support"
UNCHECKED = "none of its claims can be checked"
REMEDIES = {
    NO_IDS: SAMPLE,
    NO_MODEL: "Name it by --model.",
    UNSCORED: "`rubricem runs show` says why.",
    "rejected by the rule citation": "Leave out --rule citation.",
    "rejected by the rule support": "Leave out --rule support.",
    "rejected by the rule all-support": "Leave out --rule all-support.",
}


@dataclass(frozen=True, slots=True)
class ExportOptions:
    credit: str = "ss-grpo"
    model: str | None = None
    rules: frozenset[Rule] = frozenset()
    weights_dir: Path | None = None
    min_return: float | None = None
    min_support: float | None = None
    best: bool = False

    def reason(self, run: Trajectory, value: float, best: float) -> str:
        """Why a run of this return is not imitated, whose group has this best; "" if it is."""
        if self.best or self.min_return is not None:
            if np.isnan(value):
                return UNJUDGED
            if self.best and value != best:
                return NOT_BEST
            if self.min_return is not None and value < self.min_return:
                return LOW
        if self.min_support is None:
            return ""
        if (support := support_of(checked_by_rules(run))) is None:
            return UNCHECKED
        return DOUBTED if support < self.min_support else ""


def left_out_of(run: RunDirectory, options: ExportOptions, rule: RowRule) -> dict[str, str]:
    """Why runs are left out that the options leave out, by their names."""
    left_out = dict[str, str]()
    for group in judged_groups(run):
        values = rule.dependence.group_returns(group.judgements)[:, 0]
        best = float(np.nanmax(values)) if not np.isnan(values).all() else np.nan
        for one, value in zip(group.rollouts.trajectories, values, strict=True):
            if reason := options.reason(one, float(value), best):
                left_out[one.id] = reason
    return left_out


def conversations(
    run: RunDirectory, options: ExportOptions, rule: RowRule, system: str
) -> Iterator[ExportedConversation | str]:
    """What is imitated of the runs, and the reflections on them that were accepted."""
    left_out = left_out_of(run, options, rule)
    known = dict[str, Trajectory]()
    for one in run.trajectories():
        known[one.id] = one.model_copy(update={"segments": (), "sources": ()})
        yield left_out.get(one.id) or ExportedConversation.of(one, options.rules, system)
    for name, each in accepted_reflections(run):
        shown = reflection_shown(each)
        yield ExportedConversation.shown(known[each.trajectory_id], name, shown, "reflection")


async def export_run(
    folder: Path, form: Form, out: Path | None, options: ExportOptions
) -> list[str]:
    """Write the finished steps of a run in a form; returns what is told of it.

    Raises SettingsError where there is nothing to write, which leaves an earlier export as it is.
    """
    run, path = RunDirectory(folder), out or folder / NAMES[form]
    system, rule = free_prompt(run.manifest()), row_rule(options.credit)
    if form == "sft":
        told = _write_values(path, conversations(run, options, rule, system), "conversations")
    else:
        imitate = form == "trl"
        left_out = left_out_of(run, options, rule) if imitate else {}
        results = each_encoded(
            run, options.model, rule, options.rules, imitate, options.weights_dir, left_out
        )
        told = await _write_rows(path, results, TokenRow.of if imitate else None)
    return [*told, f"in {path}"]


async def _write_rows(
    out: Path, results: Results, made: Callable[[TrainRow], Value] | None
) -> list[str]:
    """Write rows, or what is `made` of each, in a thread: tokenisers are asked in this one."""
    loop = asyncio.get_running_loop()

    async def following() -> TrainRow | str | None:
        return await anext(results, None)

    def draw() -> Iterator[Value | str]:
        while (found := asyncio.run_coroutine_threadsafe(following(), loop).result()) is not None:
            yield found if isinstance(found, str) or made is None else made(found)

    async with aclosing(results):
        return await asyncio.to_thread(_write_values, out, draw(), "rows")


def _write_values(out: Path, found: Iterable[Value | str], what: str) -> list[str]:
    kept, dropped = Counter[str](), Counter[str]()

    def values() -> Iterator[Value]:
        for value in found:
            if isinstance(value, str):
                dropped[value] += 1
                continue
            kept[_kind(value)] += 1
            yield value
        if not kept:
            raise _nothing(what, dropped)

    write_rows(out, values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(kept.items()) if kind)
    told = f"{kept.total()} {what}" + (f" ({kinds})" if kinds else "")
    return [told, *(f"{count} dropped: {reason}" for reason, count in dropped.most_common())]


def _kind(value: Value) -> str:
    if isinstance(value, ExportedConversation):
        return f"{value.kind}s"
    if not isinstance(value, TrainRow):
        return ""
    barred = not value.ratio_allowed and value.objective != "sft"
    return f"{value.objective} without a ratio" if barred else value.objective


def _nothing(what: str, dropped: Mapping[str, int]) -> SettingsError:
    why = "; ".join(f"{count} left out, {reason}" for reason, count in dropped.items())
    helping = dict.fromkeys(REMEDIES[reason] for reason in dropped if reason in REMEDIES)
    return SettingsError(
        f"The run gives no {what}: {why or 'no step of it is finished'}.",
        " ".join(helping) or "Collect more: the same `rubricem collect` continues a run.",
    )
