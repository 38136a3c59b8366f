"""Forced decoding: whatever the model fills in, the scaffold holds and no id is invented.

Code follows the plan: the question's parts are read out of what it finds, searched where nothing
says them, and named where nothing was found. What is certain is said by the run, and by the cites
of its answer.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.research.forced import ForcedDecoder
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.run import Run
from rubricem.agent.transcript.question import UNLIMITED, Ask, Budgets, ShownPlan
from rubricem.agent.transcript.scaffold import find_violation, parse, rounds, turn_faults
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Decoding,
    Stage,
    Status,
    Trajectory,
)
from tests.support.policies import QUESTION, FixedSearch, new_run
from tests.support.slots import (
    UNSURE,
    Filling,
    Library,
    SmallModel,
    answer_of,
    forced,
    page,
    walk,
)

KITE = page("The Paper Kite", "The Paper Kite is a film directed by Mira Holt with Tom Reyes.")
MIRA = page("Mira Holt", "Mira Holt was born on 4 May 1894 and died at home in Turin.")
IRIS = page("The Iris", "The Iris is a film directed by Abel Quist.")
ABEL = page("Abel Quist", "Abel Quist was born on 2 June 1901 in Lyon.")
FILMS = (KITE, MIRA, IRIS, ABEL)
ASKED = "Who directed The Paper Kite, and where did its director Mira Holt die?"
PLAN = " Who directed The Paper Kite?\n2. Where did Mira Holt die?\n"
DRAFT = "The director of The Paper Kite was Mira Holt."
DOUBTED = {f"{KITE.text}\n\nQuestion: {ASKED} Answer only this part: Where": UNSURE}
"""the second part is not answered by the page of the first"""
BOUND = "If maxsize is None the cache can grow without bound."


async def parted(folder: Path, **limits: object) -> tuple[Run, Library]:
    """A run whose second part the question's own passages do not answer."""
    search = Library(FILMS[:1] + FILMS[2:] + FILMS[1:2])
    filling = Filling(plan=PLAN, drafts=DRAFT, rewords="Turin", chances=DOUBTED)
    return await forced(folder, filling, search, ASKED, **limits), search


async def test_a_run_is_valid_by_construction(tmp_path: Path):
    run = await forced(tmp_path)
    first, later = (
        "".join(s.text for s in run.segments if s.turn == turn and s.author is not Author.TOOL)
        for turn in (1, 2)
    )
    assert turn_faults(first, 1) == []
    assert parse(run.text).find("cite")[0].attributes["id"] == "S1"
    assert [b.tag for b in parse(later).blocks] == ["state_evaluation", "review", "answer"]


@given(slot=st.text(alphabet="ab <>/.\n&thinkanswcrt\"'[]1|", max_size=60))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_no_slot_can_break_the_tags(tmp_path_factory: pytest.TempPathFactory, slot: str):
    filling = Filling(plan=slot, drafts=slot, rewords=slot, chances={"": 0.9})
    run = await forced(tmp_path_factory.mktemp("run"), filling)
    document = parse(run.text)
    assert all(block.closed for block in document.root.walk())
    assert document.orphans == ()
    tags = " ".join(block.tag for block in document.blocks)
    search = r"(call_tool tool_output state_evaluation )"
    assert re.fullmatch(rf"think structured_plan {search}+review answer", tags), tags
    written = rounds(run.trajectory("t"))
    assert all(turn.find_misplaced(number) == [] for number, turn in enumerate(written, start=1))


async def test_a_part_that_nothing_answers_is_searched_in_its_words_and_the_models(tmp_path: Path):
    doubts = {"part: Where did Mira": UNSURE}
    filling = Filling(plan=PLAN, drafts=DRAFT, rewords="her end", chances=doubts)
    search = Library(FILMS)
    run = await forced(tmp_path, filling, search, ASKED)
    asked = "Where did Mira Holt die?"
    assert search.queries == [ASKED, f"{asked} her end"]
    assert (run.status, run.ended_by, run.reason) == (Status.PARTIAL, "not_found", asked)
    assert answer_of(run).strip().endswith(f"Not found: {asked}")
    assert {*run.lookups.found} == {1}


async def test_parts_that_the_questions_own_passages_answer_are_not_searched(tmp_path: Path):
    search = Library(FILMS)
    run = await forced(tmp_path, Filling(plan=PLAN, drafts=DRAFT), search, ASKED)
    assert search.queries == [ASKED] and run.status is Status.FINISHED
    assert find_violation(run.trajectory("t"), citations=True) is None
    assert answer_of(run).count(KITE.text) == 1, "nothing is said twice"


async def test_what_is_not_certain_is_marked_and_the_run_says_so(tmp_path: Path):
    filling = Filling(chances={"Is this answer right": 0.6, "": 0.5})
    run = await forced(tmp_path, filling)
    assert (run.status, run.ended_by) == (Status.PARTIAL, "uncertain")
    assert {cite.attributes["certainty"] for cite in parse(run.text).find("cite")} == {"uncertain"}


@pytest.mark.parametrize(
    ("chances", "searches", "bare", "ended"),
    [
        ({}, 1, "Turin", ""),
        ({"Answer: Turin": 0.6, "Does the passage answer": 0.4}, 2, "Turin", "uncertain"),
        ({"": UNSURE}, 2, "Turin", "uncertain"),
    ],
    ids=["certain", "not certain", "the model doubts it"],
)
async def test_an_exact_answer_is_a_span_of_what_is_drafted_for_the_whole_question(
    tmp_path: Path, chances: dict[str, float], searches: int, bare: str, ended: str
):
    filling = Filling(
        plan=" Where did Mira Holt die?\n", known=["Turin"], concludes=["Turin"],
        drafts="Mira Holt died at home in Turin.", chances=chances,
    )  # fmt: skip
    search = Library(FILMS)
    run = await forced(
        tmp_path, filling, search, "Where did Mira Holt die?", answer_format=AnswerFormat.EXACT
    )
    assert len(search.queries) == searches
    assert cited_answer(run.trajectory("t")).bare == bare
    assert run.ended_by == ended
    assert MIRA.text in answer_of(run), "the sentence, not the draft"


async def test_of_an_exact_answer_what_is_likelier_stands_whichever_search_finds_it(tmp_path: Path):
    question = "Where did the director of The Paper Kite die?"
    plan = " Who directed The Paper Kite?\n2. Where did Mira Holt die?\n"
    chances = {"Passage: The Paper Kite": 0.4}
    filling = Filling(
        plan=plan, known=["Turin"], concludes=["Turin"], rewords="film",
        drafts="She died at home in Turin.", chances=chances,
    )  # fmt: skip
    search = Library(FILMS)
    run = await forced(tmp_path, filling, search, question, answer_format=AnswerFormat.EXACT)
    assert search.queries == [
        question, "Who directed The Paper Kite? film", "Where did Mira Holt die? film",
    ]  # fmt: skip
    assert (cited_answer(run.trajectory("t")).bare, run.status) == ("Turin", Status.FINISHED)
    assert re.findall(r'<cite id="(\w+)">', answer_of(run)) == ["S2"]


async def test_a_question_nothing_answers_is_refused(tmp_path: Path):
    run = await forced(tmp_path, Filling(chances={"": UNSURE}), answer_format=AnswerFormat.EXACT)
    assert run.status is Status.NO_EVIDENCE
    assert cited_answer(run.trajectory("t")).bare == "not found"
    assert parse(run.text).find("cite") == []


async def test_a_plan_that_a_person_changed_is_followed(tmp_path: Path):
    search = Library(FILMS)
    filling = Filling(drafts="Abel Quist was born in Lyon, in June.")
    run = new_run(tmp_path, SmallModel(filling), search, Decoding.FORCED)
    run.ask = replace(run.ask, question=ASKED)
    decoder = ForcedDecoder()
    await run.open("system", "question")
    run.turn = 1
    await decoder.plan(run)
    shown = ShownPlan(research_plan="1. Where was Abel Quist born?", query="Abel Quist")
    await run.prompt(Stage.PLAN, shown.note())
    await decoder.observe(run, await run.search("Abel Quist"))
    run.turn = 2
    assert await decoder.research(run) is None
    assert run.lookups.parts == ("Where was Abel Quist born?",)
    assert run.lookups.found[1].source == "S1"


async def test_the_question_is_searched_before_the_plan_and_answered_from_what_that_finds(
    tmp_path: Path,
):
    search = FixedSearch()
    run = await forced(tmp_path, None, search)
    assert search.queries == [QUESTION] and run.tool_calls == 1
    first = next(s for s in run.segments if s.author is Author.TOOL)
    assert "Shown above" not in first.text, "what was found before the plan is shown behind it"
    assert re.findall(r"[^>]*bound[^<]*", answer_of(run)) == [BOUND], "not the draft beside it"
    assert run.status is Status.FINISHED


async def test_at_the_last_try_the_nearest_sentences_stand_in_and_are_not_certain(tmp_path: Path):
    filling = Filling(chances={"Does the passage answer": 0.4, "": UNSURE})
    search = FixedSearch()
    run = await forced(tmp_path, filling, search)
    assert search.queries == [QUESTION, f"{QUESTION} unbounded cache"], "the model's words beside"
    assert f'<cite id="S1" certainty="uncertain">{BOUND}</cite>' in answer_of(run)
    assert (run.status, run.ended_by) == (Status.PARTIAL, "uncertain")


async def test_tags_and_quotes_are_prompt_and_slots_are_policy(tmp_path: Path):
    run, _ = await parted(tmp_path)
    policy = [s.text.strip() for s in run.segments if s.author is Author.POLICY]
    assert policy[:3] == [PLAN.strip(), DRAFT, "Turin"]
    assert all(s.retokenised for s in run.segments if s.author is Author.POLICY)


async def test_where_a_runs_time_went_is_kept_by_slot_and_all_of_it(tmp_path: Path):
    run, _ = await parted(tmp_path)
    spent = {each.slot: each for each in run.trajectory("t").spent}
    assert {"think", "reading", "draft"} <= spent.keys()
    assert spent[run.search_tool.name].calls == 2
    usage = run.trajectory("t").usage
    assert sum(each.written for each in spent.values()) == usage.completion_tokens > 0
    read = usage.prompt_tokens - usage.cached_tokens
    assert sum(each.read for each in spent.values()) == read


async def test_a_question_too_long_for_the_context_is_one_sentence(tmp_path: Path):
    with pytest.raises(SettingsError, match="too many for a context"):
        await forced(tmp_path, SmallModel(context_tokens=1000), question="Why? " * 100)


async def ask_within(folder: Path, budgets: Budgets) -> Trajectory:
    policy = SmallModel(Filling(plan=PLAN, drafts=DRAFT, chances=DOUBTED))
    researcher = Researcher(
        policy, ForcedDecoder(), Decoding.FORCED, Library(FILMS), RunStore(folder), Ask("")
    )
    return await researcher.ask(Ask(ASKED, budgets=budgets))


async def test_a_budget_cut_at_any_call_leaves_a_report_and_closed_tags(tmp_path: Path):
    whole = await ask_within(tmp_path / "all", UNLIMITED)
    tokens = whole.usage.prompt_tokens + whole.usage.completion_tokens
    for limit in range(tokens // 10, tokens * 19 // 20, tokens // 10):
        run = await ask_within(tmp_path / str(limit), Budgets(tokens=limit))
        assert (run.status, run.ended_by) == (Status.PARTIAL, "tokens"), limit
        assert parse(run.transcript()).find("answer")[-1].closed
        answer = cited_answer(run)
        assert answer.text() and answer.dropped == 0
        assert bool(answer.citations) is bool(run.sources)


async def test_a_forced_run_says_that_its_searches_were_spent(tmp_path: Path):
    run, search = await parted(tmp_path, tool_calls=1)
    assert (len(search.queries), run.ended_by) == (1, "tool_calls")
    assert run.status is Status.PARTIAL


async def test_a_forced_run_without_a_passage_says_why_and_cites_nothing(tmp_path: Path):
    run = await forced(tmp_path, None, FixedSearch(error="no network"))
    assert "The search failed." in answer_of(run)
    assert parse(run.text).find("cite") == []
    run = await walk(new_run(tmp_path / "none", SmallModel(), FixedSearch([]), Decoding.FORCED),
                     ForcedDecoder())  # fmt: skip
    assert run.status is Status.NO_EVIDENCE
