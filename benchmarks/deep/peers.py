"""The question of `benchmarks.deep` through gpt-researcher and open_deep_research, beside ours.

    python -m benchmarks.deep.peers --folder FOLDER --checkout FOLDER [--full]

Each asks the scripted model of its own form of prompt (`peer_model`), over the same pages, each in
an environment of its own, which is made in `--folder` where it is missing. open_deep_research is
on no package index, so its checkout is named; without it that peer is left out. A call of the model
takes 0.3 s. Then each is killed (SIGKILL) once half of its calls have ended, and asked again: how
many of the finished calls come again?

The script keeps every fact that it is shown. That flatters whoever lets a model summarise pages,
as both peers do: what a summary loses is not measured.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.deep.__main__ import JUST, Server, asking, longest, serving
from benchmarks.deep.model import QUESTION
from benchmarks.report import RESULTS, Value, emit, number

GPT_RESEARCHER = "gpt-researcher==0.15.1"
NEEDED = (
    "langgraph", "langchain", "langchain-openai", "langchain-community", "langchain-mcp-adapters",
    "mcp", "tavily-python", "aiohttp", "httpx",
)  # fmt: skip
"""what open_deep_research's graph imports"""
SECONDS = 0.3
Begin = Callable[[Server, Path], subprocess.Popen[str]]
"""asks the question at a server, and may write into a folder"""


def environment(folder: Path, name: str, packages: Sequence[str]) -> Path:
    """The Python of a peer's own environment, made where it is missing."""
    python = folder / name / "bin" / "python"
    if not (folder / name / "installed").exists():
        print(f"installing {name} into {folder / name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder / name], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / name / "installed").touch()
    return python


def begin_peer(name: str, python: Path, path: Path | None) -> Begin:
    def begin(server: Server, folder: Path) -> subprocess.Popen[str]:
        driver = Path(__file__).parent / "peer_driver.py"
        command = [str(python), "-P", str(driver), name, server.root, QUESTION]
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(path or "")},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    return begin


def ours(server: Server, folder: Path) -> subprocess.Popen[str]:
    return asking(server, folder, "--effort", "deep", "--run", "r")


def resumed(server: Server, folder: Path) -> subprocess.Popen[str]:
    return asking(server, folder, "--resume", "r")


def measure(begin: Begin, again: Begin, *, peer: bool) -> dict[str, Value]:
    """What one participant's model is shown, what that costs, and what a kill does."""
    module = "benchmarks.deep.peer_model" if peer else "benchmarks.deep.model"
    with serving(SECONDS, module) as server, tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with begin(server, Path(folder)) as process:
            said, _ = process.communicate()
        took = time.monotonic() - began
        log, shown = server.log(), server.get("shown")
    report = json.loads(said.splitlines()[-1]) if peer else json.loads(said)
    calls = [request for request in log if request.calls_model]
    values: dict[str, Value] = {
        "facts": shown["all"]["facts"],
        "facts_written_from": shown["section"]["facts"],
        "words": shown["all"]["words"],
        "new_tokens": sum(request.new + request.written for request in calls),
        "calls": len(calls),
        "calls_in_sequence": int(longest(calls, seconds=False)),
        "searches": sum(request.kind == "search" for request in log),
        "pages": sum(request.kind == "page" for request in log),
        "seconds": round(took, 1),
        "planted_marked": 0 if peer else sum(
            c["support"]["verdict"] == "unsupported" for c in report["citations"]
        ),
    }  # fmt: skip
    return {**values, "paid_twice": paid_twice(begin, again, len(calls) // 2, module)}


def paid_twice(begin: Begin, again: Begin, at: int, module: str) -> int:
    """How many calls that had ended before a kill came again."""
    with serving(SECONDS, module) as server, tempfile.TemporaryDirectory() as folder:
        with begin(server, Path(folder)) as process:
            while process.poll() is None:
                if sum(request.calls_model for request in server.log()) >= at:
                    break
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
            killed = time.monotonic()
        time.sleep(2 * SECONDS)  # what was in flight ends at the server
        heard = Counter(r.asked for r in server.log() if r.calls_model and r.end < killed - JUST)
        with again(server, Path(folder)) as process:
            process.communicate()
        asked = Counter(r.asked for r in server.log() if r.calls_model)
    return sum(asked[each] > count for each, count in heard.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="for the peers' environments")
    parser.add_argument("--checkout", type=Path, help="of open_deep_research")
    parser.add_argument("--full", action="store_true", help="keep the result")
    options = parser.parse_args()
    folder = options.folder.resolve()
    python = environment(folder, "gpt_researcher", [GPT_RESEARCHER])
    taking: dict[str, tuple[Begin, Begin, bool]] = {"ours": (ours, resumed, False)}
    begin = begin_peer("gpt_researcher", python, None)
    taking["gpt_researcher"] = begin, begin, True
    if options.checkout:
        python = environment(folder, "open_deep_research", NEEDED)
        begin = begin_peer("open_deep_research", python, options.checkout.resolve() / "src")
        taking["open_deep_research"] = begin, begin, True
    values: dict[str, Value] = {}
    for name, (first, second, peer) in taking.items():
        found = measure(first, second, peer=peer)
        values |= {f"{name}_{key}": value for key, value in found.items()}
        print(json.dumps({name: found}), flush=True)
    best = max(number(values, f"{name}_facts") for name in taking if name != "ours")
    targets = {"ours_facts": "not fewer than any peer's", "ours_paid_twice": "0"}
    holds = number(values, "ours_facts") >= best and values["ours_paid_twice"] == 0
    how = f"one question, scripted model, {SECONDS:g} s a call, on {os.cpu_count()} cores"
    emit(
        "deep_peers",
        values,
        targets,
        holds,
        how,
        RESULTS / "deep_peers.json" if options.full else None,
    )


if __name__ == "__main__":
    main()
