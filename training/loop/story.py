"""A loop's folder: its plan and commands, what its steps came to, and the page that tells of it.

The page is self-contained: no script, nothing loaded, all text escaped.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from rubricem.agent.cli import main
from rubricem.agent.reports.page import page_of
from rubricem.agent.transcript.scaffold import find_violation, rounds, turn_faults
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import value_in, write_atomically
from rubricem.memory.schema import ReflectionCandidate, Stage, Status
from rubricem.training.collect.directory import GroupRecord, RunDirectory
from rubricem.training.show.collected import StepNumbers, run_numbers

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Story:
    """Raises SettingsError where the folder holds a loop of another plan."""

    folder: Path
    plan: Result
    tell: Callable[[str], None]
    results: dict[str, Result] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = self.folder / "plan.json"
        if (held := value_in(path, dict[str, Any])) is None:
            write_atomically(path, json.dumps(self.plan, indent=1))
        elif held != self.plan:
            raise SettingsError(
                f"{self.folder} holds a loop of another plan.", "Name another folder with --out."
            )

    def once(self, name: str, step: Callable[[Path], Result]) -> Result:
        """The step's result; it is run, in a folder of its own, only if there is none yet."""
        path, began = self.folder / "steps" / f"{name}.json", time.monotonic()
        if path.exists():
            self.tell(f"{name}: done before")
        else:
            self.tell(f"{name}: begins")
            result = step(self.folder / name)
            # Of an interrupted step only the last stretch is counted, and the page says so.
            seconds = round(time.monotonic() - began, 1)
            write_atomically(path, json.dumps({**result, "seconds": seconds}, indent=1))
            self.tell(f"{name}: done in {seconds:.0f} s")
        remedy = "Remove it, and the step is done again."
        self.results[name] = value_in(path, dict[str, Any], remedy) or {}
        return self.results[name]

    def questions_for(self, use: str) -> list[str]:
        """The plan's questions of one use, in order."""
        return [each["question"] for each in self.plan["questions"] if each["use"] == use]

    def command(self, *words: object, ends: tuple[int, ...] = (0,)) -> str:
        """What a public command prints, under the loop's settings.

        Ends this one as that ended, where it is not one of `ends`.
        """
        ours = {name: self.plan[name] for name in ("tool_calls", "max_tokens", "seed")} | {
            "data_dir": self.folder / "data",
            "source": ",".join(self.plan["source"]),
            "temperature": 1.0,
        }
        said, before = StringIO(), dict(os.environ)
        os.environ.update({f"RUBRICEM_{name.upper()}": str(ours[name]) for name in ours})
        try:
            with redirect_stdout(said):
                ended = main([*map(str, words)], prog_name="rubricem", standalone_mode=False) or 0
        except SystemExit as end:
            ended = end.code
        finally:
            os.environ.clear()
            os.environ.update(before)
        if ended not in ends:
            raise SystemExit(ended)
        return said.getvalue()

    def write(self) -> Path:
        """Write `story.html`, once all steps have a result."""
        groups = list(self._groups())
        trace = RunDirectory(self.folder / "trace")
        page = page_of(
            "rubricem.training.loop",
            "story.html",
            plan=self.plan,
            stages=[stage.value for stage in Stage],
            machine=f"{os.cpu_count()} cores ({platform.machine()})",
            checkpoint=os.path.relpath(self.results["train"]["checkpoint"], self.folder.parent),
            traces=[find_violation(trajectory) for trajectory in trace.trajectories()],
            before=list(_free(RunDirectory(self.folder / "before"))),
            after=list(_free(RunDirectory(self.folder / "after"))),
            groups=groups,
            rollouts=sum(len(step.rollouts) for _, step, _ in groups),
            results=self.results,
        )
        path = self.folder / "story.html"
        write_atomically(path, page)
        return path

    def _groups(self) -> Iterator[tuple[GroupRecord, StepNumbers, list[ReflectionCandidate]]]:
        """Each group that was judged, a step of its own, with the reflections on it."""
        for name in self.results["collect"]["runs"]:
            run = RunDirectory(self.folder / name)
            written = list(run.reflections())
            for step, record in zip(run_numbers(run).steps, run.groups(), strict=True):
                yield record, step, [c for c in written if c.trajectory_id == record.reflected]


def _free(run: RunDirectory) -> Iterator[Result]:
    """One entry for each question, in order; a rollout that failed has no sound turn."""
    trajectories = {trajectory.id: trajectory for trajectory in run.trajectories()}
    for group in run.groups():
        failed = {"question": group.question, "fit": False, "turns": 0, "sound_turns": 0}
        yield from ({**failed, "outcome": f"failed: {reason}"} for reason in group.failures)
        for trajectory in (trajectories[name] for name in group.trajectories):
            broken = find_violation(trajectory)
            turns = [document.text for document in rounds(trajectory)]
            yield {
                "question": group.question,
                "outcome": broken.sentence if broken else trajectory.reason or "fit to imitate",
                "fit": broken is None and trajectory.status is Status.FINISHED,
                "turns": len(turns),
                "sound_turns": sum(not turn_faults(text, i) for i, text in enumerate(turns, 1)),
            }
