"""The forms that a collecting run is exported to, for trainers.

docs/collecting.md lists them. A conversation is trained as in RubricEM (arXiv:2605.10899, appendix
B.2): the system prompt, the question, and turns of the assistant, between which what it did not
write (tool output, notes of the runner) stands in turns of the role `tool` and out of the loss.
For TRL the same is written in the ids of the model to be trained, its labels beside them: what is
trained there is then to the token what this project trains. verl is given questions.

Of a preference pair, in the form that preference trainers read, `prompt`, `chosen` and `rejected`
are lists of messages, with where they come from beside them: of each group the best and the worst,
where they are far enough apart. What is compared is a trajectory's return, which is that of its
first stage, or the score of one stage; who has none of it is in no pair.

Tables are Parquet files and Hugging Face datasets, read back without loss; both need the extra
`data`. A file or folder is there whole or not at all. Nested values are structs, tuples are lists,
texts, numbers and truth values are themselves, and None is null. A mapping is a JSON text, since
Hugging Face datasets know no maps.
"""

import asyncio
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np

from rubricem.agent.transcript.scaffold import Rule
from rubricem.memory.errors import SettingsError, import_extra
from rubricem.memory.runs import writable
from rubricem.memory.schema import Value, Versioned
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.questions import Curriculum, Question
from rubricem.training.rows.compile import (
    By,
    ChatMessage,
    Demonstration,
    ExportedConversation,
    JudgedGroup,
    JudgedTrajectory,
    Results,
    Span,
    each_encoded,
    free_prompt,
    judged_groups,
    write_rows,
)
from rubricem.training.rows.credit import NO_IDS, PAPER, Dependence, Floats, row_rule
from rubricem.training.rows.row import TrainRow

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
    values = group.values_by(by, dependence)
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < 2:
        return TOO_FEW
    best, worst = best_and_worst(values)
    if values[best] - values[worst] < margin or values[best] == values[worst]:
        return TOO_NEAR
    chosen, rejected = (group.rollouts.trajectories[place] for place in (best, worst))
    shown, beside = Demonstration.of(chosen), Demonstration.of(rejected)
    if shown.opening() != beside.opening():
        return OTHER_PROMPT
    judged = group.judgements[best]
    (good, good_spans), (bad, bad_spans) = shown.turn(), beside.turn()
    return PreferencePair(
        id=group.record.id,
        prompt=shown.opening(),
        chosen=(good,),
        rejected=(bad,),
        chosen_untrained=good_spans,
        rejected_untrained=bad_spans,
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


def best_and_worst(values: Floats | Sequence[float]) -> tuple[int, int]:
    """The places of the largest and the smallest known value, the first of equal ones."""
    return int(np.nanargmax(values)), int(np.nanargmin(values))


_PLAIN = (int, float, str, bool)


def arrow_schema(kind: type[Value]) -> Any:
    """A `pyarrow.Schema` with a column for each field, in order."""
    pyarrow = import_extra("pyarrow", "data")
    fields = [(name, _arrow(field.annotation)) for name, field in kind.model_fields.items()]
    return pyarrow.schema([pyarrow.field(name, arrow) for name, arrow in fields])


def pack(value: Any) -> Any:
    """A value as Arrow takes it; of a `Value` its fields by name."""
    if isinstance(value, Value):
        return {name: pack(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, tuple):
        plain = isinstance(next(iter(value), None), _PLAIN)
        return list(value) if plain else [pack(item) for item in value]
    if isinstance(value, Mapping):
        return json.dumps(value)
    return value.value if isinstance(value, Enum) else value


def _arrow(annotation: Any) -> Any:
    pyarrow, kind = import_extra("pyarrow", "data"), _without_none(annotation)
    if (items := _items(kind)) is not None:
        return pyarrow.list_(_arrow(items))
    if isinstance(kind, type) and issubclass(kind, Value):
        return pyarrow.struct(list(arrow_schema(kind)))
    if kind is datetime:
        return pyarrow.timestamp("us", tz="UTC")
    plain = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64()}
    return plain.get(kind, pyarrow.string())


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (kind for kind in get_args(annotation) if kind is not type(None))
    return annotation


def _items(kind: Any) -> Any:
    """What a tuple holds, all of it being of one kind; None for what is no tuple."""
    return get_args(kind)[0] if get_origin(kind) is tuple else None


AT_ONCE = 64
"""values in one part of a table"""
V = TypeVar("V", bound=Versioned)


def write_parquet(path: Path, values: Iterable[V], kind: type[V]) -> int:
    """Write values as one file, which takes an older one's place; returns how many they are."""
    parquet, count = import_extra("pyarrow.parquet", "data"), 0
    schema = arrow_schema(kind)
    with _replacing(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        for batch in _batches(values, kind):
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def write_dataset(folder: Path, values: Iterable[V], kind: type[V]) -> int:
    """Write values as a folder for `datasets.load_from_disk`; returns how many they are.

    Raises SettingsError where the folder exists: it may hold what nobody can make again.
    """
    if folder.exists():
        raise SettingsError(f"{folder} exists already.", "Name another folder by --out.")
    ipc, datasets, count = import_extra("pyarrow.ipc", "data"), import_extra("datasets", "data"), 0
    schema = arrow_schema(kind)
    with _replacing(folder) as temporary:
        # As a file, which a dataset maps into memory: values in memory would all be there at once.
        mapped = f"{temporary}.arrow"
        with ipc.new_stream(mapped, schema) as writer:
            for batch in _batches(values, kind):
                writer.write_batch(batch)
                count += batch.num_rows
        datasets.disable_progress_bars()
        datasets.Dataset.from_file(mapped).save_to_disk(temporary)
    return count


def _batches(values: Iterable[V], kind: type[V]) -> Iterator[Any]:
    pyarrow, schema, left = import_extra("pyarrow", "data"), arrow_schema(kind), iter(values)
    while part := [pack(value) for value in islice(left, AT_ONCE)]:
        yield pyarrow.RecordBatch.from_pylist(part, schema=schema)


@contextmanager
def _replacing(path: Path) -> Iterator[str]:
    """A place beside the path for a file or folder that then takes its name."""
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as place:
            temporary = Path(place) / path.name
            yield str(temporary)
            os.replace(temporary, path)


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
    """Write questions as verl's RLHFDataset reads them; returns how many there are.

    `held_out`: they are asked between the steps, shown nothing and never learnt from.
    """
    told = {"held_out": True} if held_out else {}
    return _write_verl(path, (_verl_row(n, q, **told) for n, q in enumerate(questions)))


def write_windows(path: Path, questions: Sequence[Question], size: int, windows: int) -> int:
    """Write them in the order of a curriculum whose steps have `size`, one pass of it.

    verl has to read them as they stand (`data.shuffle=False`), `size` in a batch: a batch is a
    step. Returns how many rows there are. Raises SettingsError where the questions make no whole
    batches: verl fills a short one from the next, and the steps would be no steps.
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
    with _replacing(path) as temporary:
        parquet.write_table(pyarrow.Table.from_pylist(listed), temporary)
    return len(listed)


Form = Literal["rows", "sft", "trl", "verl", "pairs", "jsonl", "parquet", "hf"]
Of = Literal["rows", "conversations", "trajectories"]
NAMES: dict[Form, str] = {
    "rows": "rows.jsonl",
    "sft": "sft.jsonl",
    "trl": "trl.jsonl",
    "verl": "verl.parquet",
    "pairs": "pairs.jsonl",
    "jsonl": "judged.jsonl",
}
"""of files in the run's folder; tables are called after what is in them"""
REMEDIES = {
    NO_IDS: "Name the model to train by --model.",
    TOO_NEAR: "Lower --margin, or compare by another stage (--by).",
    TOO_FEW: "Compare by another stage (--by), or collect with --judge and a larger --group-size.",
    "rejected by the rule citation": "Leave out --rule citation.",
    "rejected by the rule support": "Leave out --rule support.",
}
"""what helps where nothing was left, by the reason"""


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


async def export_run(
    folder: Path, form: Form, out: Path | None, options: ExportOptions
) -> list[str]:
    """Write the finished steps of a run in a form; returns what is told of it.

    `out` None: into the run's folder. Raises SettingsError for a folder that is no run, where
    there is nothing to write, which leaves an earlier export as it is, and where a package is
    missing.
    """
    run = RunDirectory(folder)
    system = free_prompt(run.manifest())
    table = f"{options.of}.parquet" if form == "parquet" else f"{options.of}_hf"
    path = out or folder / NAMES.get(form, table)
    write = {"parquet": write_parquet, "hf": write_dataset}.get(form)
    holds = options.of if write else form

    def into(kind: type[Versioned]) -> Callable[[Path, Iterable[Any]], object]:
        return partial(write, kind=kind) if write else write_rows

    if form == "verl":
        told = [f"{write_verl(path, run.questions())} questions"]
    elif holds in ("rows", "trl"):
        rule = row_rule(options.credit, options.scaffold_ratio)
        imitate = form == "trl"
        results = each_encoded(run, options.model, rule, options.rules, imitate)
        told = await _rows(results, path, into(TrainRow), TokenRow.of if imitate else None)
    elif holds in ("sft", "conversations"):
        talks = (ExportedConversation.of(t, options.rules, system) for t in run.trajectories())
        told = _write_values(path, talks, into(ExportedConversation), "conversations")
    elif form == "pairs":
        dependence = row_rule(options.credit).dependence
        compare = partial(preference_pair, by=options.by, margin=options.margin)
        pairs = (compare(group, dependence=dependence) for group in judged_groups(run))
        told = _write_values(path, pairs, into(PreferencePair), "pairs")
    else:
        judged = (trajectory for group in judged_groups(run) for trajectory in group.each())
        what = "trajectories with what was judged of them"
        told = _write_values(path, judged, into(JudgedTrajectory), what)
    return [*told, f"in {path}"]


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

    def count(self, results: Iterable[TrainRow | str]) -> Iterator[TrainRow]:
        """The rows among them, each counted as it is taken; so is each reason.

        Raises SettingsError at the end where there were none.
        """
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
        if not self.objectives:
            raise _nothing("rows", self.dropped)

    def describe(self) -> list[str]:
        """What there is to train on, and what was left out."""
        rows = ", ".join(f"{count} {name}" for name, count in sorted(self.objectives.items()))
        total, trained = self.objectives.total(), self.trained_tokens
        told = [
            f"{total} row{'s' * (total != 1)} ({rows or 'none'}), "
            f"{trained} trained token{'s' * (trained != 1)}"
        ]
        for count, what in (
            (self.barred, "not sampled as they stand: no policy-gradient ratio may be formed"),
            (self.across, "form their ratio to what was sampled under a scaffold"),
            (self.scaffolded, "sampled under a scaffold: their log-probabilities without it are "
             "to be computed"),
        ):  # fmt: skip
            told += [f"{count} of them {what}"] if count else []
        return told + _describe_dropped(self.dropped.items())


async def _rows(
    results: Results,
    out: Path,
    write: Callable[[Path, Iterable[Any]], object],
    made: Callable[[TrainRow], Value] | None,
) -> list[str]:
    """Write rows, or what is `made` of each, as they come.

    In a thread: tokenisers are asked in this one meanwhile.
    """
    counts, loop = RowCounts(), asyncio.get_running_loop()

    async def following() -> TrainRow | str | None:
        return await anext(results, None)

    def draw() -> Iterator[TrainRow | str]:
        """For the thread: what the loop brings forth, one after another."""
        while (found := asyncio.run_coroutine_threadsafe(following(), loop).result()) is not None:
            yield found

    async with aclosing(results):
        rows = counts.count(draw())
        await asyncio.to_thread(write, out, map(made, rows) if made else rows)
    return counts.describe()


def _write_values(
    out: Path,
    found: Iterable[Value | str],
    write: Callable[[Path, Iterable[Any]], object],
    what: str,
) -> list[str]:
    """Write the values as they come; reasons in their place are counted."""
    kept, dropped = 0, Counter[str]()

    def values() -> Iterator[Value]:
        nonlocal kept
        for value in found:
            if isinstance(value, str):
                dropped[value] += 1
            else:
                kept += 1
                yield value
        if not kept:
            raise _nothing(what, dropped)

    write(out, values())
    return [f"{kept} {what}", *_describe_dropped(dropped.most_common())]


def _describe_dropped(reasons: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{count} dropped: {reason}" for reason, count in reasons]


def _nothing(what: str, dropped: Mapping[str, int]) -> SettingsError:
    """Why there is nothing to write, and what helps."""
    why = "; ".join(f"{count} left out, {reason}" for reason, count in dropped.items())
    helping = dict.fromkeys(REMEDIES[reason] for reason in dropped if reason in REMEDIES)
    return SettingsError(
        f"The run gives no {what}: {why or 'no step of it is finished'}.",
        " ".join(helping) or "Collect more: the same `rubricem collect` continues a run.",
    )
