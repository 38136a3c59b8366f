"""Of the key facts of written questions over Debian's manuals, those whose passage is shown.

    python -m benchmarks.deep.coverage [--quick | --full] [--docs FOLDER]

Six questions, each with ten facts and a plan of sub-questions and queries, were written from the
manuals of Debian's packages by somebody who had not seen the code, the plan before the passages. A
scripted model follows the plan: deep as a lead with an investigation for each sub-question,
standard with all queries in one run. A fact counts where its passage's words stand in a prompt.

The manuals come from the packages sqlite3-doc, git-doc, postgresql-doc-15 and debian-policy, as
they are installed, or unpacked below `--docs`. Without them nothing is measured, and it says so.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.deep.model import Scripted
from benchmarks.deep.world import words
from benchmarks.report import RESULTS, Value, emit, sized_parser
from rubricem.agent.library import research

QUESTIONS = Path(__file__).parent.parent / "data" / "deep_questions.jsonl"
TARGET = 0.9
FOLDERS = {
    "sqlite3-doc": "sqlite3", "git-doc": "git", "postgresql-doc-15": "postgresql-doc-15",
    "debian-policy": "debian-policy",
}  # fmt: skip
"""package -> its folder below usr/share/doc"""


class Quotes:
    """Which facts stand in the texts that were added, by any of their quotes; and those words."""

    def __init__(self, facts: Sequence[Mapping[str, Any]]) -> None:
        self._told = {
            f" {' '.join(words(quote))} ": fact["fact"]
            for fact in facts
            for quote in fact["quotes"]
        }
        self.facts = set[str]()
        self.words = 0

    def add(self, text: str) -> None:
        said = words(text)
        flat = f" {' '.join(said)} "
        self.words += len(said)
        self.facts |= {fact for told, fact in self._told.items() if told in flat}


class Planned:
    """Follows a plan: asks what it says, and answers with what the first source says."""

    def __init__(self, plan: Sequence[Mapping[str, Any]]) -> None:
        self._plan = plan

    def reply(self, messages: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
        system, question = str(messages[0]["content"]), str(messages[1]["content"])
        turns = sum(message["role"] == "assistant" for message in messages)
        if system.startswith("You lead a research"):
            return "lead", self._lead(turns)
        if system.startswith(("You write one section", "You edit", "You check")):
            return "other", "Nothing more."
        own = [part for part in self._plan if question.startswith(part["question"])]
        queries = [query for part in own or self._plan for query in part["queries"]]
        return "investigation", self._turn(turns, queries)

    def _lead(self, turns: int) -> str:
        calls = "".join(
            f'<call_tool name="investigate" items="{", ".join(map(str, part.get("items", ())))}">'
            f"{part['question']}</call_tool>"
            for part in self._plan
        )
        return _PLAN + calls if not turns else _END.partition("<answer>")[0]

    def _turn(self, turns: int, queries: Sequence[str]) -> str:
        # A handful a turn, as models call them.
        now = queries[turns * AT_ONCE : (turns + 1) * AT_ONCE]
        calls = "".join(f'<call_tool name="search">{query}</call_tool>' for query in now)
        head = (
            _PLAN if not turns else "<think>On.</think><state_evaluation>Open.</state_evaluation>"
        )
        return head + calls if calls else _END


AT_ONCE = 6
_PLAN = (
    "<think>By the plan.</think><structured_plan><deep_analysis>Broad.</deep_analysis><rubric>\n"
    "1. what the question asks\n</rubric><research_plan>As below.</research_plan></structured_plan>"
)
_END = (
    "<think>Enough.</think><review><rubric_review>1. what the question asks [met: S1]"
    "</rubric_review><writing_plan>## All\n[S1]</writing_plan></review>"
    '<answer><cite id="S1">The source says what is asked</cite>.</answer>'
)


def folder_of(package: str, docs: Path) -> Path | None:
    for root in (docs, Path("/")):
        found = root / "usr/share/doc" / FOLDERS[package]
        for path in (found, found / "html", root / "usr/share/doc" / package / "html"):
            with suppress(OSError):
                if any(path.rglob("*.html")):
                    return path
    return None


async def measure(
    asked: Mapping[str, Any], effort: str, folders: Sequence[Path], data: Path
) -> tuple[int, int]:
    """How many of a question's facts were shown, and the words of all prompts."""
    shown = Quotes(asked["facts"])
    scripted = Scripted(0.0, Planned(asked["plan"]), {"all": shown})
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        report = await research(
            asked["question"],
            base_url=f"http://127.0.0.1:{port}/v1",
            model="loopback",
            source=list(folders),
            effort=effort,  # type: ignore[arg-type]
            verify="off",
            memory="off",
            data_dir=data,
        )
    assert report.trajectory.tool_calls, "the plan was followed"
    return len(shown.facts), shown.words


async def measure_all(docs: Path, most: int) -> tuple[dict[str, Value], list[Any]]:
    asked = [json.loads(line) for line in QUESTIONS.read_text().splitlines()][:most]
    found: dict[str, list[int]] = {"deep": [], "standard": []}
    raw, facts = [], 0
    with tempfile.TemporaryDirectory() as data:
        for question in asked:
            places = [folder_of(package, docs) for package in question["sources"]]
            if not all(places):
                print(
                    json.dumps({"left out": question["question"], "lacking": question["sources"]})
                )
                continue
            facts += len(question["facts"])
            for effort, counts in found.items():
                folders = [place for place in places if place]
                shown, said = await measure(question, effort, folders, Path(data))
                counts.append(shown)
                raw.append({"question": question["question"], "effort": effort, "shown": shown})
                print(json.dumps({**raw[-1], "words": said}), flush=True)
    values: dict[str, Value] = {"facts": facts}
    values |= {
        f"{name}_shown": round(sum(c) / facts, 3) if facts else None for name, c in found.items()
    }
    return values, raw


def main() -> None:
    parser = sized_parser(__doc__, "two questions", "all six")
    parser.add_argument("--docs", type=Path, default=Path("/"), help="where packages are unpacked")
    options = parser.parse_args()
    values, raw = asyncio.run(measure_all(options.docs, 6 if options.full else 2))
    how = f"scripted plan, ranked by words, on {os.cpu_count()} cores"
    out = RESULTS / "deep_coverage.json" if options.full else None
    emit("deep_coverage", values, how, out, raw, least={"deep_shown": TARGET})


if __name__ == "__main__":
    main()
