"""A training run from its configuration to a checkpoint that llama.cpp answers with.

The same command goes on after an interruption, and ends where an uninterrupted run would have
ended. When the last step is done the canary row is compared.
"""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory.errors import PolicyError, SettingsError
from memory.runs import write_atomically
from training.local.base_model import give_back
from training.local.canary import Canary
from training.local.comparing import compared
from training.local.config import Method, TrainConfig
from training.local.learner import Metrics, OnRow, moves
from training.local.session import Tell, TrainingSession, open_session
from training.local.windows import Selection, Window, rate_at, read_rows, select, windows
from training.rows import TrainRow


@dataclass(frozen=True, slots=True)
class Trained:
    """What a finished run gave."""

    checkpoint: Path
    steps: tuple[dict[str, Any], ...]
    """the metrics of each"""
    dropped: dict[str, int]
    canary: Canary | None
    """None where llama.cpp cannot serve the model"""


async def train(
    config: TrainConfig, method: Method, tell: Tell, weights_dir: Path | None = None
) -> Trained:
    """Train to the end, from the newest checkpoint if there is one.

    Raises SettingsError for a configuration, rows or a folder that do not fit, PolicyError when
    a step gives no finite gradient or what was exported is not what was trained.
    """
    selection = await asyncio.to_thread(_selected, config, method)
    plan = windows(selection.rows, method, config)
    record = {"rows": _sha256(selection.rows)}
    async with open_session(config, method, tell, weights_dir, record) as session:
        if session.done < len(plan):
            await asyncio.to_thread(_steps, session, plan)
        await _compare(session, selection.rows[0])
        newest, steps = session.folder.newest, tuple(session.folder.metrics())
    give_back()
    return Trained(
        checkpoint=newest,
        steps=steps,
        dropped=selection.dropped,
        canary=_read_canary(config.out),
    )


def _steps(session: TrainingSession, plan: Sequence[Window]) -> None:
    """The steps that are left; a step's number is all that says which rows it sees."""
    config, total = session.config, len(plan)
    _canary(config.out).unlink(missing_ok=True)
    session.go_back()
    while session.done < total:
        step = session.done
        on_row = _row_told(f"step {step + 1} of {total}", session.tell)
        metrics = session.step(plan[step], rate_at(step, total, config), on_row)
        _check_best(config.best_by, metrics)
        if session.done % config.save_every == 0 or session.done == total:
            session.save(serve=session.done == total)
        session.tell(_step_told(session.done, total, metrics))


async def _compare(session: TrainingSession, row: TrainRow) -> None:
    """Compare the canary row once, where llama.cpp can serve what was trained."""
    base, path = session.base, _canary(session.config.out)
    if not base.gguf:
        session.tell(
            f"llama.cpp cannot serve what was trained of {base.path.name}, a folder of "
            f"safetensors: load {session.folder.newest} by transformers or peft."
        )
    elif session.ranks.first and not path.exists():
        session.tell("comparing the canary row")
        found = await compared(session, row)
        _check(found)
        write_atomically(path, json.dumps(found.as_dict(), indent=1))
    await asyncio.to_thread(session.ranks.wait)


def _canary(out: Path) -> Path:
    return out / "canary.json"


def _read_canary(out: Path) -> Canary | None:
    path = _canary(out)
    return Canary(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _selected(config: TrainConfig, method: Method) -> Selection:
    selection = select(read_rows(config.rows), method, config.max_row_tokens)
    if method != "sft" and not config.objective.beta and not any(map(moves, selection.rows)):
        raise SettingsError(
            f"none of the {len(selection.rows)} rows has an advantage other than 0, so there is "
            "nothing to learn.",
            "Collect groups whose stages are scored differently, or set objective.beta.",
        )
    return selection


def _sha256(rows: Sequence[TrainRow]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(row.model_dump_json().encode())
    return digest.hexdigest()


def _check_best(name: str | None, metrics: Metrics) -> None:
    if name is not None and name not in metrics and "grad_norm" in metrics:
        raise SettingsError(
            f"there is no metric {name!r} to choose the best checkpoint by.",
            f"Set best_by to one of {', '.join(sorted(metrics))}.",
        )


def _check(found: Canary) -> None:
    if not found.sound:
        raise PolicyError(
            f"llama.cpp does not sample from the trained policy: its log-probabilities differ by "
            f"{found.mean:.3f} nats a token as trained, {found.without_adapter:.3f} from the base.",
            "Do not use this checkpoint; please report it with the run's folder.",
        )


def _row_told(step: str, tell: Tell) -> OnRow:
    return lambda done, total: tell(f"{step}: row {done} of {total}")


def _step_told(step: int, steps: int, metrics: Metrics) -> str:
    shown: Sequence[str] = ("loss", "grad_norm", "tokens_per_second")
    told = ", ".join(f"{name} {metrics[name]:.4g}" for name in shown if name in metrics)
    return f"step {step} of {steps}: {told or 'no row had an advantage'}"
