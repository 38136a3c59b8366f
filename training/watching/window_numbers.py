"""The rows of one step in numbers: what their stages are to learn, and how long they are."""

from collections.abc import Iterable, Sequence

from memory.schema import Stage
from training.rounds.spread import Numbers, share, spread
from training.rows import TrainRow


def window_numbers(rows: Sequence[TrainRow]) -> Numbers:
    """Rows and groups, lengths in tokens, advantages by stage."""
    lengths = [float(len(row.ids)) for row in rows]
    return {
        "rows": float(len(rows)),
        "groups": float(len({row.group for row in rows})),
        **spread("row_tokens", lengths, ("mean", "max")),
        **spread("prompt_tokens", [float(row.prompt_tokens) for row in rows], ("mean",)),
        **advantage_numbers(rows),
    }


def advantage_numbers(rows: Iterable[TrainRow]) -> Numbers:
    """Of each trained stage of each row, in the units of the rule; what is imitated has none."""
    stages: dict[Stage, list[float]] = {stage: [] for stage in Stage}
    for row in (row for row in rows if row.objective != "sft"):
        trained = zip(row.stages, row.advantages, row.loss_mask, strict=True)
        of_stage = {stage: advantage for stage, advantage, on in trained if on}
        for number, stage in enumerate(Stage):
            if number in of_stage:
                stages[stage].append(of_stage[number])
    numbers: Numbers = {}
    for stage, values in stages.items():
        numbers |= spread(f"advantage/{stage}", values, ("mean", "std"))
        numbers |= spread(f"advantage/{stage}/size", list(map(abs, values)), ("max",))
        numbers |= share(f"advantage/{stage}/positive_share", (value > 0 for value in values))
    return numbers
