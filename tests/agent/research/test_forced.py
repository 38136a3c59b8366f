"""Forced decoding: whatever the model fills in, the scaffold holds and no id is invented.

Forced runs under budgets: whole claims stand, slots in progress do not.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.research.forced import ForcedDecoder, adds, claim_grammar, holds, touches, trim
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.run import Run
from rubricem.agent.transcript.question import UNLIMITED, Ask, Budgets
from rubricem.agent.transcript.scaffold import parse, tool_call, turn_faults
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Decoding,
    Sampling,
    Source,
    Stage,
    Status,
    Trajectory,
)
from tests.support.policies import QUESTION, FixedSearch, ScriptedPolicy, new_run

MISSING = "How do functools.lru_cache and os.scandir differ?"


async def forced(
    folder: Path,
    policy: ScriptedPolicy,
    search: FixedSearch | None = None,
    question: str = QUESTION,
    **limits: object,
) -> Run:
    """A run of the walk of the graph, without the graph."""
    run, decoder = new_run(folder, policy, search, Decoding.FORCED, **limits), ForcedDecoder()
    run.ask = replace(run.ask, question=question)
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
    run = await forced(tmp_path, writer("Some words.", ["The cache can grow without bound."]))
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
    run = await forced(tmp_path_factory.mktemp("run"), writer(slot, [claim]))
    document = parse(run.text)
    assert all(block.closed for block in document.root.walk())
    assert document.orphans == ()
    assert [block.tag for block in document.blocks] == [
        "think", "structured_plan", "call_tool", "tool_output", "state_evaluation",
        "review", "answer",
    ]  # fmt: skip


async def test_the_first_query_includes_the_question(tmp_path: Path):
    search = FixedSearch()
    run = await forced(tmp_path, writer("extra words", ["c"]), search)
    assert search.queries[0].startswith(QUESTION)
    call = tool_call("".join(s.text for s in run.segments if s.turn == 1))
    assert call is not None and call.query == search.queries[0]


async def test_a_name_that_no_passage_holds_is_searched_again(tmp_path: Path):
    search = FixedSearch()
    await forced(tmp_path, writer("words", ["c"]), search, question=MISSING)
    assert len(search.queries) == 2
    assert search.queries[1].startswith("os.scandir")


async def test_only_ids_that_were_returned_are_offered(tmp_path: Path):
    policy = writer("words", ["the cache can grow", "least recently used cache"])
    await forced(tmp_path, policy, passages=2)
    grammars = [sampling.grammar for _, sampling in policy.calls if sampling.grammar]
    assert all('id ::= "S1" | "S2"\n' in grammar for grammar in grammars)
    assert "</answer>" not in grammars[0].partition("id ::=")[0]


async def test_a_claim_that_adds_nothing_ends_the_answer(tmp_path: Path):
    policy = writer("words", ["The cache can grow.", "the cache can grow", "never reached"])
    run = await forced(tmp_path, policy)
    cites = parse(run.text).find("cite")
    assert len(cites) == 1


async def test_what_its_source_does_not_say_is_not_shown(tmp_path: Path):
    claims = ["The cache can grow without bound.", "maxsize defaults to 4096.", "It is least used."]
    run = await forced(tmp_path, writer("words", claims))
    assert "4096" not in run.text
    assert "grow without bound" in run.text.partition("<answer>")[2]


async def test_an_answer_that_no_source_holds_is_said_to_be_none(tmp_path: Path):
    claims = ["Zebras gallop across grassland."] * 9
    run = await forced(tmp_path, writer("words", claims))
    assert "Zebras" not in run.text
    assert "do not settle this question" in run.text
    assert run.status is Status.NO_EVIDENCE


async def test_an_exact_answer_ends_with_its_bare_line(tmp_path: Path):
    policy = writer("128", ["The default is 128."])
    run = await forced(tmp_path, policy, answer_format=AnswerFormat.EXACT)
    inner = parse(run.text)
    answer = inner.inner(inner.find("answer")[0]).strip()
    assert answer.splitlines()[-1] == "Answer: 128"


async def test_tags_are_prompt_and_slots_are_policy(tmp_path: Path):
    run = await forced(tmp_path, writer("Some words.", ["The cache can grow."]))
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
    await forced(tmp_path, policy, search, question=MISSING)
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
    asked = "How large can the cache grow, and in which order does it evict?"
    run = await forced(tmp_path, ScriptedPolicy(two_parts), question=asked)
    assert run.text.count(" on what the eviction order is: least recently used.") == 1
    document = parse(run.text)
    assert [document.inner(cite) for cite in document.find("cite")] == [
        "It can grow.",
        "What the eviction order is: least recently used.",
    ]


CLAIMS = ("The cache can grow without bound.", "The smallest element is always first.")


async def asked(
    tmp_path: Path,
    budgets: Budgets = UNLIMITED,
    question: str = QUESTION,
    searches: int = 10,
    source: FixedSearch | None = None,
) -> tuple[Trajectory, ScriptedPolicy]:
    policy = writer("words", list(CLAIMS))
    source = source or FixedSearch()
    store = RunStore(tmp_path)
    researcher = Researcher(policy, ForcedDecoder(), Decoding.FORCED, source, store, Ask(""))
    return await researcher.ask(Ask(question, tool_calls=searches, budgets=budgets)), policy


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


@pytest.mark.parametrize(
    ("source", "said", "reason"),
    [
        (FixedSearch([]), "The sources hold nothing on this question.", "nothing was found"),
        (FixedSearch(error="gone"), "The search failed.", "the search failed: gone"),
    ],
    ids=["empty", "failing"],
)
async def test_a_forced_run_without_a_passage_says_why_and_cites_nothing(
    source: FixedSearch, said: str, reason: str, tmp_path: Path
):
    run, _ = await asked(tmp_path, source=source)
    assert (run.status, run.reason) == (Status.NO_EVIDENCE, reason)
    assert cited_answer(run).text() == said
    assert parse(run.transcript()).find("cite") == []


@pytest.mark.parametrize(
    ("text", "claim", "held"),
    [
        ("It returns 128 items at most.", "It returns 128 items.", True),
        ("It returns 128 items at most.", "It returns 12 items.", False),
        ("Use my_cache_all for the cache.", "Use my_cache_all for the cache.", True),
        ("Use my_cache_all for the cache.", "Use cache_a for the cache.", False),
        ("The cache can grow without bound.", "The cache grows.", True),
        ("The cache can grow without bound.", "Zebras gallop across grassland.", False),
    ],
)
def test_a_source_holds_a_claim_by_half_its_words_and_names_and_numbers_whole(
    text: str, claim: str, held: bool
):
    source = Source(id="S1", title="m.f", location="m.py", text=text, tool="python", query="q")
    assert holds(source, claim) is held


def test_a_claim_adds_a_new_word_and_touches_the_question():
    assert adds("It is sorted.", [])
    assert not adds("the cache is growing", ["The cache can grow."])
    assert touches("The cache grows.", "How does the cache grow?")
    assert not touches("ttl is a time.", "How does the cache grow?")


def test_a_claim_s_grammar_offers_the_end_where_it_may_and_quotes_its_opening():
    assert "</answer>" in claim_grammar(["S1"], may_end=True)
    grammar = claim_grammar(["S1"], 'What "x" is: ', may_end=False)
    assert "</answer>" not in grammar
    assert r'id "\">What \"x\" is: " [^<\n]+' in grammar
