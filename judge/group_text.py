"""A group as a judge of the whole reads it: what all runs share once, then what sets each apart."""

from collections.abc import Sequence
from dataclasses import dataclass

from judge.transcripts import cut_off, fitted_stages, written
from memory.schema import Segment, Stage, Trajectory
from memory.text import fenced

NOTHING = "(nothing beyond what is shared)"


@dataclass(frozen=True, slots=True)
class GroupText:
    """The shared beginning, empty if there is none, and one text for each trajectory."""

    shared: str
    attempts: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether no trajectory has anything that another has not."""
        return len(self.attempts) > 1 and set(self.attempts) == {NOTHING}


def group_text(trajectories: Sequence[Trajectory], characters: int) -> GroupText:
    """The longest run of segments that all begin with, and each one's rest, in so many characters.

    A lone trajectory shares nothing: all of it is its own.
    """
    whole = [[s for s in t.segments if s.kept and s.stage] for t in trajectories]
    length = shared_length(whole) if len(whole) > 1 else 0
    each = characters // (len(whole) + (length > 0))
    first = _shown(trajectories[0], whole[0][:length], each) if length else ""
    rests = (_shown(t, s[length:], each) for t, s in zip(trajectories, whole, strict=True))
    return GroupText(first, tuple(rest or NOTHING for rest in rests))


def shared_length(segments: Sequence[Sequence[Segment]]) -> int:
    """How many leading segments say the same, by the same author in the same stage."""
    count = 0
    for together in zip(*segments, strict=False):
        if len({(s.author, s.stage, s.text) for s in together}) > 1:
            break
        count += 1
    return count


def unreadable(trajectories: Sequence[Trajectory]) -> list[str]:
    """For each one why it cannot be held against others, or "".

    That is one cut off by others than the policy, and all of them where none holds anything. An
    empty one among others is simply the weakest.
    """
    if not any(written(trajectory, stage) for trajectory in trajectories for stage in Stage):
        return ["nothing was written"] * len(trajectories)
    return [cut_off(trajectory, Stage.ANSWER) for trajectory in trajectories]


def _shown(trajectory: Trajectory, segments: Sequence[Segment], characters: int) -> str:
    """The segments stage by stage, those stages left out that have none."""
    part = trajectory.model_copy(update={"segments": tuple(segments)})
    texts = {stage.value: text for stage, text in fitted_stages(part, Stage, characters) if text}
    return fenced(texts)
