"""The form of a round's rollouts: lengths by author and stage, turns, tools, what broke off."""

from collections.abc import Iterable, Sequence

from agent.rejection import rejected, tool_error
from memory.schema import Author, Segment, Stage, Status, Trajectory
from training.rounds.spread import Numbers, share, spread


def form_numbers(runs: Sequence[Trajectory]) -> Numbers:
    """Lengths are in tokens, and left out where the server gave no ids."""
    numbers: Numbers = {}
    for author in Author:
        numbers |= spread(f"tokens/{author}", _lengths(runs, author, None), ("mean", "max"))
        for stage in Stage:
            lengths = _lengths(runs, author, stage)
            numbers |= spread(f"tokens/{author}/{stage}", lengths, ("mean",))
    turns = [float(max((s.turn for s in run.segments if s.kept), default=0)) for run in runs]
    written = [s for run in runs for s in _of(run, Author.POLICY)]
    outputs = (s.text for run in runs for s in _of(run, Author.TOOL))
    return {
        **numbers,
        **spread("turns", turns, ("mean",)),
        **spread("tool_calls", [float(run.tool_calls) for run in runs], ("mean",)),
        **share("tool_error_share", (tool_error(text.strip()) is not None for text in outputs)),
        **share("cut_off_share", (run.status is not Status.FINISHED for run in runs)),
        **share("malformed_share", (rejected(run) is not None for run in runs)),
        **share("retokenised_share", (segment.retokenised for segment in written)),
    }


def _lengths(runs: Iterable[Trajectory], author: Author, stage: Stage | None) -> list[float]:
    """Of each run that has such segments, all with ids; `stage` None: of all stages."""
    found = []
    for run in runs:
        segments = [s for s in _of(run, author) if stage is None or s.stage is stage]
        if segments and all(s.token_ids is not None for s in segments):
            found.append(float(sum(len(s.token_ids or ()) for s in segments)))
    return found


def _of(run: Trajectory, author: Author) -> list[Segment]:
    return [s for s in run.segments if s.kept and s.author is author]
