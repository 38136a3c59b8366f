"""One rollout judged by itself, on rubrics that were made before the training.

verl rewards each rollout alone, so nothing is there to contrast, and rubrics that a judge made for
one would not be those of the others of its question. Only questions with rubrics of their own are
scored; all rollouts of a question, on all machines, are then held to the same ones.
"""

from judge.composed_judge import GroupJudge
from memory.buffers import BufferStore
from memory.errors import JudgeError
from memory.schema import Trajectory, TrajectoryGroup
from training.verl_engine.rollout import told


class RolloutScorer:
    """A judge with the rubrics of a data directory."""

    def __init__(self, judge: GroupJudge, buffers: BufferStore) -> None:
        self._judge, self._buffers = judge, buffers

    async def __call__(self, trajectory: Trajectory) -> dict[str, float]:
        """The score of each stage by its name, in the form of `training.verl_engine.rollout.told`.

        A judge that fails leaves stages unscored. Raises JudgeError where the question has no
        rubrics.
        """
        buffer = self._buffers.load(trajectory.question)
        if not any(buffer.persistent.values()):
            raise JudgeError(
                f"there are no rubrics for the question {trajectory.question!r}.",
                "Make them before the training: rubricem judge rubrics from-search QUESTION.",
            )
        group = TrajectoryGroup(question=trajectory.question, trajectories=(trajectory,))
        judged = await self._judge.judge(group, buffer)
        return told(judged.judgements[0])
