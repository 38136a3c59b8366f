"""The forms that a collecting run is exported to, for trainers.

A conversation is trained as in RubricEM (arXiv:2605.10899, appendix B.2): system prompt, question,
turns of the assistant; what it did not write stands between in the role `tool`, out of the loss.
For TRL the same is written in ids with labels. verl is given questions. A preference pair is of
each group the runs with the highest and the lowest return of their first stage, `MARGIN` apart.
"""

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from rubricem.agent.learning.scoring import checked_by_rules, support_of
from rubricem.agent.transcript.scaffold import Rule
from rubricem.memory.errors import SettingsError, import_extra
from rubricem.memory.runs import writable
from rubricem.memory.schema import Trajectory, Value, Versioned
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.questions import Curriculum, Question, QuestionBatch
from rubricem.training.rows.compile import (
    NO_MODEL,
    ChatMessage,
    Demonstration,
    ExportedConversation,
    JudgedGroup,
    Results,
    Standing,
    accepted_reflections,
    demonstrated_reflection,
    each_encoded,
    free_prompt,
    judged_groups,
    write_rows,
)
from rubricem.training.rows.credit import (
    NO_IDS,
    NO_RATIO,
    SAMPLE,
    SS_GRPO,
    UNSCORED,
    RowRule,
    row_rule,
)
from rubricem.training.rows.row import TrainRow

MARGIN = 0.1
TOO_FEW = "fewer than two of the group have a return"
TOO_NEAR = "its best and worst are nearer than the margin"
LESS_SUPPORTED = "its best is less supported than its worst"
OTHER_PROMPT = "its best and worst had different prompts"


class PreferencePair(Versioned):
    schema_version: int = 1
    id: str
    prompt: tuple[ChatMessage, ...]
    chosen: tuple[ChatMessage, ...]
    """assistant and tool by turns"""
    rejected: tuple[ChatMessage, ...]
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


def preference_pair(group: JudgedGroup, rule: RowRule = SS_GRPO) -> PreferencePair | str:
    values = rule.dependence.group_returns(group.judgements)[:, 0]
    if np.count_nonzero(~np.isnan(values)) < 2:
        return TOO_FEW
    best, worst = int(np.nanargmax(values)), int(np.nanargmin(values))
    if values[best] - values[worst] < MARGIN:
        return TOO_NEAR
    chosen, rejected = (group.rollouts.trajectories[place] for place in (best, worst))
    better, worse = (support_of(checked_by_rules(run)) for run in (chosen, rejected))
    if better is not None and worse is not None and better < worse:
        return LESS_SUPPORTED
    shown, beside = Demonstration.of(chosen), Demonstration.of(rejected)
    if shown.opening() != beside.opening():
        return OTHER_PROMPT
    judged = group.judgements[best]
    return PreferencePair(
        id=group.record.id, prompt=shown.opening(), chosen=shown.turns, rejected=beside.turns,
        chosen_value=float(values[best]), rejected_value=float(values[worst]),
        chosen_trajectory=chosen.id, rejected_trajectory=rejected.id,
        question_id=group.record.question_id, step=group.record.step,
        judge=judged.judge if judged else "", rubric_version=group.record.rubric_version,
        policy=chosen.policy, policy_version=chosen.policy_version,
    )  # fmt: skip


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


def write_verl(
    path: Path, questions: Sequence[Question], *, size: int = 0, windows: int = 0,
    held_out: bool = False,
) -> int:  # fmt: skip
    """Write questions, no two alike, as verl's RLHFDataset reads them; returns the rows' number.

    `windows`: in the order of a curriculum whose steps have `size`, one pass of it. verl has to
    read them unshuffled, `size` in a batch. Raises SettingsError where the questions make no whole
    batches: verl fills a short one from the next.
    """
    pyarrow, parquet = import_extra("pyarrow", "data"), import_extra("pyarrow.parquet", "data")
    batches = [QuestionBatch(tuple(questions))]
    if windows:
        if size < 1 or not questions or len(questions) % size:
            raise SettingsError(
                f"{len(questions)} questions make no whole batches of {size}.",
                "Give --batch as data.train_batch_size has it, and a multiple of it of questions.",
            )
        curriculum = Curriculum(questions, size, windows)
        batches = [curriculum.batch(step) for step in range(curriculum.steps)]
    # By their words, since two questions of a file may have one id.
    places = {question.question: number for number, question in enumerate(questions)}
    rows = [
        {
            "prompt": [{"role": "user", "content": question.question}],
            "data_source": AGENT,
            "agent_name": AGENT,
            "reward_model": {"style": "model", "ground_truth": ""},
            "extra_info": {
                "index": places[question.question],
                "id": question.id,
                # What the policy is not shown is a text, since verl's columns have one type each.
                "asked": question.model_dump_json(exclude_defaults=True),
                "held_out": held_out,
                "fresh": batch.fresh,
            },
        }
        for batch in batches
        for question in batch.questions
    ]
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as place:
            whole = Path(place) / path.name
            parquet.write_table(pyarrow.Table.from_pylist(rows), whole)
            os.replace(whole, path)
    return len(rows)


Form = Literal["rows", "sft", "trl", "pairs"]
NAMES: dict[Form, str] = {
    "rows": "rows.jsonl",
    "sft": "sft.jsonl",
    "trl": "trl.jsonl",
    "pairs": "pairs.jsonl",
}
UNJUDGED, NOT_BEST = "it has no return", "another of its group has a higher return"
LOW, DOUBTED = "its return is below --min-return", "its support is below --min-support"
UNCHECKED = "none of its claims can be checked"
REMEDIES = {
    NO_IDS: SAMPLE,
    NO_RATIO: SAMPLE,
    NO_MODEL: "Name it by --model.",
    UNSCORED: "`rubricem runs show` says why.",
    TOO_NEAR: "Rank by another --credit.",
    TOO_FEW: "Rank by another --credit, or collect larger groups with a judge.",
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

    def reason(self, found: Standing, best: float) -> str:
        """Why a run is not to be imitated, whose group's best return is given; "" if it is."""
        if self.best or self.min_return is not None:
            if found.value is None:
                return UNJUDGED
            if self.best and found.value != best:
                return NOT_BEST
            if self.min_return is not None and found.value < self.min_return:
                return LOW
        if self.min_support is None:
            return ""
        if found.support is None:
            return UNCHECKED
        return DOUBTED if found.support < self.min_support else ""


def standings(
    run: RunDirectory, options: ExportOptions, rule: RowRule
) -> tuple[dict[str, Standing], dict[str, str]]:
    """How each run came out, and why those are left out that the options leave out."""
    found, left_out = dict[str, Standing](), dict[str, str]()
    for group in judged_groups(run):
        values = rule.dependence.group_returns(group.judgements)[:, 0]
        best = float(np.nanmax(values)) if not np.isnan(values).all() else np.nan
        for one, judged, value in zip(
            group.rollouts.trajectories, group.judgements, values, strict=True
        ):
            scores = [stage.score for stage in judged.stages] if judged else []
            found[one.id] = Standing(
                question_id=group.record.question_id,
                score=scores[-1] if scores else None,
                value=None if np.isnan(value) else float(value),
                support=support_of(checked_by_rules(one)),
                stages=tuple(scores),
            )
            if reason := options.reason(found[one.id], best):
                left_out[one.id] = reason
    return found, left_out


def conversations(
    run: RunDirectory, options: ExportOptions, rule: RowRule, system: str
) -> Iterator[ExportedConversation | str]:
    """What is imitated of the runs, and the reflections on them that were accepted."""
    found, left_out = standings(run, options, rule)
    known = dict[str, Trajectory]()
    for one in run.trajectories():
        known[one.id] = one.model_copy(update={"segments": (), "sources": ()})
        talk = left_out.get(one.id) or ExportedConversation.of(one, options.rules, system)
        if not isinstance(talk, str):
            talk = talk.model_copy(update=dict(found.get(one.id, Standing())))
        yield talk
    for name, each in accepted_reflections(run):
        shown = demonstrated_reflection(each)
        made = ExportedConversation.of_demonstration(
            known[each.trajectory_id], name, shown, "reflection"
        )
        yield made.model_copy(update={"score": each.score.total if each.score else None})


def export_run(folder: Path, form: Form, out: Path | None, options: ExportOptions) -> list[str]:
    """Write the finished steps of a run in a form; returns what is told of it.

    Raises SettingsError where there is nothing to write, which leaves an earlier export as it is.
    """
    run, path = RunDirectory(folder), out or folder / NAMES[form]
    system, rule = free_prompt(run.manifest()), row_rule(options.credit)
    if form == "sft":
        told = _write_values(path, conversations(run, options, rule, system), "conversations")
    elif form == "pairs":
        pairs = (preference_pair(group, rule) for group in judged_groups(run))
        told = _write_values(path, pairs, "pairs")
    else:
        imitate = form == "trl"
        left_out = standings(run, options, rule)[1] if imitate else {}
        results = each_encoded(
            run, options.model, rule, options.rules, imitate, options.weights_dir, left_out
        )
        rows = _one_by_one(results)
        made = (TokenRow.of(r) if isinstance(r, TrainRow) else r for r in rows) if imitate else rows
        told = _write_values(path, made, "rows")
    return [*told, f"in {path}"]


def _one_by_one(results: Results) -> Iterator[TrainRow | str]:
    """What an asynchronous generator gives, in an event loop that lasts as long as this one."""

    async def following() -> TrainRow | str | None:
        return await anext(results, None)

    with asyncio.Runner() as runner:
        while (found := runner.run(following())) is not None:
            yield found


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
    return value.objective if isinstance(value, TrainRow) else ""


def _nothing(what: str, dropped: Mapping[str, int]) -> SettingsError:
    why = "; ".join(f"{count} left out, {reason}" for reason, count in dropped.items())
    helping = dict.fromkeys(REMEDIES[reason] for reason in dropped if reason in REMEDIES)
    return SettingsError(
        f"The run gives no {what}: {why or 'no step of it is finished'}.",
        " ".join(helping) or "Collect more: the same `rubricem collect` continues a run.",
    )
