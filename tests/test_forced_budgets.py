"""Forced runs under budgets: whole claims stand, slots in progress do not."""

import re
from pathlib import Path

import pytest

from agent.budgets import UNLIMITED, Budgets
from agent.forced import ForcedDecoder
from agent.reports.citations import cited_answer
from agent.researcher import Researcher
from agent.run import Ask
from agent.scaffold import parse
from memory.interfaces import Sampling
from memory.runs import RunStore
from memory.schema import Decoding, Stage, Status, Trajectory
from tests.fakes import QUESTION, FixedSearch, ScriptedPolicy

CLAIMS = ("The cache can grow without bound.", "The smallest element is always first.")
MISSING = "How do functools.lru_cache and os.scandir differ?"


def policy() -> ScriptedPolicy:
    """Fills every slot with a word, and makes the claims, each of the first id it is offered."""
    left = iter(CLAIMS)

    def write(before: str, sampling: Sampling) -> str:
        if sampling.grammar is None:
            return "words"
        claim = next(left, None)
        offered = re.findall(r'"(S\d+)"', sampling.grammar)
        return "\n</answer>" if claim is None else f'\n<cite id="{offered[0]}">{claim}</cite>'

    return ScriptedPolicy(write)


async def asked(
    tmp_path: Path, budgets: Budgets = UNLIMITED, question: str = QUESTION, searches: int = 10
) -> tuple[Trajectory, ScriptedPolicy]:
    writer = policy()
    researcher = Researcher(
        writer, ForcedDecoder(), Decoding.FORCED, FixedSearch(), RunStore(tmp_path), Ask("")
    )
    return await researcher.ask(Ask(question, tool_calls=searches, budgets=budgets)), writer


async def test_a_budget_cut_at_every_call_leaves_a_report_and_closed_tags(tmp_path: Path):
    whole, writer = await asked(tmp_path / "whole")
    assert whole.status is Status.FINISHED
    spent, limits = 0, []
    for before, _ in writer.calls:
        spent += len(before)
        limits.append(spent + 20)
    for limit in limits[:-2]:
        run, _ = await asked(tmp_path / str(limit), Budgets(tokens=limit))
        assert (run.status, run.ended_by) == (Status.PARTIAL, "tokens"), limit
        document = parse(run.transcript())
        assert document.find("answer")[-1].closed
        answer = cited_answer(run)
        assert answer.text() and answer.dropped == 0
        assert bool(answer.citations) is bool(run.sources)


async def test_a_claim_that_stands_is_kept_where_the_next_is_cut(tmp_path: Path):
    _, writer = await asked(tmp_path / "whole")
    first = next(i for i, (_, s) in enumerate(writer.calls) if s.grammar)
    used = sum(len(before) for before, _ in writer.calls[: first + 1])
    written = first * len("words") + len(f'\n<cite id="S1">{CLAIMS[0]}</cite>')
    run, _ = await asked(tmp_path / "cut", Budgets(tokens=used + written + 1))
    assert (run.ended_by, run.cut_in) == ("tokens", Stage.ANSWER)
    text = cited_answer(run).text()
    assert text.startswith("The cache can grow without bound")
    assert text.endswith("(The answer breaks off here.)")


@pytest.mark.parametrize(("searches", "ended_by"), [(1, "tool_calls"), (10, "")])
async def test_a_forced_run_says_that_its_searches_were_spent(
    searches: int, ended_by: str, tmp_path: Path
):
    run, _ = await asked(tmp_path, question=MISSING, searches=searches)
    assert (run.status, run.ended_by) == (Status.FINISHED, ended_by)


async def test_a_forced_run_without_a_passage_found_no_evidence(tmp_path: Path):
    researcher = Researcher(
        policy(), ForcedDecoder(), Decoding.FORCED, FixedSearch([]), RunStore(tmp_path), Ask("")
    )
    run = await researcher.ask(Ask(QUESTION))
    assert (run.status, run.reason) == (Status.NO_EVIDENCE, "nothing was found")
    assert "hold nothing on this question" in cited_answer(run).text()
