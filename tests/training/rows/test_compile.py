"""Forced traces re-cast; a teacher's rollouts: collected like others, good for imitation alone."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.agent.models.policy import as_response
from rubricem.agent.research.forced import ForcedDecoder
from rubricem.agent.research.free import system_prompt
from rubricem.agent.research.run import Run
from rubricem.agent.transcript.question import Ask
from rubricem.memory.runs import Journal
from rubricem.memory.schema import AnswerFormat, Decoding, Stage, Status, Trajectory
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.rows.compile import (
    NO_MODEL,
    Demonstration,
    demonstrate,
    each_row,
    imitation_row,
    recast,
)
from rubricem.training.rows.row import TrainRow
from tests.support.collected import QUESTIONS, manifest
from tests.support.policies import QUESTION, FixedSearch, answer, plan
from tests.support.scripted_server import Scripted, ScriptedServer
from tests.support.slots import Filling, Library, SmallModel, page, walk
from tests.support.token_servers import Json
from tests.training.rows.test_credit import Characters


async def traced(tmp_path, *, question=QUESTION, search=None, filled=None, **limits) -> Trajectory:
    """A forced run through all its stages."""
    journal = Journal(tmp_path / "journal.jsonl")
    policy = SmallModel(filled, context_tokens=40_000)
    ask = Ask(question, **limits)
    run = Run(ask, "t", Decoding.FORCED, policy, search or FixedSearch(), journal)
    await walk(run, ForcedDecoder())
    journal.close()
    return run.trajectory("trace")


@pytest.mark.parametrize("settings", [{}, {"system_prompt": "short"}])
async def test_a_trace_is_recast_under_the_system_prompt_of_its_run(
    settings: dict[str, str], tmp_path: Path
):
    run = RunDirectory(tmp_path)
    run.begin(manifest(decoding=Decoding.FORCED, tool_calls=3, settings=settings), QUESTIONS)
    run.commit(0, {"trajectories": [await traced(tmp_path)]})
    [row] = [row async for row in each_row(run, Characters())]
    assert isinstance(row, TrainRow)
    told = system_prompt(3, short=bool(settings))
    assert told in "".join(map(chr, row.ids[: row.prompt_tokens]))


async def test_a_forced_trace_is_trained_where_the_policy_writes(tmp_path):
    trace = await traced(tmp_path)
    row = await imitation_row(trace, Characters(), system=system_prompt(3))
    assert isinstance(row, TrainRow)
    text = "".join(map(chr, row.ids))
    first, found, last = (turn.content for turn in recast(trace).turns)
    trained = "".join(chr(i) for i, on in zip(row.ids, row.loss_mask, strict=True) if on)
    assert trained == f"{first}\3{last}\3"
    prompt = text[: text.index(first)]
    assert "You may search 3 times at most." in prompt and trace.question in prompt
    assert text == f"{prompt}{first}\3{as_response(found)}{last}\3"
    assert (row.objective, row.ratio_allowed) == ("sft", False)
    assert row.advantages == tuple(map(float, row.loss_mask))


PAGES = [
    page("The Paper Kite", "The Paper Kite is a film directed by Mira Holt with Tom Reyes."),
    page("Mira Holt", "Mira Holt died at home, mourned by all Turin."),
]
PARTS = " Who directed The Paper Kite?\n2. Where did Mira Holt die?\n"
ASKED = "Who directed The Paper Kite, and where did its director die?"


async def test_a_second_search_becomes_a_turn_of_its_own(tmp_path):
    doubts = {f"{PAGES[0].text}\n\nQuestion: {ASKED} Answer only this part: Where": 0.0}
    filled = Filling(plan=PARTS, drafts="Mira Holt it was.", rewords="Mira", chances=doubts)
    trace = await traced(tmp_path, question=ASKED, search=Library(PAGES), filled=filled)
    assert isinstance(demonstrate(trace), Demonstration)
    _, whole, second = (t.content for t in recast(trace).turns if t.role == "assistant")
    assert whole.startswith("<think>\nS1 answers [1].") and "Who directed" in whole
    assert whole.endswith('<call_tool name="search">Where did Mira Holt die? Mira</call_tool>')
    assert second.startswith("<think>\nS2 answers [2].")


async def test_the_mark_before_an_exact_answer_goes(tmp_path):
    filled = Filling(known=["cache"], concludes=["cache"])
    trace = await traced(tmp_path, filled=filled, answer_format=AnswerFormat.EXACT)
    assert "\nAnswer: " in trace.transcript()
    shown = demonstrate(trace)
    assert isinstance(shown, Demonstration) and "Answer: " not in shown.turns[-1].content


async def test_a_forced_trace_that_is_not_to_be_imitated_is_dropped_with_the_reason(tmp_path):
    good = await traced(tmp_path)
    unanswered = [s for s in good.segments if s.stage is not Stage.ANSWER]
    unreviewed = [s for s in good.segments if s.stage is not Stage.REVIEW]
    bad = [
        good.model_copy(update={"status": Status.PARTIAL}),
        good.model_copy(update={"segments": tuple(unanswered)}),
        good.model_copy(update={"segments": tuple(unreviewed)}),
    ]
    assert [await imitation_row(trace, Characters()) for trace in bad] == [
        "it is partial, not finished",
        "rejected by the rule no_answer",
        "rejected by the rule structure",
    ]


def by_script(body: Json, number: int) -> Scripted:
    if "tool_output" in body["messages"][-1]["content"]:
        return answer('It is <cite id="S1">the oldest entry</cite>.')
    return plan()


def collect(*arguments: str) -> Result:
    shape = ["--source", "documents", "--group-size", "2", "--judge", "none"]
    return CliRunner().invoke(
        main, ["collect", "questions.txt", "--out", "run", *shape, *arguments]
    )


@pytest.fixture
def taught(folder: Path) -> RunDirectory:
    """A run of a teacher's two rollouts."""
    with ScriptedServer(by_script) as server:
        done = collect("teacher=true", "--base-url", server.base_url)
    assert done.exit_code == 0, done.output
    return RunDirectory(folder / "run")


async def test_a_teachers_traces_are_marked_and_become_rows_of_imitation(taught: RunDirectory):
    assert taught.manifest().teacher.startswith("scripted@127.0.0.1:")
    rows = [row async for row in each_row(taught, Characters()) if isinstance(row, TrainRow)]
    assert [(row.objective, row.ratio_allowed) for row in rows] == [("sft", False)] * 2
    (first, _), trace = rows, next(taught.trajectories())
    learnt = "".join(chr(i) for i, on in zip(first.ids, first.loss_mask, strict=True) if on)
    shown = Demonstration.of(trace).turns
    assert learnt == "".join(f"{m.content}\3" for m in shown if m.role == "assistant")
    assert "tool_output" not in learnt and first.behaviour_logprobs == (0.0,) * len(first.ids)
    assert [row async for row in each_row(taught)] == [NO_MODEL] * 2
