"""Our episode as verl's agent loop, our judge as its reward manager, our memory in its checkpoints.

The loop does one rollout of a question on verl's servers, and for one rollout of each question
writes the reflections, as additional rows of the same batch. The reward manager passes a rollout to
the actor that has all groups (`training.verl.groups`) and waits for its scores, which go to the
loop's output; verl's own scalar is their mean, and is not trained on. The callback for checkpoints
has the actor copy rubrics and bank into each checkpoint, and restore them.

Settings are those of the environment and of the settings file, except those about the policy's
model; docs/verl.md names what to set in verl.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import ray
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

from rubricem.agent.learning.reflect import Reflector
from rubricem.agent.models.policy import TokenWriter
from rubricem.agent.research.recall import GivenRecall
from rubricem.agent.research.setup import Setup, open_researcher, resolve_auto
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.judge.reflection import ReflectionJudge
from rubricem.memory.errors import PolicyError, RubricemError, SettingsError, import_extra
from rubricem.memory.schema import ReflectionCandidate, SearchTool, Status, Trajectory
from rubricem.training.collect.questions import Question
from rubricem.training.collect.scaffolding import ask_under
from rubricem.training.rows.credit import CREDITS
from rubricem.training.rows.sequences import token_sequence, without_scaffold
from rubricem.training.verl.groups import (
    ACTOR,
    KEPT,
    EndedRollout,
    GroupOptions,
    GroupsActor,
    Member,
    Shown,
    group_options,
)
from rubricem.training.verl.plugin import ESTIMATORS, fields_of, response_of, token_rewards
from rubricem.training.verl.policy import ServerPolicy

REWARD, ROLLOUT = "reward_extra_info", "rollout"
"""an output's extra fields: the scores from the reward manager, and its input"""
CALLS = 10_000
"""rollouts that the actor answers at the same time"""


Opened = tuple[Setup, SearchTool]
"""the setup with its sources resolved, and these as one"""


class StageOutput(AgentLoopOutput):  # type: ignore[misc]
    """A response whose rewards are its tokens' advantages, when verl asks for its tensors."""

    response_stages: list[int]
    """0 to 3 of each response token, -1 for none; 0 in a reflection"""
    candidate: int = -1
    """the number of a reflection among those of its rollout; -1: it is the rollout"""

    def as_dict(self) -> dict[str, Any]:
        """What verl stores. If it was not judged it teaches nothing."""
        self.extra_fields.pop(ROLLOUT, None)  # it was judged, and is not kept with every batch
        found: dict[str, Any] = super().as_dict()
        stages, number = found.pop("response_stages"), found.pop("candidate", -1)
        told = found["extra_fields"].get(REWARD) or {}
        found["rm_scores"] = token_rewards(stages, told, number)
        return found


class ResearchLoop(AgentLoopBase):  # type: ignore[misc]
    """Named in the file of agent loops by this class's full name."""

    _sources: "asyncio.Task[Opened] | None" = None

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[StageOutput]:
        """One rollout of a row's question, preceded by its reflections if it is the one with any.

        Raises PolicyError if it failed.
        """
        options, groups = _options(self.config), _groups()
        setup, member = _setup(sampling_params), self._member(row)
        servers = self._servers(str(member.step))
        try:
            shown: Shown = await groups.begin.remote(member)
            trajectory = await self._ask(setup, servers, member, shown, options)
            if trajectory.status is Status.FAILED:
                raise PolicyError(f"the rollout failed: {trajectory.reason}")
            written: Sequence[ReflectionCandidate] = ()
            if options.reflections and member.reflects(options.seed):
                written = await self._reflect(setup, servers, trajectory, options)
            return self._outputs(EndedRollout(member, trajectory, tuple(written)), servers)
        except BaseException:
            # Also one that was cancelled: the others of its group wait for it.
            groups.fail.remote(member)
            raise

    def _member(self, row: Mapping[str, Any]) -> Member:
        prompt, told = row["raw_prompt"], row.get("extra_info") or {}
        messages = prompt.tolist() if isinstance(prompt, torch.Tensor) else list(prompt)
        rollout, held_out = self.rollout_config, bool(told.get("held_out"))
        steps = self.config.actor_rollout_ref.actor.optim.get("total_training_steps", -1) or -1
        step = int(row.get("global_steps", 0))
        return Member(
            group=str(row.get("uid", "")), number=int(row.get("session_id", 0)),
            size=rollout.val_kwargs.n if held_out else rollout.n,
            question=str(messages[-1]["content"]), step=step, place=int(told.get("index", 0)),
            asked=Question.model_validate_json(told["asked"]) if told.get("asked") else None,
            progress=min(max(step - 1, 0) / max(steps - 1, 1), 1.0) if steps > 0 else 0.0,
            fresh=bool(told.get("fresh")), held_out=held_out,
        )  # fmt: skip

    def _servers(self, version: str) -> ServerPolicy:
        rollout = self.rollout_config
        return ServerPolicy(
            self.server_manager, self.tokenizer, rollout.prompt_length + rollout.response_length,
            self.config.actor_rollout_ref.model.path, version, seeded=rollout.name == "vllm",
        )  # fmt: skip

    async def _ask(
        self, setup: Setup, servers: ServerPolicy, member: Member, shown: Shown, told: GroupOptions
    ) -> Trajectory:
        opened, tool = await self._open(setup)
        setup = replace(setup, sources=opened.sources, choices=opened.choices)

        async def policy() -> TokenWriter:
            return TokenWriter(servers)

        async with open_researcher(
            replace(setup, memory="off"), policy=policy, search_tool=tool
        ) as found:
            researcher = replace(found, recaller=GivenRecall(shown.recall))
            form, seed = member.whole.answer_format, member.seed(told.seed)
            return await researcher.ask(
                ask_under(setup.template, member.question, form, seed, shown.scaffold)
            )

    async def _reflect(
        self, setup: Setup, servers: ServerPolicy, run: Trajectory, told: GroupOptions
    ) -> Sequence[ReflectionCandidate]:
        """Candidates on a rollout; none if the servers fail, which does not fail the rollout."""
        judge = cast(ReflectionJudge, None)  # the actor has it, and scores them
        writing = Reflector(
            TokenWriter(servers), judge, setup.reflection_tokens, told.reflections, holds=False
        )
        try:
            return await writing.write(run, told.seed)
        except RubricemError:
            return ()

    def _outputs(self, ended: EndedRollout, servers: ServerPolicy) -> list[StageOutput]:
        """The outputs, the rollout last: verl takes its own metrics from the last one."""
        steps = {
            "min_global_steps": min(servers.steps, default=None),
            "max_global_steps": max(servers.steps, default=None),
        }
        most, trajectory = self.rollout_config.response_length, ended.trajectory

        def output(
            response: Mapping[str, list[Any]], turns: int, candidate: int, **more: Any
        ) -> StageOutput:
            extra = {**steps, **more}
            return StageOutput(
                **response, num_turns=turns, metrics=AgentLoopMetrics(), extra_fields=extra,
                candidate=candidate,
            )  # fmt: skip

        read = (token_sequence(written.segments) for written in ended.candidates)
        # A reflection is left out that has no sampled token.
        reflections = [
            output(fields_of(tokens, most, [0] * len(tokens.ids)), 2, number)
            for number, tokens in enumerate(read)
            if tokens is not None and tokens.sampled and len(tokens.ids) > tokens.prompt
        ]
        response = response_of(without_scaffold(trajectory), most)
        turns = 2 + 2 * trajectory.tool_calls
        return [*reflections, output(response, turns, -1, **{ROLLOUT: ended})]

    async def _open(self, setup: Setup) -> Opened:
        async def begin() -> Opened:
            settled = await resolve_auto(setup.over_whole_sources())
            tool = await _KEPT_OPEN.enter_async_context(settled.open_sources())
            await tool.prepare()
            return settled, tool

        opened = ResearchLoop._sources
        if opened is None or (opened.done() and opened.exception()):
            opened = ResearchLoop._sources = asyncio.create_task(begin())
        return await opened


_KEPT_OPEN = AsyncExitStack()
"""the sources of all rollouts, for as long as the process lives"""


def _options(config: Any) -> GroupOptions:
    return group_options(dict(config.get("rubricem") or {}))


def _groups() -> Any:
    """The actor of all groups. Raises SettingsError if the trainer has started none."""
    try:
        return ray.get_actor(ACTOR)
    except ValueError:
        name = f"{RubricCheckpoints.__module__}.{RubricCheckpoints.__qualname__}"
        raise SettingsError(
            "Nobody keeps the groups of this training.",
            f"Set trainer.checkpoint_callback_class={name}.",
        ) from None


def _setup(sampling: Mapping[str, Any]) -> Setup:
    """The setup at verl's temperature. Raises SettingsError for sampling that shifts ratios."""
    if (sampling.get("top_p", 1.0), sampling.get("top_k", -1)) != (1.0, -1):
        raise SettingsError(
            "rollouts are to be sampled from the whole distribution.",
            "Set actor_rollout_ref.rollout.top_p=1.0 and top_k=-1.",
        )
    temperature = float(sampling.get("temperature", 1.0))
    settings = load_settings()
    setup = setup_of(settings.model_copy(update={"decoding": "free"}))
    # Kept with the run is what was asked for.
    choices = {**setup.choices, "decoding": settings.decoding}
    return replace(setup, verify="off", choices=choices, temperature=temperature)


class StageReward(RewardManagerBase):  # type: ignore[misc]
    """Scores the rollouts of `training.verl.worker`, each when its whole group has ended."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **router: Any) -> None:
        super().__init__(config, tokenizer, compute_score)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """What one rollout is told; `data` is verl's batch of its outputs, with it last."""
        rollout = data[len(data) - 1].non_tensor_batch["tool_extra_fields"][ROLLOUT]
        stages = await _groups().end.remote(rollout)
        known = [score for score in stages.values() if isinstance(score, float)]
        return {
            "reward_score": float(np.mean(known)) if known else float("nan"),
            "reward_extra_info": stages,
        }


class RubricCheckpoints(CheckpointCallback):  # type: ignore[misc]
    """Starts the actor in the trainer's process, and has it save its part of each checkpoint."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        options, algorithm = _options(config), config.algorithm
        check_held_out(config)
        if algorithm.use_kl_in_reward or algorithm.adv_estimator not in ESTIMATORS:
            raise SettingsError(
                "the rewards are advantages of ours, which verl is to leave as they are.",
                f"Set algorithm.adv_estimator to {' or '.join(ESTIMATORS)}, and "
                "algorithm.use_kl_in_reward=False.",
            )
        actor: Any = ray.remote(GroupsActor)
        self._groups = actor.options(name=ACTOR, max_concurrency=CALLS).remote()
        resumed = _find_resumed(config.trainer)
        rule = CREDITS[ESTIMATORS[algorithm.adv_estimator]]
        ray.get(self._groups.open.remote(options, load_settings(), rule, resumed))

    def on_save(
        self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False,
        **more: Any,
    ) -> None:  # fmt: skip
        ray.get(self._groups.keep.remote(global_step, Path(checkpoint_dir).absolute()))


def check_held_out(config: Any) -> None:
    """Raises SettingsError for questions that verl would ask between steps without a mark.

    A rollout is not told that it validates: it would wait for a group as large as in training.
    """
    if not (config.trainer.get("val_before_train", True) or config.trainer.test_freq > 0):
        return
    parquet, files = import_extra("pyarrow.parquet", "verl"), config.data.val_files
    for name in [files] if isinstance(files, str) else files:
        path = Path(name).expanduser()
        read = path.is_file() and parquet.read_table(path, columns=["extra_info"]).to_pylist()
        if not all((row["extra_info"] or {}).get("held_out") for row in read or ()):
            raise SettingsError(
                f"{path} has questions that are not held out, and data.val_files names it.",
                "Write it by `python -m rubricem.training.verl.policy --held-out`, or set "
                "trainer.val_before_train=False and trainer.test_freq=-1.",
            )


def _find_resumed(trainer: Any) -> Path | None:
    """The checkpoint from which verl's trainer resumes; None: it begins.

    Raises SettingsError for one without our part.
    """
    found = None
    if trainer.resume_mode == "auto":
        found = find_latest_ckpt_path(str(Path(trainer.default_local_dir).absolute()))
    elif trainer.resume_mode == "resume_path":
        found = str(Path(trainer.resume_from_path).absolute())
    if found is not None and not (Path(found) / KEPT).is_dir():
        raise SettingsError(
            f"{found} has no rubrics and no bank: it was saved without them.",
            "Begin from another one, or with trainer.resume_mode=disable.",
        )
    return None if found is None else Path(found)
