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
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.deep.__main__ import (
    MODULE,
    QUICK,
    Begin,
    Server,
    costs,
    kill,
    ours,
    resumed,
    serving,
)
from benchmarks.deep.model import QUESTION
from benchmarks.report import RESULTS, Value, emit, number

GPT_RESEARCHER = "gpt-researcher==0.15.1"
NEEDED = (
    "langgraph", "langchain", "langchain-openai", "langchain-community", "langchain-mcp-adapters",
    "mcp", "tavily-python", "aiohttp", "httpx",
)  # fmt: skip
"""what open_deep_research's graph imports"""


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


def measure(begin: Begin, again: Begin, *, peer: bool) -> dict[str, Value]:
    """What one participant's model is shown, what that costs, and what a kill does."""
    module = "benchmarks.deep.peer_model" if peer else MODULE
    with serving(QUICK, module) as server, tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with begin(server, Path(folder)) as process:
            said, _ = process.communicate()
        took = time.monotonic() - began
        values = costs(server.log(), server.get("shown"))
    cited = [] if peer else json.loads(said)["citations"]
    values["seconds"] = round(took, 1)
    values["planted_marked"] = sum(c["support"]["verdict"] == "unsupported" for c in cited)
    values["paid_twice"] = kill(begin, again, int(number(values, "calls")) // 2, module)[2]
    return values


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
    emit(
        "deep_peers",
        values,
        f"one question, scripted model, {QUICK:g} s a call, on {os.cpu_count()} cores",
        RESULTS / "deep_peers.json" if options.full else None,
        least={"ours_facts": best},
        most={"ours_paid_twice": 0},
    )


if __name__ == "__main__":
    main()
