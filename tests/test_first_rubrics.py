"""Criteria made before any run: from the question and what a search finds, once."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from judge.first_rubrics import PASSAGES, first_rubrics
from judge.line_proposer import LineProposer
from judge.transcripts import shown_passages
from memory.buffers import BufferStore
from memory.errors import SettingsError
from memory.interfaces import Completion, Passage
from memory.rubrics import RubricBuffer
from memory.schema import Stage
from tests.fakes import PASSAGES as FOUND
from tests.fakes import FixedSearch
from tests.judged import QUESTION, ScriptedProposer, item
from tests.scripted_server import ScriptedServer

EMPTY = RubricBuffer(question=QUESTION)
KEPT = item("Names the least recently used.", kept=True)


class Listening(ScriptedProposer):
    """Remembers what a search had found."""

    found: tuple[Passage, ...] = ()

    async def from_question(self, question: str, found: Any = ()) -> Any:
        self.found = tuple(found)
        return await super().from_question(question, found)


async def test_criteria_come_from_the_question_and_from_a_search_for_it():
    search, proposer = (
        FixedSearch(),
        Listening({Stage.ANSWER: (KEPT, item("Has a tag", kept=True))}),
    )
    made = await first_rubrics(EMPTY, proposer, search)
    assert (search.queries, proposer.found) == ([QUESTION], tuple(FOUND))
    assert made.buffer.persistent[Stage.ANSWER] == (KEPT,)
    assert made.buffer.history[0].reason == f"from the question and {len(FOUND)} passages"
    assert len(FOUND) <= PASSAGES and len(made.notes) == 1, "the tag is a loophole"
    assert made.usage.calls == 1


async def test_they_are_made_once():
    buffer = EMPTY.model_copy(update={"persistent": {Stage.PLAN: (KEPT,)}})
    with pytest.raises(SettingsError, match="kept for good"):
        await first_rubrics(buffer, ScriptedProposer({}), None)


async def test_without_a_search_the_question_stands_alone():
    made = await first_rubrics(EMPTY, ScriptedProposer({Stage.ANSWER: (KEPT,)}), None)
    assert (made.passages, made.buffer.history[0].reason) == (0, "from the question")


def test_passages_are_fenced_and_cut():
    shown = shown_passages([Passage("t", "l", "p", "x" * 999), Passage("u", "l", "p", "y")], 200)
    assert shown.count("[end of text") == 2 and "t\nx" in shown
    assert len(shown) < 200 + 2 * 80


def make(server: ScriptedServer, *arguments: str) -> Result:
    command = ["judge", "rubrics", "from-search", *arguments, "--base-url", server.base_url]
    return CliRunner().invoke(main, command)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BufferStore:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    return BufferStore(tmp_path / "data" / "buffers")


def test_the_command_searches_a_folder_and_keeps_what_was_made(store: BufferStore, tmp_path: Path):
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "cache.md").write_text("# lru_cache\n\nlru_cache evicts the oldest use first.\n")
    reply = {"answer": {"positive": [{"title": "Rule", "description": "Names the oldest use."}]}}
    with ScriptedServer([json.dumps(reply)]) as server:
        done = make(server, QUESTION, "--source", str(folder))
    assert done.exit_code == 0, done.output
    assert "Names the oldest use." in done.stdout and "1 criteria, after 1 passages" in done.stdout
    said = server.requests[0].body["messages"][1]["content"]
    assert "evicts the oldest use first" in said
    (kept,) = store.load(QUESTION).persistent[Stage.ANSWER]
    assert kept.persistent


def test_a_question_that_has_them_is_misuse(store: BufferStore):
    store.save(RubricBuffer(question=QUESTION, version=1, persistent={Stage.PLAN: (KEPT,)}))
    with ScriptedServer([]) as server:
        done = make(server, QUESTION, "--no-search")
    assert done.exit_code == 2 and "kept for good" in done.stderr


class Writer:
    """A `TokenPolicy` of one token a character that remembers its prompts and writes one line."""

    name, version, context_tokens = "writer", "1", 4096

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def render(self, messages: Any) -> tuple[int, ...]:
        self.asked.append(messages[-1].content)
        return (1,)

    async def encode(self, text: str) -> tuple[int, ...]:
        return (2,)

    async def complete(self, prefix: Any, sampling: Any, stop: Any = None) -> Completion:
        return Completion(" Says how lru_cache does evict the oldest use.", "stop")


async def test_the_embedded_proposer_reads_the_passages_too():
    writer = Writer()
    writer_any: Any = writer
    proposed = await LineProposer(writer_any).from_question(QUESTION, FOUND)
    assert all(FOUND[0].text in said for said in writer.asked) and len(writer.asked) == 4
    assert proposed.criteria[Stage.ANSWER][0].persistent
