"""Our judge as verl's reward manager, in the processes of verl's reward loop.

Named by reward.reward_manager: source=importlib, name=StageReward and
module.path=pkg://training.verl_engine.reward.

The judge's model is named by the settings (RUBRICEM_BASE_URL, RUBRICEM_MODEL), as for
`rubricem judge`. What it says of each stage goes to the agent loop's output; verl's own scalar is
its mean, and nothing is learnt from it.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from agent.judging import open_group_judge
from agent.settings import load_settings
from judge.building import Wanted
from memory.buffers import BufferStore
from memory.schema import Trajectory
from training.verl_engine.scoring import RolloutScorer


class StageReward(RewardManagerBase):  # type: ignore[misc]
    """Scores the rollouts of `training.verl_engine.agent_loop`."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **router: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        self._scorer: asyncio.Task[RolloutScorer] | None = None
        self._opened = AsyncExitStack()

    async def run_single(self, data: Any) -> dict[str, Any]:
        """The stage scores of one rollout; `data` is verl's batch of its outputs."""
        fields = data[len(data) - 1].non_tensor_batch["tool_extra_fields"]
        trajectory = Trajectory.model_validate_json(fields["trajectory"])
        if self._scorer is None or (self._scorer.done() and self._scorer.exception()):
            self._scorer = asyncio.create_task(self._open())
        stages = await (await self._scorer)(trajectory)
        known = [score for score in stages.values() if score >= 0]
        return {
            "reward_score": float(np.mean(known)) if known else float("nan"),
            "reward_extra_info": stages,
        }

    async def _open(self) -> RolloutScorer:
        settings = load_settings()
        judge = await self._opened.enter_async_context(open_group_judge(settings, Wanted("stage")))
        return RolloutScorer(judge, BufferStore(settings.data_dir / "buffers"))
