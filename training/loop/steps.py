"""The loop's steps, each done once: its result is kept, and a step that has one is not repeated.

LOOP/plan.json             what the loop does; another plan needs another folder
LOOP/steps/NAME.json       the result of a finished step, with the seconds it took
LOOP/NAME/                 what the step works in; it resumes there if it was interrupted
"""

import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from memory.errors import SettingsError, StoreError
from memory.runs import write_atomically
from training.loop.plan import LoopPlan

Result = dict[str, Any]
Tell = Callable[[str], None]


class Steps:
    """The finished steps of one loop's folder."""

    def __init__(self, folder: Path, plan: LoopPlan, tell: Tell) -> None:
        self.folder = folder
        self.plan = plan
        self.tell = tell
        written = plan.model_dump_json(indent=1)
        path = folder / "plan.json"
        if not path.exists():
            write_atomically(path, written)
        elif LoopPlan.model_validate_json(path.read_text(encoding="utf-8")) != plan:
            raise SettingsError(
                f"{folder} holds a loop of another plan.", "Name another folder with --out."
            )

    def result(self, name: str) -> Result | None:
        """What a finished step found, or None."""
        path = self._path(name)
        if not path.exists():
            return None
        try:
            found: Result = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise StoreError(
                f"{path} cannot be read: {error}", "Remove it, and the step is done again."
            ) from error
        return found

    async def once(self, name: str, step: Callable[[Path], Awaitable[Result]]) -> Result:
        """The step's result; it is run, in a folder of its own, only if there is none yet."""
        if (found := self.result(name)) is not None:
            self.tell(f"{name}: done before")
            return found
        self.tell(f"{name}: begins")
        began = time.monotonic()
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        result = await step(folder)
        # Of an interrupted step only the last stretch is counted, and the page says so.
        result = {**result, "seconds": round(time.monotonic() - began, 1)}
        write_atomically(self._path(name), json.dumps(result, ensure_ascii=False, indent=1))
        self.tell(f"{name}: done in {result['seconds']:.0f} s")
        return result

    def _path(self, name: str) -> Path:
        return self.folder / "steps" / f"{name}.json"
