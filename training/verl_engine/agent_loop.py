"""Our episode as verl's agent loop: one rollout of a question by the graph, on verl's servers.

Settings are those of the environment and of the settings file, as for `rubricem ask`; what they
say of the model is not read. verl makes an object for each rollout; what costs something to open is
opened once in a process.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from agent.auto_source import settled
from agent.building import built
from agent.clients import choices_of, template_of
from agent.events import ignore
from agent.opened_sources import open_sources
from agent.policy import TokenWriter
from agent.settings import Settings, load_settings
from memory.errors import PolicyError, SettingsError
from memory.interfaces import SearchTool
from memory.schema import Decoding, Status, Trajectory
from training.verl_engine.rollout import read_back, response_of
from training.verl_engine.server_policy import ServerPolicy
from training.verl_engine.stage_codes import encoded

REWARD, TRAJECTORY = "reward_extra_info", "trajectory"
"""of an output's extra fields: the scores that the reward manager told, and the run as JSON"""


Sources = tuple[tuple[str, ...], SearchTool]
"""what is searched, by its names and as one"""


class StageOutput(AgentLoopOutput):  # type: ignore[misc]
    """A rollout whose rewards are written as stage codes, when verl asks for its tensors."""

    response_stages: list[int]
    """0 to 3 of each response token, -1 for none"""

    def as_dict(self) -> dict[str, Any]:
        """What verl stores. A rollout that was not judged has every score unknown."""
        found: dict[str, Any] = super().as_dict()
        stages, extra = found.pop("response_stages"), found["extra_fields"]
        extra.pop(TRAJECTORY, None)
        found["rm_scores"] = encoded(stages, *read_back(extra.get(REWARD) or {}))
        return found


class ResearchLoop(AgentLoopBase):  # type: ignore[misc]
    """Named in the file of agent loops by this class's full name."""

    _sources: "asyncio.Task[Sources] | None" = None

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> StageOutput:
        """One rollout of a row's question. Raises PolicyError for one that failed."""
        settings = _settings(sampling_params)
        model = self.config.actor_rollout_ref.model.path
        version = str(row.get("global_steps", ""))
        room = self.rollout_config.prompt_length + self.rollout_config.response_length
        servers = ServerPolicy(self.server_manager, self.tokenizer, room, model, version)
        trajectory = await self._asked(settings, servers, _question(row))
        if trajectory.status is Status.FAILED:
            raise PolicyError(f"the rollout failed: {trajectory.reason}")
        response = response_of(trajectory, self.rollout_config.response_length)
        return StageOutput(
            prompt_ids=list(response.prompt),
            response_ids=list(response.ids),
            response_mask=list(response.mask),
            response_logprobs=list(response.logprobs),
            response_stages=list(response.stages),
            num_turns=2 + 2 * trajectory.tool_calls,
            metrics=AgentLoopMetrics(),
            extra_fields={
                TRAJECTORY: trajectory.model_dump_json(),
                "min_global_steps": min(servers.steps, default=None),
                "max_global_steps": max(servers.steps, default=None),
            },
        )

    async def _asked(self, settings: Settings, servers: ServerPolicy, question: str) -> Trajectory:
        names, tool = await self._opened(settings)
        settings = settings.model_copy(update={"source": names})
        template = template_of(settings)
        writer, choices = TokenWriter(servers), await asyncio.to_thread(choices_of, settings)
        researcher = built(settings, writer, Decoding.FREE, tool, template, choices, ignore)
        ask = replace(template, question=question, seed=random.randrange(2**31))
        return await replace(researcher, verifier=None).ask(ask)

    async def _opened(self, settings: Settings) -> Sources:
        opened = ResearchLoop._sources
        if opened is None or (opened.done() and opened.exception()):
            opened = ResearchLoop._sources = asyncio.create_task(_ready(settings))
        return await opened


async def _ready(settings: Settings) -> Sources:
    settings = await settled(settings)
    tool = await open_sources(settings, ignore)
    await tool.prepare()
    return settings.source, tool


def _settings(sampling: Mapping[str, Any]) -> Settings:
    """The settings at verl's temperature. Raises SettingsError for sampling that shifts ratios."""
    if (sampling.get("top_p", 1.0), sampling.get("top_k", -1)) != (1.0, -1):
        raise SettingsError(
            "rollouts are to be sampled from the whole distribution.",
            "Set actor_rollout_ref.rollout.top_p=1.0 and top_k=-1.",
        )
    temperature = float(sampling.get("temperature", 1.0))
    return load_settings().model_copy(update={"temperature": temperature})


def _question(row: Mapping[str, Any]) -> str:
    """The last message of the row's prompt; a tensor or array holds it whole."""
    prompt = row["raw_prompt"]
    messages = prompt.tolist() if isinstance(prompt, torch.Tensor) else list(prompt)
    return str(messages[-1]["content"])
