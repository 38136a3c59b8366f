"""What happens around TRL's updates: rates, numbers, and when to save, by our own plan.

TRL counts updates; a step of the plan is one window, with `passes` updates or, where no row has a
gradient, none.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from transformers import TrainerCallback

from training.local.config import TrainConfig
from training.local.learner import Metrics, check_numbers
from training.local.session import TrainingSession
from training.local.windows import Window, rate_at
from training.trl_engine.batches import with_gradient
from training.watching.window_numbers import window_numbers

OnStep = Callable[[Metrics], None]
"""Called with a finished step's metrics, before it is saved."""


class Watch(TrainerCallback):
    """Follows one training; `write` is set before it begins."""

    def __init__(
        self,
        session: TrainingSession,
        config: TrainConfig,
        plan: Sequence[Window],
        moving: Sequence[int],
        on_step: OnStep,
        stopped: Callable[[], bool],
        most_gap: float,
    ) -> None:
        """`moving`: the numbers of the windows that have a gradient, in order.

        `stopped`: asked after each step, whether it is to be the last; the same for all ranks.
        """
        self._session, self._config, self._plan = session, config, plan
        self._moving, self._on_step, self._most_gap = moving, on_step, most_gap
        self._stopped = stopped
        self._seconds, self._began = 0.0, 0.0
        self._metrics: Metrics = {}
        self.write: Callable[[bool], object] = lambda serve: None
        """writes a checkpoint of the session's last step; whether for llama.cpp too"""

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """One update is about to be computed."""
        self._began = time.perf_counter()
        step = self._moving[state.global_step // self._config.passes]
        for group in more["optimizer"].param_groups:
            group["lr"] = rate_at(step, len(self._plan), self._config)
            group["weight_decay"] = self._config.weight_decay

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """One update is made."""
        self._seconds += time.perf_counter() - self._began
        if (step := self._closed_by(state)) is not None:
            control.should_training_stop = step == self._moving[-1] or self._stopped()
            control.should_save = (
                control.should_training_stop or (step + 1) % self._config.save_every == 0
            )

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The numbers of an update are there."""
        logs: dict[str, float] = more["logs"]
        if "loss" not in logs:
            return
        self._metrics |= {name: float(n) for name, n in logs.items() if n is not None}
        check_numbers(self._metrics, self._most_gap)
        if (step := self._closed_by(state)) is not None:
            self._finish(step)

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """TRL has saved what it needs."""
        self.write(self._session.done == len(self._plan))

    def _closed_by(self, state: Any) -> int | None:
        """The number of the window whose last update this was, counted from 0."""
        done, left = divmod(state.global_step, self._config.passes)
        return None if left else self._moving[done - 1]

    def _finish(self, step: int) -> None:
        """Count a window, and those beside it that have no gradient."""
        session, last = self._session, step == self._moving[-1]
        while session.done < step:
            self._count(session.done, {})
        self._count(step, self._metrics)
        self._metrics, self._seconds = {}, 0.0
        while last and session.done < len(self._plan):
            self._count(session.done, {})

    def _count(self, step: int, told: Metrics) -> None:
        rows = self._plan[step]
        moving = with_gradient(rows, self._config.objective)
        metrics = {
            "loss": 0.0,
            "tokens": float(sum(sum(row.loss_mask) for row in moving)),
            "rows_without_gradient": float(len(rows) - len(moving)),
        }
        if told:
            read = sum(len(row.ids) for row in moving)
            metrics["rate"] = rate_at(step, len(self._plan), self._config)
            metrics["seconds"] = self._seconds
            metrics["tokens_per_second"] = read / max(self._seconds, 1e-9)
        self._on_step(self._session.finished(metrics | told | window_numbers(rows)))
