"""A trajectory as a judge reads it: the text of each stage, fenced, and cut to what fits.

All of it is untrusted. A fence carries a name that its content cannot foresee, chat markers
are disarmed, and where a text must be shortened, tool output goes first.
"""

from collections.abc import Iterable, Sequence

from memory.interfaces import Passage
from memory.schema import Author, Decoding, Segment, Stage, Status, Trajectory
from memory.text import cut, fenced

LEAST_TOOL_CHARACTERS = 160
"""of one tool output, however little fits"""


def stage_segments(trajectory: Trajectory, stage: Stage) -> list[Segment]:
    """What was written or found in a stage. In free mode the runner's notes are no part of it."""
    forced = trajectory.decoding is Decoding.FORCED
    return [
        segment
        for segment in trajectory.segments
        if segment.kept
        and segment.stage is stage
        and (forced or segment.author is not Author.PROMPT)
    ]


def stage_text(trajectory: Trajectory, stage: Stage, tool_characters: int | None = None) -> str:
    """The text of a stage; of each tool output at most so many characters."""
    return "".join(
        cut(segment.text, tool_characters) if segment.author is Author.TOOL else segment.text
        for segment in stage_segments(trajectory, stage)
    ).strip()


def written(trajectory: Trajectory, stage: Stage) -> bool:
    """Whether the policy itself wrote anything in the stage."""
    return any(
        segment.author is Author.POLICY and segment.text.strip()
        for segment in stage_segments(trajectory, stage)
    )


def cut_off(trajectory: Trajectory, stage: Stage) -> str:
    """Why the stage was ended, or kept from being written, by other than the policy; or "".

    A run that failed broke off in the last stage it wrote, unless its answer was complete. A
    forced answer that holds nothing of the policy's because nothing was found is the tool's.
    """
    stages = list(Stage)
    cut = trajectory.cut_in
    if cut is not None and stages.index(stage) >= stages.index(cut):
        return f"the run was broken off: {trajectory.reason}"
    if trajectory.status is Status.FAILED:
        last = max((stages.index(s) for s in stages if written(trajectory, s)), default=0)
        complete = stage is Stage.ANSWER and "</answer>" in stage_text(trajectory, stage)
        if stages.index(stage) >= last and not complete:
            return f"the run broke off: {trajectory.reason}"
    forced = trajectory.decoding is Decoding.FORCED
    if forced and stage is Stage.ANSWER and not trajectory.sources:
        return f"there was nothing to answer from: {trajectory.reason}"
    return ""


def shown(trajectory: Trajectory, characters: int) -> str:
    """All stages, each under its name, in so many characters and their fences."""
    return fenced(
        {stage.value: text for stage, text in fitted_stages(trajectory, Stage, characters)}
    )


def shown_stage(trajectory: Trajectory, stage: Stage, characters: int) -> str:
    """One stage in so many characters, without a fence."""
    return dict(fitted_stages(trajectory, [stage], characters))[stage]


def shown_passages(passages: Sequence[Passage], characters: int) -> str:
    """Passages under their titles, in so many characters and their fences."""
    each = characters // max(len(passages), 1)
    return "\n".join(
        fenced({"passage": cut(f"{passage.title}\n{passage.text}", each)}) for passage in passages
    )


def distinct(trajectories: Sequence[Trajectory]) -> list[int]:
    """Places of the trajectories that say something another before them does not."""
    seen: set[str] = set()
    places = []
    for place, trajectory in enumerate(trajectories):
        text = trajectory.transcript()
        if text not in seen:
            seen.add(text)
            places.append(place)
    return places


def fitted_stages(
    trajectory: Trajectory, stages: Iterable[Stage], characters: int
) -> list[tuple[Stage, str]]:
    """The stages' texts: tool outputs share the room that the rest leaves; then all is cut."""
    chosen = list(stages)
    segments = [s for stage in chosen for s in stage_segments(trajectory, stage)]
    outputs = sum(s.author is Author.TOOL for s in segments)
    own = sum(len(s.text) for s in segments if s.author is not Author.TOOL)
    each = max((characters - own) // max(outputs, 1), LEAST_TOOL_CHARACTERS)
    texts = [(stage, stage_text(trajectory, stage, each)) for stage in chosen]
    scale = min(1.0, characters / max(sum(len(text) for _, text in texts), 1))
    return [(stage, cut(text, int(len(text) * scale))) for stage, text in texts]
