"""`rubricem loop`: warm a small model up, collect, judge, reflect, train, and ask again.

A recipe of the public commands, of what plan.toml says. Each step works in LOOP/NAME, where its
commands go on by themselves after an interruption; what it came to, with the seconds it took, is
LOOP/steps/NAME.json, and a step that has one is not repeated. The loop's bank, rubrics and answers
are in LOOP/data, apart from the user's.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path

from rubricem.memory.runs import write_atomically
from rubricem.training.loop.story import Result, Story


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
