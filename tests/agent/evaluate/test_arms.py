"""The arms: which there are, the plain loop, and the model alone."""

from pathlib import Path

import pytest

from rubricem.agent.evaluate.arms import (
    BARE_ASKED,
    Arm,
    PlainDecoder,
    ask_closed,
    query_of,
    turn_end,
)
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.research.recall import Recall
from rubricem.agent.transcript.question import Ask
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import AnswerFormat, Recollection, Status, Trajectory
from tests.support.policies import QUESTION, FixedSearch, answer, plan, researching
from tests.support.scripted_server import Fault, Scripted, ScriptedServer


def test_arms_are_named_once_and_an_unknown_one_is_refused():
    found = Arm.parse("stages,plain, closed,memory,plain")
    assert [arm.name for arm in found] == ["stages", "plain", "closed", "stages+memory"]
    for named in ("stages,quick", "best-of-2", " , "):
        with pytest.raises(SettingsError, match="There is no arm") as refused:
            Arm.parse(named)
        assert "stages, plain, closed, memory" in refused.value.remedy


@pytest.mark.parametrize(
    ("text", "query"),
    [("Search: lru cache", "lru cache"), (" search:heapq\nmore", "heapq"),
     ("Answer: it grows", None), ("Search:\n", None), ("It grows.", None)],
)  # fmt: skip
def test_a_turn_is_a_query_or_an_answer(text: str, query: str | None):
    assert query_of(text) == query


def test_a_turn_ends_with_its_query_or_before_the_next_one():
    assert turn_end("Search: lru") is None
    assert turn_end("Search: lru\nAnswer: x") == len("Search: lru")
    assert turn_end("Answer: it grows [S1].") is None
    assert turn_end("Answer: it grows.\nQuestion: what") == len("Answer: it grows.")


async def test_a_model_that_only_searches_is_made_to_answer(tmp_path: Path):
    source = FixedSearch()
    turns: list[Scripted] = ["Search: a", "Search: b", "It grows [S1]."]
    with ScriptedServer(turns) as server:
        async with researching(server.base_url, tmp_path, source) as researcher:
            researcher.decoder = PlainDecoder()
            run = await researcher.ask(Ask(QUESTION), "t")
    assert source.queries == [QUESTION, "a", "b"]
    assert cited_answer(run).text() == "It grows [1]."


async def test_an_exact_answer_of_the_loop_ends_with_the_bare_answer(tmp_path: Path):
    turns: list[Scripted] = ["Answer: It grows without bound [S1].", "Answer: unbounded\nmore"]
    with ScriptedServer(turns) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            researcher.decoder = PlainDecoder()
            run = await researcher.ask(Ask(QUESTION, AnswerFormat.EXACT), "t")
    text = cited_answer(run).text()
    assert text == f"It grows without bound [1].\n{BARE_ASKED}\n\nunbounded"
    assert cited_answer(run).bare == "unbounded"


async def test_the_model_alone_answers_without_a_search_and_is_kept(tmp_path: Path):
    source = FixedSearch()
    with ScriptedServer(["It is unbounded.", "unbounded"]) as server:
        async with researching(server.base_url, tmp_path, source) as researcher:
            run = await ask_closed(researcher, Ask(QUESTION, AnswerFormat.EXACT), "closed-1")
            again = await ask_closed(researcher, Ask(QUESTION, AnswerFormat.EXACT), "closed-1")
    assert (source.queries, run.tool_calls, run.status) == ([], 0, Status.FINISHED)
    assert cited_answer(run).bare == "unbounded"
    assert researcher.store.load("closed-1").transcript() == again.transcript()
    assert len(server.requests) == 2, "what was answered is not asked again"


async def test_a_server_that_fails_makes_the_model_alone_a_failed_run(tmp_path: Path):
    with ScriptedServer([Fault(401)]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            run = await ask_closed(researcher, Ask(QUESTION), "t")
    assert run.status is Status.FAILED and run.reason


class FixedRecaller:
    """Recalls the same for every question, and counts what it is told."""

    def __init__(self) -> None:
        self.told = 0

    async def recall(self, question: str) -> Recall:
        told = (Recollection(id="r1", question="Another?"),)
        return Recall(items=told, block="Earlier: read twice.\n")

    async def note_use(self, trajectory: Trajectory) -> None:
        self.told += 1


@pytest.mark.parametrize(
    ("arm", "recalled"),
    [(Arm("stages"), ()), (Arm("stages", memory=True), ("r1",)), (Arm("plain"), ())],
)
async def test_memory_is_put_before_the_staged_arm_that_is_named_so_and_the_bank_not_told(
    tmp_path: Path, arm: Arm, recalled: tuple[str, ...]
):
    turns: list[Scripted] = (
        [plan(), answer()] if arm.way == "stages" else ["Answer: It grows [S1]."]
    )
    recaller = FixedRecaller()
    with ScriptedServer(turns) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            run = await arm.ask(researcher, recaller, Ask(QUESTION), "t")
    assert (run.recalled, run.status) == (recalled, Status.FINISHED)
    assert recaller.told == 0
