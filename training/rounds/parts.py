"""From a configuration to its rounds: questions, engine, bank, and the end of it all."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rubricem.memory.errors import SettingsError
from rubricem.training.collect.curriculum import Curriculum
from rubricem.training.collect.directory import hash_of
from rubricem.training.collect.gate import Purse
from rubricem.training.collect.questions import Selected, normal, select_questions
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.session import Canary, compare_once, open_session
from rubricem.training.rounds.numbers import Variety
from rubricem.training.rounds.rollouts import HeldOut, Sampled, not_asked
from rubricem.training.rounds.rounds import RoundRules, Rounds
from rubricem.training.rounds.rounds_config import CHANGEABLE, TABLE, RoundsConfig
from rubricem.training.rounds.update import RoundFolders, SessionUpdates
from rubricem.training.rows.credit import RowRule
from rubricem.training.show.console import PlainTraining, with_event_files
from rubricem.training.show.events import Watch, check_possible

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RoundsDone:
    """What all rounds of a configuration led to."""

    checkpoint: Path | None
    """None: no round had anything to train"""
    rounds: int
    canary: Canary | None
    """None: it was not compared, as where llama.cpp cannot serve what was trained"""
    cost: float | None = None
    """US dollars of all calls so far; None: no limit was set, and none was counted"""


async def run_rounds(
    config: EngineConfig,
    rounds: RoundsConfig,
    rule: RowRule,
    tell: Tell,
    weights_dir: Path | None = None,
    stop: asyncio.Event | None = None,
    watch: Watch | None = None,
) -> RoundsDone:
    """Do the rounds that are not done yet; the same call goes on after an interruption.

    `watch`: who is shown each event; None: `tell`, a line for each.

    Raises SettingsError for what does not fit, RunStopped at `stop` and where the money of
    `max_run_cost` is spent, PolicyError where a server
    was away for too long, a whole round failed, or a gradient is not finite.
    """
    check_possible(config.best_by, rounds.held_out is not None)
    asked, held_out = await asyncio.to_thread(_questions, rounds, tell)
    folders = RoundFolders(config.out, config.bank or config.out / "data")
    config = config.model_copy(update={"bank": folders.data if rounds.reflections else None})
    record = _record(rounds, rule, asked, held_out)
    async with open_session(config, "ss-grpo", tell, weights_dir, record) as session:
        if session.ranks.world > 1:
            raise SettingsError(
                "Rounds are collected by one process, and torchrun started several.",
                "Start it without torchrun, or train on rows of `rubricem collect`.",
            )
        session.trained_on = _trained_on(asked, held_out)
        shown = watch or PlainTraining(tell)
        updates = SessionUpdates(session, folders, rounds.rounds, shown)
        purse = await asyncio.to_thread(_purse, rounds, folders, tell)
        sampled = Sampled(rounds, config, folders, tell, purse)
        rules = RoundRules(
            rounds=rounds.rounds,
            ahead=rounds.ahead,
            max_staleness=rounds.max_staleness,
            max_row_tokens=config.max_row_tokens,
            rows=rule,
        )
        per_round, windows = rounds.questions_per_round, rounds.windows
        with with_event_files(shown, config.out, config.tensorboard) as told:
            ask: Callable[[int], Awaitable[None]] = not_asked
            if held_out is not None:
                ask = HeldOut(sampled, held_out, updates, rule, stop, told)
            await Rounds(
                rules=rules,
                curriculum=Curriculum(asked.questions, per_round, windows, config.seed),
                folders=folders,
                open_round=sampled.round,
                updates=updates,
                held_out=ask,
                variety=Variety(sampled.embedder, tell),
                tell=tell,
                watch=told,
                stop=stop,
            ).run()
        canary = await compare_once(session, updates.last)
        cost = None if purse.most is None else purse.spent
        return RoundsDone(updates.checkpoint, updates.done, canary, cost)


def _purse(rounds: RoundsConfig, folders: RoundFolders, tell: Tell) -> Purse:
    """The money of all rounds; what those before a stop have cost is in their journals."""
    purse = Purse(rounds.max_run_cost, f"max_run_cost under [{TABLE}]")
    if purse.most is not None:
        purse.count(folders.journals())
        tell(f"the rounds have cost {purse.told()} so far")
    return purse


def _record(
    rounds: RoundsConfig, rule: RowRule, asked: Selected, held_out: Selected | None
) -> dict[str, Any]:
    """What must be the same when the rounds of a folder go on.

    Questions are known by what they ask, and folders by their whole paths: what the configuration
    was called from does not matter.
    """
    claimed = rounds.model_dump(mode="json", exclude=CHANGEABLE | {"questions", "held_out"})
    record = {f"rounds.{name}": value for name, value in claimed.items()}

    def whole(named: str) -> str:
        return str(Path(named).absolute()) if Path(named).is_dir() else named

    record["rounds.source"] = [whole(name) for name in record["rounds.source"]]
    record["rounds.judge_model"] = rounds.judge_model and whole(rounds.judge_model)
    if rounds.scaffold is not None:
        record["rounds.rounds"] = rounds.rounds  # by which the scaffold fades
    return record | {
        "rounds.asked": hash_of(asked.questions),
        "rounds.asked_held_out": held_out and hash_of(held_out.questions),
        "rule": rule.model_dump(mode="json"),
    }


def _trained_on(asked: Selected, held_out: Selected | None) -> dict[str, Any]:
    """What a checkpoint's card tells of its data."""
    return {
        "questions": len(asked.questions),
        "questions SHA-256": hash_of(asked.questions),
        "questions held out": len(held_out.questions) if held_out else 0,
    }


def _questions(rounds: RoundsConfig, tell: Tell) -> tuple[Selected, Selected | None]:
    """Those to train on and those held out; what is held out is not trained on."""
    asked = select_questions(rounds.questions)
    if rounds.held_out is None:
        return asked, None
    held_out = select_questions(rounds.held_out)
    apart = {normal(question.question) for question in held_out.questions}
    left = tuple(q for q in asked.questions if normal(q.question) not in apart)
    if not left:
        raise SettingsError(
            f"All questions of {rounds.questions} are held out.", "Name other questions."
        )
    if len(left) < len(asked.questions):
        tell(f"{len(asked.questions) - len(left)} questions are held out, and not trained on")
    return replace(asked, questions=left), held_out
