"""Forced traces re-cast; a teacher's rollouts: collected like others, good for imitation alone."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.agent.research.forced import ForcedDecoder
from rubricem.agent.research.graph import STEPS
from rubricem.agent.research.run import Run
from rubricem.agent.transcript.question import Ask
from rubricem.agent.transcript.scaffold import Rule
from rubricem.memory.runs import Journal
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Decoding,
    Sampling,
    Stage,
    Status,
    Trajectory,
)
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.rows.compile import (
    NOTHING_WRITTEN,
    Demonstration,
    demonstrate,
    each_row,
    imitation_row,
    needs_tokeniser,
    recast,
)
from rubricem.training.rows.row import TrainRow
from tests.support.policies import QUESTION, FixedSearch, ScriptedPolicy, answer, plan
from tests.support.scripted_server import Scripted, ScriptedServer
from tests.support.token_servers import Json
from tests.training.rows.test_credit import Characters

PASSAGE = "Least-recently-used cache. If maxsize is None the cache can grow without bound."
CLAIM = f'\n<cite id="S1">{PASSAGE}</cite>'


def slots(before: str, sampling: Sampling) -> str:
    """What a small model puts into each slot."""
    if sampling.grammar:
        return "" if "<cite" in before else CLAIM
    if before.endswith("says:"):
        return " the cache can grow without bound."
    return " nothing." if before.endswith("Missing:") else " Some lru_cache words here."


async def traced(tmp_path, *, question=QUESTION, search=None, **limits) -> Trajectory:
    """A forced run through all its stages."""
    journal = Journal(tmp_path / "journal.jsonl")
    ask = Ask(question, **limits)
    policy = ScriptedPolicy(slots, context_tokens=8192)
    run = Run(ask, "t", Decoding.FORCED, policy, search or FixedSearch(), journal)
    decoder, query = ForcedDecoder(), None
    for name in ("recall", "plan", "tools", "research"):
        query = await STEPS[name](run, decoder, query)
    while query:
        query = await STEPS["tools"](run, decoder, query)
        query = await STEPS["research"](run, decoder, query)
    for name in ("review", "answer"):
        await STEPS[name](run, decoder, None)
    journal.close()
    return run.trajectory("trace")


async def test_a_forced_trace_is_recast_into_turns_that_free_mode_takes(tmp_path):
    trace = await traced(tmp_path)
    assert trace.status is Status.FINISHED and isinstance(demonstrate(trace), Demonstration)
    first, found, last = recast(trace).parts
    assert [piece.own for piece in (first, found, last)] == [True, False, True]
    assert first.text.endswith("</call_tool>") and found.text.startswith("\n<tool_output>")
    assert last.text.startswith("<think>New evidence: S1 (functools.lru_cache(maxsize=128)), S2")
    assert "Question:" not in last.text and last.text.endswith("</answer>")


async def test_a_forced_trace_is_trained_where_the_policy_writes_and_each_token_knows_its_stage(
    tmp_path,
):
    trace = await traced(tmp_path)
    row = await imitation_row(trace, Characters(), tool_calls=3)
    assert isinstance(row, TrainRow)
    text = "".join(map(chr, row.ids))
    first, found, last = recast(trace).parts
    trained = "".join(chr(i) for i, on in zip(row.ids, row.loss_mask, strict=True) if on)
    assert trained == first.text + last.text
    prompt = text[: text.index(first.text)]
    assert "You may search 3 times at most." in prompt and trace.question in prompt
    assert text == prompt + first.text + found.text + last.text
    assert (row.objective, row.ratio_allowed) == ("sft", False)
    assert row.advantages == tuple(map(float, row.loss_mask))

    def of(stage: Stage) -> str:
        number = list(Stage).index(stage)
        chosen = zip(row.ids, row.stages, row.loss_mask, strict=True)
        return "".join(chr(i) for i, s, on in chosen if on and s == number).strip()

    assert of(Stage.PLAN).startswith("<think>") and of(Stage.PLAN).endswith("</structured_plan>")
    assert of(Stage.RESEARCH).startswith("<call_tool")
    assert of(Stage.RESEARCH).endswith("</call_tool>")
    assert of(Stage.REVIEW).startswith("<think>New") and of(Stage.REVIEW).endswith("</review>")
    assert of(Stage.ANSWER).startswith("<answer>") and of(Stage.ANSWER).endswith("</answer>")


async def test_a_second_search_becomes_a_turn_of_its_own(tmp_path):
    question = "How do functools.lru_cache and itertools.batched differ?"
    trace = await traced(tmp_path, question=question)
    assert isinstance(demonstrate(trace), Demonstration)
    _, second, third = (piece.text for piece in recast(trace).parts if piece.own)
    assert second.endswith("</call_tool>") and "batched" in second
    assert third.startswith("<think>The search brought nothing new.</think>")


async def test_the_mark_before_an_exact_answer_goes(tmp_path):
    trace = await traced(tmp_path, answer_format=AnswerFormat.EXACT)
    assert "\nAnswer: " in trace.transcript()
    shown = demonstrate(trace)
    assert isinstance(shown, Demonstration) and "Answer: " not in shown.parts[-1].text


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


async def test_a_failed_search_is_the_thought_of_the_next_turn(tmp_path):
    trace = await traced(tmp_path, search=FixedSearch([], "the index is gone"))
    assert recast(trace).parts[2].text.startswith("<think>The search failed.</think>")


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
        done = collect("--teacher", "scripted", "--teacher-base-url", server.base_url)
    assert done.exit_code == 0, done.output
    return RunDirectory(folder / "run")


async def test_a_teachers_traces_are_marked_and_become_rows_of_imitation(taught: RunDirectory):
    assert taught.manifest().teacher.startswith("scripted@127.0.0.1:")
    assert needs_tokeniser(taught)
    rows = [row async for row in each_row(taught, Characters()) if isinstance(row, TrainRow)]
    assert [(row.objective, row.ratio_allowed) for row in rows] == [("sft", False)] * 2
    (first, _), trace = rows, next(taught.trajectories())
    learnt = "".join(chr(i) for i, on in zip(first.ids, first.loss_mask, strict=True) if on)
    assert learnt == "".join(s.text for s in trace.segments if s.author is Author.POLICY)
    assert "tool_output" not in learnt and first.behaviour_logprobs == (0.0,) * len(first.ids)
    assert [row async for row in each_row(taught)] == ["it has no token ids"] * 2


def test_a_teacher_takes_the_policys_place(folder: Path):
    with ScriptedServer(by_script) as server:
        both = collect("--teacher", "scripted", "--model", "0.5b", "--base-url", server.base_url)
        assert both.exit_code == 2 and "A teacher writes the rollouts in place of" in both.stderr
        only = collect("--teacher-base-url", server.base_url)
        assert only.exit_code == 0, only.output
        policy = collect("--base-url", server.base_url)
    assert policy.exit_code == 2 and "holds a run with another teacher" in policy.stderr


async def test_a_teachers_trace_that_is_not_accepted_is_dropped_with_the_reason(
    taught: RunDirectory,
):
    trace, student = next(taught.trajectories()), Characters()
    assert isinstance(await imitation_row(trace, student), TrainRow)
    partial = trace.model_copy(update={"status": Status.PARTIAL})
    assert await imitation_row(partial, student) == "it is partial, not finished"
    said = tuple(
        s.model_copy(update={"text": "No."}) if s.stage is Stage.ANSWER else s
        for s in trace.segments
    )
    broken = await imitation_row(trace.model_copy(update={"segments": said}), student)
    assert str(broken).startswith("rejected")
    unknown = trace.model_copy(update={"sources": ()})
    found = await imitation_row(unknown, student, [Rule.CITATION])
    assert found == "rejected by the rule citation"

    class Silent(Characters):
        async def encode(self, text: str) -> tuple[int, ...]:
            return ()

    assert await imitation_row(trace, Silent()) == NOTHING_WRITTEN
