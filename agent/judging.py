"""From settings to a judge: the one way in which commands come by it.

The judge's model is the one that the settings name. Where the policy is the embedded model it
can be shared, so that its weights are in memory once.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from agent.choice import EmbeddedChoice, choose_policy
from agent.clients import connect, load_embedded
from agent.events import Listener, ignore
from agent.settings import Settings
from agent.stage_rubrics import gated
from agent.weights.checkpoints import is_checkpoint, note_of
from judge.building import JudgeModel, LocalModel, Wanted, group_judge, stage_judge
from judge.composed_judge import ComposedJudge, GroupJudge
from judge.kept_replies import kept
from judge.pairwise_forms import ChainForm
from judge.stage_judge import StageJudge
from memory.replies import ReplyStore


def chain_of(settings: Settings) -> ChainForm | None:
    """The form of reasoning that the settings' model was trained to judge in; None: in none.

    Raises WeightsError for a checkpoint whose note cannot be read.
    """
    choice = choose_policy(settings)
    if not isinstance(choice, EmbeddedChoice) or not is_checkpoint(choice.model_name):
        return None
    return note_of(Path(choice.model_name).expanduser()).judge


@asynccontextmanager
async def open_judge_model(
    settings: Settings, shared: LocalModel | None = None, listener: Listener = ignore
) -> AsyncIterator[JudgeModel]:
    """The model that judges; `shared` is used where the settings name an embedded one."""
    choice = choose_policy(settings)
    if isinstance(choice, EmbeddedChoice):
        if shared is not None:
            yield shared
            return
        model = await load_embedded(settings, choice, listener)
    else:
        model = await connect(settings, choice, think_is_reasoning=True)
    try:
        yield model
    finally:
        await model.aclose()


@asynccontextmanager
async def open_group_judge(
    settings: Settings,
    wanted: Wanted,
    *,
    keep_replies: bool = True,
    gate: bool = False,
    shared: LocalModel | None = None,
) -> AsyncIterator[GroupJudge]:
    """The wanted judge; with replies kept, the same call is paid for once.

    `gate`: it is asked only about what code finds whole in form and held by its citations.
    `shared` is used where the settings name an embedded model.
    """
    wanted = replace(wanted, chain=chain_of(settings))
    async with open_judge_model(settings, shared) as model:
        store = ReplyStore(settings.data_dir / "replies")
        judge = group_judge(kept(model, store) if keep_replies else model, wanted)
        yield ComposedJudge(judge, gated()) if gate else judge


@asynccontextmanager
async def open_judge(
    settings: Settings, shared: LocalModel | None = None, listener: Listener = ignore
) -> AsyncIterator[StageJudge]:
    """A stage judge as the settings want it; its model is freed at the end, unless shared."""
    async with open_judge_model(settings, shared, listener) as model:
        yield stage_judge(model)
