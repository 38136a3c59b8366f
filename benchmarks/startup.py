"""How long the command takes to start, and what it has loaded by the first token of an answer.

    python -m benchmarks.startup [--quick | --full]

`rubricem --help` is run as a process of its own, several times, and so are `rubricem ask` up to its
first line and the import of `research`, in turns. Then a fresh process goes the
way of `rubricem ask` against a loopback server that answers at once, stops at the first piece
of text, and says which of the heavy packages were loaded by then and how long it took. The
source is a folder with one small document, which is read and indexed before the first call;
the memory bank is off.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.loopback import serving
from benchmarks.report import emit

MOST_SECONDS = {"help": 0.4, "first_line": 0.4, "library_import": 0.6}
HEAVY = ("torch", "transformers", "sentence_transformers", "chromadb", "xllamacpp")
PROGRAM = "from rubricem.agent.cli import main; main(prog_name='rubricem')"
ASK = ("ask", "--base-url", "http://127.0.0.1:9/v1", "--source", "python", "Which rule?")


def time_call(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def start(what: str, *args: str) -> None:
    subprocess.run([sys.executable, "-c", what, *args], check=True, stdout=subprocess.DEVNULL)


def first_line() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *ASK], stderr=subprocess.PIPE) as asking:
        assert asking.stderr and asking.stderr.readline() == b"Which rule?\n"
        asking.kill()


STARTS: dict[str, Callable[[], None]] = {
    "help": lambda: start(PROGRAM, "--help"),
    "first_line": first_line,
    "library_import": lambda: start("from rubricem import research"),
}


def first_token(address: str) -> dict[str, Any]:
    """What the process of one question says at its first token."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rules.md").write_text("# Rules\n\nThe rule decides the order.\n")
        began = time.time()
        command = [sys.executable, "-m", "benchmarks.startup", "--child", address, folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return {**said, "seconds": said["at"] - began, "import_seconds": said["ready"] - began}


async def ask(address: str, folder: Path) -> None:
    """Ask as the command does, and end this process at the first piece of text."""
    from rubricem.agent.reports.display import live_view
    from rubricem.agent.research.setup import open_researcher
    from rubricem.agent.settings import load_settings
    from rubricem.agent.settings.door import setup_of
    from rubricem.agent.transcript.events import Event, TextWritten, tell_to

    flags = {"base_url": address, "source": (str(folder),), "data_dir": folder / ".data"}
    settings = load_settings(flags)

    def tell(event: Event) -> None:
        shown(event)
        if isinstance(event, TextWritten):
            loaded = [name for name in HEAVY if name in sys.modules]
            said = {"at": time.time(), "ready": ready, "loaded": loaded}
            print(json.dumps(said), flush=True)
            os._exit(0)

    with live_view("Which rule?", quiet=True) as shown:
        async with open_researcher(setup_of(settings), tell_to(tell)) as researcher:
            ready = time.time()
            wanted = replace(researcher.template, question="Which rule?")
            await researcher.ask(wanted, listener=tell)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="7 starts (the default)")
    size.add_argument("--full", action="store_true", help="25 starts")
    size.add_argument("--child", nargs=2, metavar=("URL", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        asyncio.run(ask(options.child[0], Path(options.child[1])))
    else:
        measure(25 if options.full else 7)


def measure(starts: int) -> None:
    for call in STARTS.values():
        call()
    rounds = [{name: time_call(call) for name, call in STARTS.items()} for _ in range(starts)]
    medians = {name: statistics.median(taken[name] for taken in rounds) for name in STARTS}
    with serving(delay=0.0, chunks=20) as address:
        first_token(address)
        tokens = [first_token(address) for _ in range(starts)]
    loaded = sorted({name for token in tokens for name in token["loaded"]})
    emit(
        "startup",
        {
            **{f"{name}_s_median": round(seconds, 3) for name, seconds in medians.items()},
            "first_token_s_median": round(statistics.median(t["seconds"] for t in tokens), 3),
            "clients_ready_s_median": round(
                statistics.median(t["import_seconds"] for t in tokens), 3
            ),
            "heavy_loaded_at_first_token": ", ".join(loaded) or "none",
        },
        {
            **{f"{name}_s_median": f"<= {most}" for name, most in MOST_SECONDS.items()},
            "heavy_loaded_at_first_token": "none",
        },
        not loaded and all(medians[name] <= most for name, most in MOST_SECONDS.items()),
        f"{starts} fresh processes each, after one to warm the disk cache; a loopback server that "
        f"answers at once; looked for {', '.join(HEAVY)}; {os.cpu_count()} cores",
    )


if __name__ == "__main__":
    main()
