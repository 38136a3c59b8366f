"""Our episode as verl's agent loop, and our judge as its reward manager.

The loop does one rollout of a question by the graph, on verl's servers. Settings are those of the
environment and of the settings file, as for `rubricem ask`; what they say of the model is not read.
verl makes an object for each rollout; what costs something to open is opened once in a process.

The reward manager runs in the processes of verl's reward loop, named by reward.reward_manager:
source=importlib, name=StageReward and module.path=pkg://rubricem.training.verl.worker. The judge's
model is named by the settings (RUBRICEM_BASE_URL, RUBRICEM_MODEL), as for `rubricem judge`. What it
says of each stage goes to the agent loop's output; verl's own scalar is its mean, and nothing is
learnt from it.
"""

import asyncio
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rubricem.agent.learning.scoring import open_group_judge
from rubricem.agent.models.policy import TokenWriter
from rubricem.agent.research.setup import Setup, open_researcher, settle
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import model_of, setup_of, stores_of
from rubricem.judge.build import Wanted
from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import SearchTool, Status, Trajectory
from rubricem.training.verl.codes import encoded, response_of
from rubricem.training.verl.policy import RolloutScorer, ServerPolicy

REWARD, TRAJECTORY = "reward_extra_info", "trajectory"
"""of an output's extra fields: the scores that the reward manager told, and the run as JSON"""


Opened = tuple[Setup, SearchTool]
"""the setup with its sources settled, and these as one"""


class StageOutput(AgentLoopOutput):  # type: ignore[misc]
    """A rollout whose rewards are written as stage codes, when verl asks for its tensors."""

    response_stages: list[int]
    """0 to 3 of each response token, -1 for none"""

    def as_dict(self) -> dict[str, Any]:
        """What verl stores. A rollout that was not judged has every score unknown."""
        found: dict[str, Any] = super().as_dict()
        stages, extra = found.pop("response_stages"), found["extra_fields"]
        extra.pop(TRAJECTORY, None)
        found["rm_scores"] = encoded(stages, extra.get(REWARD) or {})
        return found


class ResearchLoop(AgentLoopBase):  # type: ignore[misc]
    """Named in the file of agent loops by this class's full name."""

    _sources: "asyncio.Task[Opened] | None" = None

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> StageOutput:
        """One rollout of a row's question. Raises PolicyError for one that failed."""
        setup = _setup(sampling_params)
        model = self.config.actor_rollout_ref.model.path
        version = str(row.get("global_steps", ""))
        room = self.rollout_config.prompt_length + self.rollout_config.response_length
        servers = ServerPolicy(self.server_manager, self.tokenizer, room, model, version)
        prompt = row["raw_prompt"]  # a tensor or array holds its messages whole
        messages = prompt.tolist() if isinstance(prompt, torch.Tensor) else list(prompt)
        trajectory = await self._ask(setup, servers, str(messages[-1]["content"]))
        if trajectory.status is Status.FAILED:
            raise PolicyError(f"the rollout failed: {trajectory.reason}")
        return StageOutput(
            **response_of(trajectory, self.rollout_config.response_length),
            num_turns=2 + 2 * trajectory.tool_calls,
            metrics=AgentLoopMetrics(),
            extra_fields={
                TRAJECTORY: trajectory.model_dump_json(),
                "min_global_steps": min(servers.steps, default=None),
                "max_global_steps": max(servers.steps, default=None),
            },
        )

    async def _ask(self, setup: Setup, servers: ServerPolicy, question: str) -> Trajectory:
        opened, tool = await self._open(setup)
        setup = replace(setup, sources=opened.sources, choices=opened.choices)

        async def policy() -> TokenWriter:
            return TokenWriter(servers)

        async with open_researcher(setup, policy=policy, search_tool=tool) as researcher:
            ask = replace(setup.template, question=question, seed=random.randrange(2**31))
            return await researcher.ask(ask)

    async def _open(self, setup: Setup) -> Opened:
        async def begin() -> Opened:
            settled = await settle(setup.over_whole_sources())
            tool = await _KEPT_OPEN.enter_async_context(settled.open_sources())
            await tool.prepare()
            return settled, tool

        opened = ResearchLoop._sources
        if opened is None or (opened.done() and opened.exception()):
            opened = ResearchLoop._sources = asyncio.create_task(begin())
        return await opened


_KEPT_OPEN = AsyncExitStack()
"""the sources of all rollouts, for as long as the process lives"""


def _setup(sampling: Mapping[str, Any]) -> Setup:
    """The setup at verl's temperature. Raises SettingsError for sampling that shifts ratios."""
    if (sampling.get("top_p", 1.0), sampling.get("top_k", -1)) != (1.0, -1):
        raise SettingsError(
            "rollouts are to be sampled from the whole distribution.",
            "Set actor_rollout_ref.rollout.top_p=1.0 and top_k=-1.",
        )
    temperature = float(sampling.get("temperature", 1.0))
    settings = load_settings().model_copy(update={"temperature": temperature})
    setup = setup_of(settings.model_copy(update={"decoding": "free"}))
    # Kept with the run is what was asked for.
    choices = {**setup.choices, "decoding": settings.decoding}
    return replace(setup, verify="off", choices=choices)


class StageReward(RewardManagerBase):  # type: ignore[misc]
    """Scores the rollouts of `training.verl.worker`."""

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
        known = [score for score in stages.values() if isinstance(score, float)]
        return {
            "reward_score": float(np.mean(known)) if known else float("nan"),
            "reward_extra_info": stages,
        }

    async def _open(self) -> RolloutScorer:
        settings = load_settings()
        folder = stores_of(settings).data_dir
        opening = open_group_judge(model_of(settings), Wanted("stage"), folder / "replies")
        judge = await self._opened.enter_async_context(opening)
        return RolloutScorer(judge, BufferStore(folder / "buffers"))
