"""Forced decoding: whatever the model fills in, the scaffold holds and no id is invented.

Forced runs under budgets: whole claims stand, slots in progress do not.
"""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.research.forced import ForcedDecoder, trim
from rubricem.agent.research.question import UNLIMITED, Ask, Budgets
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.run import Run
from rubricem.agent.research.scaffold import parse, tool_call, turn_faults
from rubricem.memory.errors import SettingsError
from rubricem.memory.interfaces import Sampling
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import AnswerFormat, Author, Decoding, Stage, Status, Trajectory
from tests.support.policies import QUESTION, FixedSearch, ScriptedPolicy, new_run


async def answered(run: Run, decoder: ForcedDecoder) -> Run:
    """The walk of the graph, without the graph."""
    await run.open(decoder.system(run), decoder.message(run))
    run.turn = 1
    query: str | None = await decoder.plan(run)
    while query is not None:
        await decoder.observe(run, await run.search(query))
        run.turn += 1
        query = await decoder.research(run)
    await decoder.review(run)
    await decoder.answer(run)
    return run


def writer(slot: str, claims: list[str]) -> ScriptedPolicy:
    """Fills every slot with one text, and the claims in turn; then ends the answer."""
    left = iter(claims)

    def write(before: str, sampling: Sampling) -> str:
        if sampling.grammar is None:
            return slot
        claim = next(left, None)
        offered = re.findall(r'"(S\d+)"', sampling.grammar)
        return "\n</answer>" if claim is None else f'\n<cite id="{offered[0]}">{claim}</cite>'

    return ScriptedPolicy(write)


async def test_a_run_is_valid_by_construction(tmp_path: Path):
    run = new_run(
        tmp_path,
        writer("Some words.", ["The cache can grow without bound."]),
        decoding=Decoding.FORCED,
    )
    await answered(run, ForcedDecoder())
    first, later = (
        "".join(s.text for s in run.segments if s.turn == turn and s.author is not Author.TOOL)
        for turn in (1, 2)
    )
    assert turn_faults(first, 1) == []
    assert parse(run.text).find("cite")[0].attributes["id"] == "S1"
    assert [b.tag for b in parse(later).blocks] == ["state_evaluation", "review", "answer"]


@given(slot=st.text(alphabet="ab <>/.\n&thinkanswerct\"'", max_size=60))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_no_slot_can_break_the_tags(tmp_path_factory: pytest.TempPathFactory, slot: str):
    claim = re.sub(r"[<\n]", "", slot) or "x"
    run = new_run(tmp_path_factory.mktemp("run"), writer(slot, [claim]), decoding=Decoding.FORCED)
    await answered(run, ForcedDecoder())
    document = parse(run.text)
    assert all(block.closed for block in document.root.walk())
    assert document.orphans == ()
    assert [block.tag for block in document.blocks] == [
        "think", "structured_plan", "call_tool", "tool_output", "state_evaluation",
        "review", "answer",
    ]  # fmt: skip


async def test_the_first_query_includes_the_question(tmp_path: Path):
    search = FixedSearch()
    run = new_run(tmp_path, writer("extra words", ["c"]), search, Decoding.FORCED)
    await answered(run, ForcedDecoder())
    assert search.queries[0].startswith(QUESTION)
    call = tool_call("".join(s.text for s in run.segments if s.turn == 1))
    assert call is not None and call.query == search.queries[0]


async def test_a_name_that_no_passage_holds_is_searched_again(tmp_path: Path):
    search = FixedSearch()
    run = new_run(tmp_path, writer("words", ["c"]), search, Decoding.FORCED)
    run.ask = type(run.ask)("How do functools.lru_cache and os.scandir differ?")
    await answered(run, ForcedDecoder(searches=2))
    assert len(search.queries) == 2
    assert search.queries[1].startswith("os.scandir")


async def test_only_ids_that_were_returned_are_offered(tmp_path: Path):
    policy = writer("words", ["the cache can grow", "least recently used cache"])
    run = new_run(tmp_path, policy, decoding=Decoding.FORCED, passages=2)
    await answered(run, ForcedDecoder())
    grammars = [sampling.grammar for _, sampling in policy.calls if sampling.grammar]
    assert all('id ::= "S1" | "S2"\n' in grammar for grammar in grammars)
    assert "</answer>" not in grammars[0].partition("id ::=")[0]


async def test_a_claim_that_adds_nothing_ends_the_answer(tmp_path: Path):
    policy = writer("words", ["The cache can grow.", "the cache can grow", "never reached"])
    run = await answered(new_run(tmp_path, policy, decoding=Decoding.FORCED), ForcedDecoder())
    cites = parse(run.text).find("cite")
    assert len(cites) == 1


async def test_what_its_source_does_not_say_is_not_shown(tmp_path: Path):
    claims = ["The cache can grow without bound.", "maxsize defaults to 4096.", "It is least used."]
    run = await answered(
        new_run(tmp_path, writer("words", claims), decoding=Decoding.FORCED), ForcedDecoder()
    )
    assert "4096" not in run.text
    assert "grow without bound" in run.text.partition("<answer>")[2]


async def test_an_answer_that_no_source_holds_is_said_to_be_none(tmp_path: Path):
    claims = ["Zebras gallop across grassland."] * 9
    run = await answered(
        new_run(tmp_path, writer("words", claims), decoding=Decoding.FORCED), ForcedDecoder()
    )
    assert "Zebras" not in run.text
    assert "do not settle this question" in run.text
    assert run.status is Status.NO_EVIDENCE


async def test_a_failed_search_is_not_told_as_an_empty_one(tmp_path: Path):
    search = FixedSearch(error="the index is gone")
    run = new_run(tmp_path, writer("words", ["x"]), search, Decoding.FORCED)
    await answered(run, ForcedDecoder())
    assert "hold nothing" not in run.text
    assert "The search failed." in run.text


async def test_without_any_passage_the_answer_says_so(tmp_path: Path):
    policy = writer("words", ["invented"])
    run = new_run(tmp_path, policy, FixedSearch([]), Decoding.FORCED)
    await answered(run, ForcedDecoder())
    assert "hold nothing" in run.text
    assert parse(run.text).find("cite") == []


async def test_an_exact_answer_ends_with_its_bare_line(tmp_path: Path):
    policy = writer("128", ["The default is 128."])
    run = new_run(tmp_path, policy, decoding=Decoding.FORCED, answer_format=AnswerFormat.EXACT)
    await answered(run, ForcedDecoder())
    inner = parse(run.text)
    answer = inner.inner(inner.find("answer")[0]).strip()
    assert answer.splitlines()[-1] == "Answer: 128"


async def test_tags_are_prompt_and_slots_are_policy(tmp_path: Path):
    run = new_run(
        tmp_path, writer("Some words.", ["The cache can grow."]), decoding=Decoding.FORCED
    )
    await answered(run, ForcedDecoder())
    written = [s.text for s in run.segments if s.author is Author.POLICY]
    assert {text.strip() for text in written} <= {
        "Some words.",
        "The cache can grow.",
        "Some words",
    }
    assert "The cache can grow." in written
    assert all(s.stage for s in run.segments[1:])
    assert {s.stage for s in run.segments[1:]} == set(Stage)


def test_a_slot_that_was_cut_ends_with_its_last_whole_sentence():
    assert trim(" One. Two is cut off he", capped=True) == "One."
    assert trim("- a\n- b is cut", capped=True) == "- a"
    assert trim("no end at all", capped=True) == "no end at all"
    assert trim(" Whole text ", capped=False) == "Whole text"


async def test_a_question_too_long_for_the_context_is_one_sentence(tmp_path: Path):
    run = new_run(tmp_path, ScriptedPolicy([], context_tokens=2048), decoding=Decoding.FORCED)
    run.ask = type(run.ask)("why " * 500)
    with pytest.raises(SettingsError, match="too many for a context"):
        ForcedDecoder().message(run)


async def test_no_further_search_is_made_where_little_room_is_left(tmp_path: Path):
    policy = writer("words", ["the cache can grow"])
    policy.context_tokens = 5000
    search = FixedSearch()
    run = new_run(tmp_path, policy, search, Decoding.FORCED)
    run.ask = type(run.ask)("How do functools.lru_cache and os.scandir differ?")
    await answered(run, ForcedDecoder())
    assert len(search.queries) == 1


def two_parts(before: str, sampling: Sampling) -> str:
    """A model that sees one part of the question only, unless the runner opens the other."""
    if sampling.grammar is not None:
        begun = re.search(r'">(What[^"]*: )"', sampling.grammar)
        if begun:
            return f'\n<cite id="S1">{begun[1]}least recently used.</cite>'
        return "\n</answer>" if "<cite" in before else '\n<cite id="S1">It can grow.</cite>'
    if before.endswith("- Says"):
        return " how large the cache can grow\n- Says what the eviction order is"
    return " least recently used." if before.endswith("order is:") else " it can grow."


async def test_the_part_of_a_question_that_no_reading_speaks_of_is_read_and_answered(
    tmp_path: Path,
):
    run = new_run(tmp_path, ScriptedPolicy(two_parts), decoding=Decoding.FORCED)
    run.ask = type(run.ask)("How large can the cache grow, and in which order does it evict?")
    await answered(run, ForcedDecoder())
    assert run.text.count(" on what the eviction order is: least recently used.") == 1
    document = parse(run.text)
    assert [document.inner(cite) for cite in document.find("cite")] == [
        "It can grow.",
        "What the eviction order is: least recently used.",
    ]


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
