"""`rubricem loop`: warm a small model up, collect, judge, reflect, train, and ask again.

A recipe of the public commands, in steps. Each works in LOOP/NAME, where its commands go on by
themselves after an interruption; its result, with the seconds it took, is LOOP/steps/NAME.json,
and a step that has one is not repeated. The loop's bank, rubrics and answers are in LOOP/data,
apart from the user's.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from rubricem.agent.cli import main
from rubricem.memory.runs import write_atomically
from rubricem.training.loop.story import (
    LoopPlan,
    Result,
    Story,
    Use,
    asked,
    collected,
    exported,
    measured,
    traced,
)

ALONE = ("--group-size", 1, "--judge", "none", "--reflections", 0, "--memory", "off")
ANSWERED = (0, 1, 3)
"""exit statuses of a question that was answered, failed, or was ended early"""


def run_loop(folder: Path, plan: LoopPlan, tell: Callable[[str], None]) -> Path:
    """Do what is not done yet; returns the page. The same call goes on after an interruption."""
    story = Story(folder.absolute(), plan)
    collect, train = partial(_collect, plan), partial(_train, plan)
    imitation = {"learning_rate": plan.imitation_rate, "epochs": plan.imitation_epochs, "batch": 4}

    def trace(at: Path) -> Result:
        return traced(collect(at, "imitate", plan.model, "--decoding", "forced", *ALONE))

    def measure(at: Path, model: str) -> Result:
        return measured(collect(at, "measure", model, *ALONE))

    def improve(at: Path, start: str) -> Result:
        runs = [story.folder / name for name in story.results["collect"].get("runs", ["collect"])]
        step = {"learning_rate": plan.policy_rate, "batch": 1, "start_adapter": start}
        # Where no stage of any group differs there is nothing to learn, and that is told.
        return {
            "checkpoint": start,
            "canary": None,
            "steps": [],
            **train(at, "ss-grpo", runs, step),
        }

    def ask(at: Path, model: str) -> Result:
        base = _ask(plan, at / "base.md", plan.model, "off")
        return asked(base, _ask(plan, at / "trained.md", model, "read-only"), _bank())

    with _environment(story.folder, plan):
        once = partial(_once, story, tell)
        once("trace", trace)
        once("before", lambda at: measure(at, plan.model))
        warm = once("warm", lambda at: train(at, "sft", [story.folder / "trace"], imitation))
        model = warm["checkpoint"]
        once("after", lambda at: measure(at, model))
        once("collect", lambda at: collected(
            collect(at, "collect", model, *plan.judging()), len(_bank())))  # fmt: skip
        trained = once("train", lambda at: improve(at, model))
        once("ask", lambda at: ask(at, trained["checkpoint"]))
    return story.write()


def _once(
    story: Story, tell: Callable[[str], None], name: str, step: Callable[[Path], Result]
) -> Result:
    """The step's result; it is run, in a folder of its own, only if there is none yet."""
    if (found := story.result(name)) is not None:
        tell(f"{name}: done before")
        return found
    tell(f"{name}: begins")
    began, at = time.monotonic(), story.folder / name
    at.mkdir(parents=True, exist_ok=True)
    result = step(at)
    # Of an interrupted step only the last stretch is counted, and the page says so.
    seconds = round(time.monotonic() - began, 1)
    tell(f"{name}: done in {seconds:.0f} s")
    return story.keep(name, {**result, "seconds": seconds})


def _collect(plan: LoopPlan, at: Path, use: Use, model: str, *flags: object) -> list[Path]:
    """The run of the questions of a use, and one more beside it for those that come again."""
    runs = []
    for number, questions in enumerate(plan.passes(use), start=1):
        runs.append(at if number == 1 else at.with_name(f"{at.name}-{number}"))
        write_atomically(runs[-1] / "asked.txt", "\n".join(questions))
        _command("collect", runs[-1] / "asked.txt", "--out", runs[-1], "--model", model,
                 "--step-size", 1, "--seed", plan.seed + number - 1, *flags)  # fmt: skip
    return runs


def _train(
    plan: LoopPlan, at: Path, method: str, runs: list[Path], chosen: Mapping[str, object]
) -> Result:
    """Train on the rows that the runs come to, if there are any."""
    files = [at / f"rows{'' if n == 1 else f'-{n}'}.jsonl" for n, _ in enumerate(runs, start=1)]
    told = [
        _command("export", run, "--out", file, "--model", plan.model)
        for run, file in zip(runs, files, strict=True)
    ]
    result = exported(files, told)
    if not result["rows"]:
        return result
    config = {"out": "training", "rows": [file.name for file in files], "model": plan.model,
              "seed": plan.seed, **chosen}  # fmt: skip
    settings = at / "training.toml"
    write_atomically(settings, (f"{key} = {json.dumps(value)}\n" for key, value in config.items()))
    trained = json.loads(_command("train", method, settings, "--json"))
    losses = [step["loss"] for step in trained["steps"]]
    dropped = {**result["dropped"], **trained["dropped"]}
    return {**result, **trained, "dropped": dropped, "losses": losses}


def _ask(plan: LoopPlan, report: Path, model: str, memory: str) -> dict[str, Any]:
    (question,) = plan.used_for("ask")
    told = _command("ask", question, "--thread", report.stem, "--model", model, "--memory", memory,
                    "--decoding", "free", "--verify", "off", "--out", report, "--json",
                    ends=ANSWERED)  # fmt: skip
    found = json.loads(told)
    failed = found["status"] == "failed"
    return {**found, "report": found["reason"] if failed else report.read_text(encoding="utf-8")}


def _bank() -> list[dict[str, Any]]:
    return list(json.loads(_command("bank", "list", "--json"))["reflections"])


def _command(*words: object, ends: tuple[int, ...] = (0,)) -> str:
    """What a public command prints; ends this one as that ended, where it is not one of `ends`."""
    said = StringIO()
    try:
        with redirect_stdout(said):
            ended = main([*map(str, words)], prog_name="rubricem", standalone_mode=False) or 0
    except SystemExit as end:
        ended = end.code
    if ended not in ends:
        raise SystemExit(ended)
    return said.getvalue()


@contextmanager
def _environment(folder: Path, plan: LoopPlan) -> Iterator[None]:
    """What all commands are to know."""
    ours = {
        "data_dir": folder / "data", "source": ",".join(plan.source), "temperature": 1.0,
        "tool_calls": plan.tool_calls, "max_tokens": plan.max_tokens, "seed": plan.seed,
    }  # fmt: skip
    before = dict(os.environ)
    os.environ.update({f"RUBRICEM_{name.upper()}": str(value) for name, value in ours.items()})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
