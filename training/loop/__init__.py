"""`rubricem loop`: warm a small model up, collect, judge, reflect, train, and ask again.

A recipe of the public commands, of what plan.toml says. Each step works in LOOP/NAME, where its
commands go on by themselves after an interruption; what it came to, with the seconds it took, is
LOOP/steps/NAME.json, and a step that has one is not repeated. The loop's bank, rubrics and answers
are in LOOP/data, apart from the user's. The page that tells of it is self-contained: no script,
nothing loaded, all text escaped.
"""

import json
import os
import platform
import re
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
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
    """A loop's folder: its plan and commands, what its steps came to, and the page.

    Raises SettingsError where the folder holds a loop of another plan.
    """

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


def default_plan() -> Result:
    """The loop of `make loop`; without `judge_base_url` the judge is embedded, too."""
    text = (files("rubricem.training.loop") / "plan.toml").read_text(encoding="utf-8")
    return {"judge_base_url": None, **tomllib.loads(text)}


def run_loop(folder: Path, plan: Result, tell: Callable[[str], None]) -> Path:
    """Do what is not done yet; returns the page. The same call goes on after an interruption."""
    story, model = Story(folder.absolute(), plan, tell), plan["model"]
    collect, train = partial(_collect, story), partial(_train, story)
    alone = ("--group-size", 1, "--judge", "none", "--reflections", 0, "--memory", "off")
    judged = (
        *("--group-size", plan["group_size"], "--memory", "on", "--judge-model", plan["judge"]),
        *(("--judge-base-url", plan["judge_base_url"]) if plan["judge_base_url"] else ()),
        *("--reflections", plan["candidates"]),
        *("--least-reflection-score", plan["least_reflection_score"]),
    )
    imitate = {"learning_rate": plan["imitation_rate"], "epochs": plan["imitation_epochs"]}
    improve = {"learning_rate": plan["policy_rate"], "batch": 1}
    once = story.once
    once("trace", lambda at: collect(at, "imitate", model, "--decoding", "forced", *alone))
    once("before", lambda at: collect(at, "measure", model, *alone))
    step = once("warm", lambda at: train(at, "sft", ["trace"], {**imitate, "batch": 4}))
    warm = step["checkpoint"]
    once("after", lambda at: collect(at, "measure", warm, *alone))
    runs = once("collect", lambda at: collect(at, "collect", warm, *judged))["runs"]
    begin = {**improve, "start_adapter": warm}
    step = once("train", lambda at: train(at, "ss-grpo", runs, begin))
    once("ask", lambda at: _ask(story, at, step["checkpoint"]))
    return story.write()


def _collect(story: Story, at: Path, use: str, model: str, *flags: object) -> Result:
    """The run of the questions of a use, and one more beside it for those that come again."""
    asked = story.questions_for(use)
    passes = {at: list(dict.fromkeys(asked))}
    if again := [question for place, question in enumerate(asked) if question in asked[:place]]:
        passes[at.with_name(f"{at.name}-2")] = again
    for number, (run, questions) in enumerate(passes.items()):
        write_atomically(run / "asked.txt", "\n".join(questions))
        seed = story.plan["seed"] + number
        story.command("collect", run / "asked.txt", "--out", run, "--model", model, "--seed", seed,
                      "--step-size", 1, *flags)  # fmt: skip
    return {"runs": [run.name for run in passes]}


def _train(story: Story, at: Path, method: str, runs: list[str], chosen: Result) -> Result:
    """Train on the rows of runs; where no stage of any group differs, what there was stays."""
    rows = [at / f"rows{'' if n == 1 else f'-{n}'}.jsonl" for n, _ in enumerate(runs, start=1)]
    dropped, lines = Counter[str](), list[str]()
    for run, file in zip(runs, rows, strict=True):
        told = story.command(
            "export", at.with_name(run), "--out", file, "--model", story.plan["model"]
        )
        for count, reason in re.findall(r"(\d+) dropped: (.+)", told):
            dropped[reason] += int(count)
        lines += file.read_text(encoding="utf-8").splitlines()
    trained: Result = {
        "steps": [],
        "canary": None,
        "checkpoint": chosen.get("start_adapter", story.plan["model"]),
    }
    if lines:
        names = {"out": "training", "rows": [file.name for file in rows]}
        config = {**names, "model": story.plan["model"], "seed": story.plan["seed"], **chosen}
        settings = at / "training.toml"
        write_atomically(settings, (f"{key} = {json.dumps(config[key])}\n" for key in config))
        trained = json.loads(story.command("train", method, settings, "--json"))
        dropped.update(trained["dropped"])
    tokens = sum(sum(json.loads(line)["loss_mask"]) for line in lines)
    return {**trained, "rows": len(lines), "trained_tokens": tokens, "dropped": dropped}


def _ask(story: Story, at: Path, trained: str) -> Result:
    """The answers of the untrained model, and of the trained one with its memory."""
    (question,) = story.questions_for("ask")
    answers: Result = {"question": question}
    for name, model, memory in (
        ("base", story.plan["model"], "off"),
        ("trained", trained, "read-only"),
    ):
        report = at / f"{name}.md"
        told = story.command("ask", question, "--thread", name, "--model", model, "--json",
                             "--memory", memory, "--decoding", "free", "--verify", "off",
                             "--out", report, ends=(0, 1, 3))  # fmt: skip
        found = json.loads(told)
        failed = found["status"] == "failed"
        found["report"] = found["reason"] if failed else report.read_text(encoding="utf-8")
        answers[name] = {"status": found["status"], "report": found["report"]}
    bank = json.loads(story.command("bank", "list", "--json"))["reflections"]
    recalled = [item for item in bank if item["id"] in found["recalled"]]
    return {**answers, "recalled": recalled, "bank": len(bank)}
