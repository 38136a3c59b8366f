import pytest

from agent.forced import ForcedDecoder
from agent.graph import STEPS
from agent.run import Ask, Run
from memory.interfaces import Sampling
from memory.journal import Journal
from memory.schema import AnswerFormat, Decoding, Stage, Status, Trajectory
from tests.fakes import QUESTION, FixedSearch, ScriptedPolicy
from tests.test_compiling import Characters
from training.recasting import faults, free_turns, sft_rows

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
    assert trace.status is Status.FINISHED
    first, last = free_turns(trace)
    assert faults([first, last]) == []
    assert first.text.endswith("</call_tool>") and first.tool_output.startswith("\n<tool_output>")
    assert last.text.startswith("<think>New evidence: S1 (functools.lru_cache(maxsize=128)), S2")
    assert "Question:" not in last.text and last.text.endswith("</answer>")
    assert last.tool_output == ""


async def test_the_loss_stands_on_all_the_policy_writes_and_on_no_tool_output(tmp_path):
    trace = await traced(tmp_path)
    compiled = await sft_rows([trace], Characters(), tool_calls=3)
    (row,) = compiled.rows
    text = "".join(map(chr, row.ids))
    first, last = free_turns(trace)
    trained = "".join(chr(i) for i, on in zip(row.ids, row.loss_mask, strict=True) if on)
    assert trained == first.text + last.text
    prompt = text[: text.index(first.text)]
    assert "You may search 3 times at most." in prompt and trace.question in prompt
    assert text == prompt + first.text + first.tool_output + last.text
    assert (row.objective, row.ratio_allowed) == ("sft", False)
    assert row.advantages == tuple(map(float, row.loss_mask))


async def test_each_trained_token_knows_its_stage(tmp_path):
    (row,) = (await sft_rows([await traced(tmp_path)], Characters())).rows

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
    turns = free_turns(await traced(tmp_path, question=question))
    assert len(turns) == 3 and faults(turns) == []
    assert turns[1].text.endswith("</call_tool>") and "batched" in turns[1].text
    assert turns[2].text.startswith("<think>The search brought nothing new.</think>")


async def test_the_mark_before_an_exact_answer_goes(tmp_path):
    trace = await traced(tmp_path, answer_format=AnswerFormat.EXACT)
    assert "\nAnswer: " in trace.transcript()
    last = free_turns(trace)[-1]
    assert "Answer: " not in last.text and faults(free_turns(trace)) == []


async def test_what_is_not_to_be_imitated_is_dropped_with_the_reason(tmp_path):
    good = await traced(tmp_path)
    unanswered = [s for s in good.segments if s.stage is not Stage.ANSWER]
    unreviewed = [s for s in good.segments if s.stage is not Stage.REVIEW]
    bad = [
        good.model_copy(update={"decoding": Decoding.FREE}),
        good.model_copy(update={"status": Status.PARTIAL}),
        good.model_copy(update={"segments": tuple(unanswered)}),
        good.model_copy(update={"segments": tuple(unreviewed)}),
    ]
    compiled = await sft_rows(bad, Characters())
    assert compiled.rows == ()
    assert list(compiled.dropped) == [
        "it is not a forced trace",
        "it is partial, not finished",
        "rejected by the rule no_answer",
        "free mode refuses it: turn 2: review is missing.",
    ]


@pytest.mark.parametrize("error", ["the index is gone"])
async def test_a_failed_search_is_the_thought_of_the_next_turn(tmp_path, error):
    trace = await traced(tmp_path, search=FixedSearch([], error))
    assert free_turns(trace)[1].text.startswith("<think>The search failed.</think>")
