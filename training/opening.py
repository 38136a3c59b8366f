"""From settings to a collector: one policy, which also reflects and, if embedded, judges."""

import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agent.auto_source import settled
from agent.clients import choices_of, open_researcher
from agent.events import Event, SourceProgress
from agent.journaled import Calls, JournaledChat, JournaledPolicy, JournaledReader
from agent.judging import chain_of, open_judge_model
from agent.policy import Policy, TokenWriter
from agent.reflecting import ReflectionJudge, accepted, reflect
from agent.researcher import Researcher
from agent.settings import Settings
from judge.building import JudgeModel, LocalModel, reflection_judge
from memory.buffers import BufferStore
from memory.errors import SettingsError
from memory.schema import Judgement, Trajectory
from training.collecting import TOLD_EVERY, Collector
from training.flow import Flow
from training.gated_policy import GatedPolicy
from training.groups import Reflected, Rollouts, step_of
from training.judges import NONE, collecting_judge, known_judge
from training.meter import Meter
from training.opening_flow import at_once, check_priced, judged_at_once
from training.purse import Purse
from training.questions_selecting import Selected
from training.ray_workers import RayOptions, ray_rollouts
from training.run_directory import Manifest, RunDirectory, hash_of
from training.scaffolding import ScaffoldRule
from training.step_memory import step_memory

Tell = Callable[[str], None]
_COUNTS = re.compile(r":? \d+(?:%| of \d+).*")


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """What is collected, beside the settings that every answer has."""

    group_size: int = 4
    step_size: int = 4
    """questions in one step"""
    judge: str = "stage"
    """as `training.judges` names them; "none": rollouts are not judged"""
    judge_model: str | None = None
    """None: the policy's own model"""
    judge_base_url: str | None = None
    reflections: int = 8
    """candidates for each judged group; 0: none"""
    scaffold: ScaffoldRule | None = None
    windows: int = 0
    """steps of new questions after which the same are asked again; 0: none are"""
    max_run_cost: float | None = None
    """US dollars that the whole run may cost"""
    taught: bool = False
    """the policy's model is a teacher, whose rollouts are imitated"""
    ray: RayOptions | None = None
    """where rollouts are written; None: in this process"""


@asynccontextmanager
async def open_collector(
    settings: Settings,
    options: CollectOptions,
    run: RunDirectory,
    asked: Selected,
    tell: Tell,
    purse: Purse | None = None,
) -> AsyncIterator[Collector]:
    """A collector that begins a run, or goes on with it; its models are freed at the end.

    `purse`: one that other runs share; None: its own, with what the options allow.

    Raises SettingsError where the folder holds another run, StoreError where another process
    is collecting into it.
    """
    listen = preparing(tell)
    known_judge(options.judge)
    if settings.dialect is None and settings.decoding == "free" and not options.taught:
        settings = settings.model_copy(update={"dialect": "auto"})
    _check_windows(settings, options)
    # The run's folder names what `auto` took, so that it goes on with that or says so.
    settings = await settled(settings, listener=listen)
    async with open_researcher(settings, listen) as opened:
        meter = Meter()
        finished = run.finished_steps()
        journal = run.journal(meter.hear, lambda thread: step_of(thread) >= finished)
        purse = purse or Purse(options.max_run_cost)
        flow = Flow(journal, meter, purse, tell=tell)
        try:
            policy = GatedPolicy(opened.policy, flow)
            researcher = replace(
                opened, policy=policy, store=run.store, journal=journal, verifier=None
            )
            judged_by = judge_settings(settings, options)
            async with _judge_model(judged_by, settings, options, opened.policy) as model:
                if purse.most is not None:
                    writer = getattr(opened.policy, "model", None)
                    check_priced(writer, model, limit=purse.limit)
                name = model.name if model else ""
                manifest = _manifest(settings, options, researcher, name, asked)
                run.begin(manifest, asked.questions, asked.held_out)
                async with _rollouts(settings, options, researcher, flow) as rollouts:
                    collector = Collector(
                        run=run,
                        rollouts=rollouts,
                        calls=Calls(journal),
                        buffers=BufferStore(settings.data_dir / "buffers"),
                        flow=flow,
                        memory=step_memory(settings, researcher, listen),
                        at_once=at_once(settings, options.ray.workers if options.ray else 1),
                        judged_at_once=judged_at_once(
                            settings, judged_by, options.group_size, apart=options.ray is not None
                        ),
                        tell=tell,
                    )
                    if model:
                        _judge_with(collector, model, opened.policy, settings, options)
                    yield collector
        finally:
            journal.close()


@asynccontextmanager
async def _rollouts(
    settings: Settings, options: CollectOptions, researcher: Researcher, flow: Flow
) -> AsyncIterator[Rollouts]:
    if options.ray is None:
        yield researcher
        return
    async with ray_rollouts(options.ray, settings, researcher, flow) as elsewhere:
        yield elsewhere


def _check_windows(settings: Settings, options: CollectOptions) -> None:
    """A question that comes again has learnt something only where its reflection was kept."""
    taught = settings.memory == "on" and options.judge != NONE and options.reflections
    if options.windows and not taught:
        raise SettingsError(
            "--windows asks questions again with what they taught, and nothing is to be kept.",
            "Use --memory on, a judge, and at least one reflection; or leave out --windows.",
        )


def preparing(tell: Tell, clock: Callable[[], float] = time.monotonic) -> Callable[[Event], None]:
    """Tells what is prepared: each kind of work once, and how far it is as often as progress."""
    told: dict[str, float] = {}

    def listen(event: Event) -> None:
        if isinstance(event, SourceProgress):
            work, now = _COUNTS.sub("", event.message), clock()
            again = work in told
            if not again or now - told[work] >= TOLD_EVERY:
                told[work] = now
                tell(event.message if again else work)

    return listen


def judge_settings(settings: Settings, options: CollectOptions) -> Settings:
    """The settings that name the judge's model: the policy's, unless another one is named."""
    same = options.judge_model in (None, settings.model)
    if same and options.judge_base_url in (None, settings.base_url):
        return settings
    named = {"model": options.judge_model, "base_url": options.judge_base_url}
    return settings.model_copy(update=named)


class Reflector:
    """Has the policy reflect on a judged run, and the judge choose among what it wrote."""

    def __init__(
        self,
        policy: Policy,
        judge: ReflectionJudge,
        candidates: int,
        least_score: float | None = None,
    ) -> None:
        self._policy = policy
        self._judge = judge
        self._candidates = candidates
        self._least_score = least_score

    async def __call__(
        self, trajectory: Trajectory, judgement: Judgement | None, seed: int
    ) -> Reflected:
        found = await reflect(
            self._policy,
            trajectory,
            judgement,
            self._judge,
            self._candidates,
            seed,
            minimum=self._least_score,
        )
        best = accepted(
            found,
            self._policy.name,
            self._policy.version,
            judgement=judgement,
            source_texts=[source.text for source in trajectory.sources],
        )
        return Reflected(trajectory_id=trajectory.id, candidates=tuple(found), reflection=best)


@asynccontextmanager
async def _judge_model(
    judged_by: Settings, settings: Settings, options: CollectOptions, policy: Policy
) -> AsyncIterator[JudgeModel | None]:
    if options.judge == NONE:
        yield None
        return
    own = judged_by is settings and isinstance(policy, TokenWriter)
    shared: Any = policy.model if own and isinstance(policy, TokenWriter) else None
    async with open_judge_model(judged_by, shared) as model:
        yield model


def _judge_with(
    collector: Collector,
    model: JudgeModel,
    policy: Policy,
    settings: Settings,
    options: CollectOptions,
) -> None:
    """Give the collector a judge whose calls are journaled and gated like all others."""
    flow = collector.flow
    calls = Calls(flow.journal, partial(flow.call, model.name))
    journaled: Any = (
        JournaledReader(model, model, calls)
        if isinstance(model, LocalModel)
        else JournaledChat(model, calls)
    )
    collector.judge = collecting_judge(
        options.judge, journaled, settings.seed, chain_of(judge_settings(settings, options))
    )
    if options.reflections:
        calls = Calls(flow.journal, partial(flow.call, policy.name))
        judge = reflection_judge(journaled)
        least = settings.least_reflection_score
        collector.reflecting = Reflector(
            JournaledPolicy(policy, calls), judge, options.reflections, least
        )


def _manifest(
    settings: Settings,
    options: CollectOptions,
    researcher: Researcher,
    judge: str,
    asked: Selected,
) -> Manifest:
    shaping = {"answer_format": settings.answer_format.value, "max_tokens": settings.max_tokens}
    return Manifest(
        policy=researcher.policy.name,
        policy_version=researcher.policy.version,
        decoding=researcher.decoding,
        teacher=researcher.policy.name if options.taught else "",
        judge=judge,
        judge_kind=known_judge(options.judge),
        group_size=options.group_size,
        step_size=options.step_size,
        windows=options.windows,
        reflections=0 if options.judge == NONE else options.reflections,
        memory=settings.memory,
        seed=settings.seed,
        tool_calls=settings.tool_calls,
        scaffold=options.scaffold,
        settings={**choices_of(settings), **shaping, "context_tokens": settings.context_tokens},
        questions_sha256=hash_of(asked.questions),
        selection=asked.selection,
    )
