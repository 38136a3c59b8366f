"""From settings to a collector: one policy, which also reflects and, if embedded, judges."""

import asyncio
import math
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rubricem.agent.learning.reflect import Reflector
from rubricem.agent.learning.scoring import (
    Support,
    bound_by_support,
    gate_scores,
    resolve_judge,
)
from rubricem.agent.models.opening import OpenPolicy, PolicyChoice, in_tokens
from rubricem.agent.models.policy import Policy
from rubricem.agent.reports.verifier import AnswerVerifier
from rubricem.agent.research.recall import BankRecaller
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.setup import Setup, open_researcher, resolve_auto
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import CHOICES, TURN, judging, model_of, setup_of
from rubricem.agent.transcript.events import Tell, once_each
from rubricem.agent.transcript.question import Effort
from rubricem.judge.build import (
    NONE,
    JudgeModel,
    Wanted,
    build_judge,
    identify_judge,
    kind_of,
    reflection_judge,
)
from rubricem.judge.composed import RUBRIC, compositions_of
from rubricem.judge.relative import version_of
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import SettingsError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import Journal
from rubricem.memory.schema import Decoding, GroupJudge, Reflection, Stage
from rubricem.training.collect.collect_config import CollectConfig, GroupsConfig
from rubricem.training.collect.collector import Collector
from rubricem.training.collect.directory import Manifest, RunDirectory, hash_of
from rubricem.training.collect.gate import GatedPolicy, Meter, Purse, RunGate, check_priced
from rubricem.training.collect.questions import Selected
from rubricem.training.collect.remote import open_workers
from rubricem.training.collect.scaffolding import ScaffoldRule


@dataclass
class BankMemory:
    """The bank as a step sees it: recalled from as of its beginning, added to at its end."""

    setup: Setup
    researcher: Researcher
    tell: Tell
    bank: RubricBank

    async def generation(self) -> int:
        return await self.bank.generation()

    def pin(self, generation: int, *, own: bool = True) -> None:
        self.researcher.recaller = BankRecaller(
            self.bank,
            context_tokens=self.researcher.policy.context_tokens,
            generation=generation,
            own=own,
            tell=self.tell,
            bars=self.setup.bars(self.researcher.policy),
        )

    async def put(self, reflection: Reflection) -> bool:
        learnt = reflection.model_copy(update={"server": self.setup.model.server})
        return await self.bank.put(learnt) if self.setup.memory == "on" else False


SHAPING = ("answer_format", "max_tokens", "context_tokens")
SHOWN = ("passages", "passage_words", "system_prompt")
"""what shapes a run beside the settings that are kept with every answer"""


def check_config(setup: Setup, config: GroupsConfig) -> Wanted:
    """The judge that is wanted; a file of standards is read.

    Raises SettingsError for an unknown judge, and for options that exclude one another.
    """
    identify_judge(config.judge)
    stores, seed = setup.stores, setup.template.seed
    wanted = resolve_judge(kind_of(config.judge), config.rubric, stores.data_dir, seed)
    wanted.check()
    taught = setup.memory == "on" and config.judge != NONE and config.reflections
    if config.windows and not taught:
        # A question that comes again has learnt something only where its reflection was kept.
        raise SettingsError(
            "`windows` asks questions again with what they taught, and nothing is to be kept.",
            "Use memory, a judge, and at least one reflection; or leave out `windows`.",
        )
    return wanted


@asynccontextmanager
async def open_collector(
    settings: Settings, config: CollectConfig, run: RunDirectory, asked: Selected, tell: Tell,
    purse: Purse | None = None, policy: OpenPolicy | None = None, *,
    progress: float = 0.0, buffers: Path | None = None,
) -> AsyncIterator[Collector]:  # fmt: skip
    """A collector that begins or continues a run.

    `policy`: as for `open_researcher`. `progress`: of the training that it is a round of, 0 to 1.
    `buffers`: the folder of the rubrics that the judge makes; None: that of the data directory.

    Raises SettingsError if the folder contains another run, or for sampling that shifts ratios;
    StoreError if another process is collecting into it.
    """
    quietly = once_each(tell)
    setup = shape(await asyncio.to_thread(setup_of, settings), config, settings)
    wanted = await asyncio.to_thread(check_config, setup, config)
    # The run's folder names what `auto` took, so that it goes on with that or says so.
    setup = await resolve_auto(setup.over_whole_sources(), tell=quietly)
    judged_by = judge_choice(settings, setup, config)
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_researcher(setup, quietly, policy=policy))
        meter = Meter()
        journal = stack.enter_context(closing(_open_journal(run, meter)))
        gate = RunGate(journal, meter, purse or Purse(config.max_run_cost), tell=tell)
        writing, store = GatedPolicy(opened.policy, gate), run.store
        rules = AnswerVerifier("mark", None)
        researcher = replace(opened, policy=writing, store=store, journal=journal, verifier=rules)
        model = None
        if config.judge != NONE:
            shared = opened.policy.reader if judged_by is setup.model else None
            model = await stack.enter_async_context(judged_by.open_judge(shared=shared))
        if (limit := gate.purse).most is not None:
            check_priced(getattr(opened.policy, "model", None), model, limit=limit.limit)
        manifest = _manifest(setup, config, wanted, researcher, model, progress, asked)
        run.begin(manifest, asked.questions, asked.held_out, (*CHOICES, *SHAPING, *SHOWN))
        # As many groups as could fill the judge's server; None: they share the rollouts' places.
        size = 1 if judged_by.embedded else config.group_size
        groups = None if setup.model.embedded else math.ceil(judged_by.at_once / size)
        collector = Collector(
            run=run, rollouts=researcher, gate=gate, tell=tell,
            buffers=BufferStore(buffers or setup.stores.data_dir / "buffers"),
            at_once=setup.model.at_once,
            prices=(getattr(getattr(opened.policy, "model", None), "price", None),
                    getattr(model, "price", None)),
            judged_at_once=groups,
        )  # fmt: skip
        if setup.memory != "off":
            bank = setup.stores.open_bank(quietly)
            collector.memory = BankMemory(setup, researcher, quietly, bank)
        if model is not None:
            own = replace(wanted, chain=judged_by.chain)
            _let_judge(collector, config, own, model, opened.policy, setup.reflection_tokens)
        if config.ray_workers:
            workers = open_workers(config.ray_workers, setup, collector, researcher)
            collector.elsewhere = (await stack.enter_async_context(workers)).collect
        yield collector


def _let_judge(
    collector: Collector, config: CollectConfig, wanted: Wanted, model: JudgeModel, policy: Policy,
    tokens: int,
) -> None:  # fmt: skip
    """Have groups judged by a model, and the policy reflect on them in so many tokens."""
    gate = collector.gate
    judging = gate.with_journal(model)
    collector.judge = supported_judge(config.judge, judging, wanted, config.gated, config.support)
    if config.reflections:
        reflecting, judge = gate.with_journal(policy), reflection_judge(judging)
        collector.reflecting = Reflector(reflecting, judge, tokens, config.reflections)


WHOLE = {"temperature": 1, "top_p": 1, "top_k": -1, "min_p": 0}
"""what leaves the distribution as it is: ratios hold for that alone"""
TOOL_CALLS = 10
"""of a rollout (RubricEM, arXiv:2605.10899)"""


def shape(setup: Setup, config: CollectConfig, settings: Settings) -> Setup:
    """The setup of rollouts: a turn is tried once, and free ones are sampled in token ids."""
    model = setup.model
    shown = {"passages": config.passages, "passage_words": config.passage_words}
    given: dict[str, Any] = {name: value for name, value in shown.items() if value is not None}
    if setup.decoding is Decoding.FREE and not config.teacher:
        sent = settings.extra_body
        if shaped := [name for name, whole in WHOLE.items() if sent.get(name, whole) != whole]:
            raise SettingsError(
                f"extra_body sets {', '.join(shaped)}, and rollouts are sampled without.",
                "Collect with settings.extra_body={}, or leave these out of it.",
            )
        model = in_tokens(model)
    if settings.max_tokens is None:  # no answer is gone on with: a turn is sampled at once
        given["max_tokens"] = TURN
    if settings.effort is Effort.DEEP:
        raise SettingsError(
            "A rollout is one run: deep research, which asks for others, cannot be collected.",
            "Leave effort out of the settings.",
        )
    calls = TOOL_CALLS if settings.tool_calls is None else settings.tool_calls
    short = config.system_prompt == "short"
    template = replace(setup.template, **given, tool_calls=calls, length=0)
    return replace(
        setup, model=model, attempts=1, short=short, template=template,
        choices={**setup.choices, **given, **({"system_prompt": "short"} if short else {})},
    )  # fmt: skip


def _open_journal(run: RunDirectory, meter: Meter) -> Journal:
    """The run's journal; replies of committed steps are not kept in memory."""
    finished = run.finished_steps()

    def is_unfinished(thread: str) -> bool:
        step = re.match(r"s(\d+)-q", thread)  # none in what belongs to no step
        return step is not None and int(step[1]) >= finished

    return run.journal(meter.hear, is_unfinished)


def supported_judge(
    kind: str, model: JudgeModel, wanted: Wanted, gated: bool, support: Support
) -> GroupJudge:
    """The judge of groups of a kind, which a gate may precede, with scores bound by support."""
    gate = gate_scores() if gated else None
    return bound_by_support(build_judge(kind, model, wanted, gate), kind, model, support)


def judge_choice(settings: Settings, setup: Setup, config: CollectConfig) -> PolicyChoice:
    """The judge's model: the policy's, unless another one is named and needed."""
    same = config.judge_model in (None, settings.model)
    same = same and config.judge_base_url in (None, settings.base_url)
    own = config.judge.startswith(RUBRIC) and not config.reflections
    # User-defined rubrics may score every stage without a model.
    if same or (own and set(compositions_of(config.judge)) == set(Stage)):
        return setup.model
    return model_of(judging(settings, config.judge_model, config.judge_base_url))


def _manifest(
    setup: Setup, config: CollectConfig, wanted: Wanted, researcher: Researcher,
    judge: JudgeModel | None, progress: float, asked: Selected,
) -> Manifest:  # fmt: skip
    template = setup.template
    shaping = (template.answer_format.value, template.max_tokens, setup.model.context_tokens)
    return Manifest(
        policy=researcher.policy.name,
        policy_version=researcher.policy.version,
        decoding=researcher.decoding,
        teacher=researcher.policy.name if config.teacher else "",
        judge=judge.name if judge else "",
        judge_kind=identify_judge(config.judge),
        judge_options={
            **({"rubric": version_of(rubric)} if (rubric := wanted.rubric) else {}),
            **({"gated": True} if config.gated else {}),
            **({"support": config.support} if config.support != "rules" else {}),
        },
        group_size=config.group_size,
        step_size=config.step_size,
        windows=config.windows,
        reflections=0 if config.judge == NONE else config.reflections,
        memory=setup.memory,
        seed=template.seed,
        tool_calls=template.tool_calls,
        scaffold=ScaffoldRule(progress=progress) if config.scaffold else None,
        settings={**setup.choices, **dict(zip(SHAPING, shaping, strict=True))},
        questions_sha256=hash_of(asked.questions),
    )
