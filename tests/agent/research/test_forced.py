"""Forced decoding: whatever the model fills in, the scaffold holds and no id is invented.

Code follows the plan: look-ups are searched in turn, read out of what was found, and named where
nothing was. What is certain is said by the run, and by the cites of its answer.
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
from rubricem.agent.transcript.scaffold import find_violation, parse, rounds, tool_call, turn_faults
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Certainty,
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
CHAIN = "Where did the director of The Paper Kite die?"
DIRECTED = " Who directed The Paper Kite? | person\n2. Where did [1] die? | place\nThen: none"
LATER = "Which film has the director who was born later, The Paper Kite or The Iris?"
BORN = (
    " Who directed The Paper Kite? | person\n2. Who directed The Iris? | person\n"
    "3. When was [1] born? | date\n4. When was [2] born? | date\nThen: later [3] and [4]"
)
BOUND = "If maxsize is None the cache can grow without bound."
BIRTHS = ("4 May 1894", "2 June 1901", "Mira Holt", "Abel Quist")


async def chained(folder: Path, *finds: str, **limits: object) -> tuple[Run, Library]:
    """A run whose second look-up needs what the first one finds."""
    search = Library(FILMS)
    filling = Filling(plan=DIRECTED, finds=finds or ("Turin", "Mira Holt"), drafts="")
    return await forced(folder, filling, search, CHAIN, **limits), search


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


async def test_the_question_is_searched_where_the_plan_has_no_look_up(tmp_path: Path):
    search = FixedSearch()
    run = await forced(tmp_path, Filling(plan=" "), search)
    assert all(query.startswith((QUESTION, "unbounded")) for query in search.queries)
    call = tool_call("".join(s.text for s in run.segments if s.turn == 1))
    assert call is not None and call.query.startswith(QUESTION)


async def test_a_chain_is_followed_with_what_was_found(tmp_path: Path):
    run, search = await chained(tmp_path)
    assert search.queries == [CHAIN, "Who directed The Paper Kite?", "Where did Mira Holt die?"]
    assert run.status is Status.FINISHED
    assert [s.id for s in run.evidence.own] == ["S1", "S2"]
    assert re.findall(r'<cite id="(\w+)">', answer_of(run)) == ["S1", "S2"]
    assert find_violation(run.trajectory("t"), citations=True) is None
    looked = run.trajectory("t").lookups
    assert [(x.answer, x.source, x.certainty) for x in looked] == [
        ("Mira Holt", "S1", Certainty.CERTAIN),
        ("Turin", "S2", Certainty.CERTAIN),
    ]


@pytest.mark.parametrize(
    ("form", "bare"), [(AnswerFormat.EXACT, "Turin"), (AnswerFormat.SHORT, "")]
)
async def test_an_exact_answer_ends_with_a_span_of_what_was_found(
    tmp_path: Path, form: AnswerFormat, bare: str
):
    run, _ = await chained(tmp_path, answer_format=form)
    assert cited_answer(run.trajectory("t")).bare == bare
    assert "Turin" in answer_of(run)


@pytest.mark.parametrize(
    ("plan", "searches"),
    [(" Who directed it? | person\n2. Which name has it? | work\nThen: both [1] and [2]", 1),
     (DIRECTED, 3), (BORN, 5)],
    ids=["look-ups side by side", "a chain", "a comparison"],
)  # fmt: skip
async def test_what_the_question_finds_in_words_is_told_first_and_ends_the_search_of_plain_plans(
    tmp_path: Path, plan: str, searches: int
):
    draft = "The Paper Kite is a film by Mira Holt, directed with Tom Reyes."
    search = Library(FILMS)
    finds = ("Turin", "Mira Holt", "Abel Quist", "4 May 1894", "2 June 1901")
    run = await forced(tmp_path, Filling(plan=plan, drafts=draft, finds=finds), search, LATER)
    assert len(search.queries) == searches
    assert cited_answer(run.trajectory("t")).citations[0].claim == KITE.text
    assert "Not found" not in answer_of(run) and "[missing]" not in run.text


async def test_dates_are_compared_by_code_and_the_model_names_what_is_meant(tmp_path: Path):
    filling = Filling(plan=BORN, finds=BIRTHS, concludes=["The Paper Kite", "Abel Quist"])
    model = SmallModel(filling)
    run = await forced(tmp_path, model, Library(FILMS), LATER, answer_format=AnswerFormat.EXACT)
    assert run.lookups.operate() == 4
    told = model.reader.asked[-1][1]  # type: ignore[attr-defined]
    assert "[4] When was Abel Quist born? 2 June 1901" in told and "So [4] is the later" in told
    assert cited_answer(run.trajectory("t")).bare == "Abel Quist", "a span of the look-ups"


async def test_what_was_found_of_two_ends_is_told_and_is_not_certain(tmp_path: Path):
    plan = " Who directed The Paper Kite? | person\n2. Who directed No Film? | person\nThen: none"
    filling = Filling(plan=plan, finds=["Mira Holt"])
    run = await forced(
        tmp_path, filling, Library(FILMS), "Who directed it?", answer_format=AnswerFormat.EXACT
    )
    assert cited_answer(run.trajectory("t")).bare == "Mira Holt"
    assert (run.status, run.ended_by) == (Status.PARTIAL, "uncertain")


async def test_yes_of_both_is_yes(tmp_path: Path):
    plan = " Is The Paper Kite a film? | yes/no\n2. Is The Iris a film? | yes/no\nThen: both [1] and [2]"  # noqa: E501
    filling = Filling(plan=plan, chances={"": 0.98})
    run = await forced(
        tmp_path, filling, Library(FILMS), "Are both films?", answer_format=AnswerFormat.EXACT
    )
    assert cited_answer(run.trajectory("t")).bare == "yes"
    assert run.status is Status.FINISHED


async def test_a_look_up_that_finds_nothing_is_searched_once_more_and_then_named(tmp_path: Path):
    asked, search = "Where did Mira Holt die?", Library(FILMS)
    doubts = {f"Question: {asked}": UNSURE}
    filling = Filling(plan=DIRECTED, finds=("Turin", "Mira Holt"), chances=doubts)
    run = await forced(tmp_path, filling, search, CHAIN)
    assert search.queries[2:] == [asked, f"{asked} unbounded cache"]
    assert (run.status, run.ended_by, run.reason) == (Status.PARTIAL, "not_found", asked)
    assert answer_of(run).strip().endswith(f"Not found: {asked}")
    assert run.trajectory("t").lookups[1].certainty is Certainty.NOT_FOUND


async def test_what_is_not_certain_is_marked_and_the_run_says_so(tmp_path: Path):
    plan = " Where did Mira Holt die? | place\nThen: none"
    filling = Filling(plan=plan, finds=["Turin"], chances={"Is this answer right": 0.3, "": 0.5})
    run = await forced(tmp_path, filling, Library(FILMS), "Where did Mira Holt die?")
    [look] = run.trajectory("t").lookups
    assert (look.answer, look.certainty) == ("Turin", Certainty.UNCERTAIN)
    assert (run.status, run.ended_by) == (Status.PARTIAL, "uncertain")
    [cite] = parse(run.text).find("cite")
    assert cite.attributes["certainty"] == "uncertain"


async def test_a_question_nothing_answers_is_refused(tmp_path: Path):
    run = await forced(tmp_path, Filling(chances={"": UNSURE}), answer_format=AnswerFormat.EXACT)
    assert run.status is Status.NO_EVIDENCE
    assert cited_answer(run.trajectory("t")).bare == "not found"
    assert parse(run.text).find("cite") == []


async def test_a_plan_that_a_person_changed_is_followed(tmp_path: Path):
    search = Library(FILMS)
    run = new_run(tmp_path, SmallModel(Filling(finds=["Lyon"])), search, Decoding.FORCED)
    run.ask = replace(run.ask, question=CHAIN)
    decoder = ForcedDecoder()
    await run.open("system", "question")
    run.turn = 1
    await decoder.plan(run)
    shown = ShownPlan(research_plan="1. Where was Abel Quist born? | place", query="Abel Quist")
    await run.prompt(Stage.PLAN, shown.note())
    await decoder.observe(run, await run.search("Abel Quist"))
    run.turn = 2
    assert await decoder.research(run) is None
    assert [step.text for step in run.lookups.plan.steps] == ["Where was Abel Quist born?"]
    assert run.lookups.found[1].text == "Lyon"


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


@pytest.mark.parametrize("kind", ["words", "number"])
async def test_at_the_last_try_the_nearest_sentences_stand_in_and_are_not_certain(
    tmp_path: Path, kind: str
):
    filling = Filling(
        plan=f" {QUESTION} | {kind}\nThen: none",
        chances={"Does the passage answer": 0.4, "": UNSURE},
    )
    search = FixedSearch()
    run = await forced(tmp_path, filling, search)
    assert search.queries == [QUESTION, f"{QUESTION} unbounded cache"], "the model's words beside"
    assert f'<cite id="S1" certainty="uncertain">{BOUND}</cite>' in answer_of(run)
    assert (run.status, run.ended_by) == (Status.PARTIAL, "uncertain")


async def test_where_the_kind_was_mistaken_a_sentence_answers_all_the_same(tmp_path: Path):
    plan = f" {QUESTION} | person\nThen: none"
    run = await forced(tmp_path, Filling(plan=plan))
    assert f'<cite id="S1">{BOUND}</cite>' in answer_of(run)
    assert run.status is Status.FINISHED and run.tool_calls == 1


async def test_parts_in_words_are_read_from_what_the_whole_question_found(tmp_path: Path):
    plan = " What does it do? | words\n2. Why does it? | words\nThen: none"
    search = FixedSearch()
    doubts = {"part: Why does it?": UNSURE}
    run = await forced(tmp_path, Filling(plan=plan, chances=doubts), search)
    assert search.queries == [QUESTION, "Why does it? unbounded cache"], "one part is answered"
    assert answer_of(run).count(BOUND) == 1, "nothing is said twice"
    assert "Not found: Why does it?" in answer_of(run)


@pytest.mark.parametrize(
    ("finds", "whole", "bare", "ended"),
    [
        (("Turin", "Mira Holt"), "Turin", "Turin", ""),
        ((), "Tom Reyes", "Tom Reyes", "uncertain"),
        ((), "nobody", "not found", "not_found"),
    ],
    ids=["the look-ups say the same", "they find nothing", "nor does the question"],
)
async def test_what_the_question_finds_as_a_whole_stands_until_the_look_ups_better_it(
    tmp_path: Path, finds: tuple[str, ...], whole: str, bare: str, ended: str
):
    draft = "It is a film with Tom Reyes in Turin."
    chances = {f"Answer: {whole}": 0.9, "Passage: The Paper Kite": 0.8} if not finds else {}
    filling = Filling(plan=DIRECTED, finds=finds, concludes=[whole], drafts=draft, chances=chances)
    run = await forced(tmp_path, filling, Library(FILMS), CHAIN, answer_format=AnswerFormat.EXACT)
    assert cited_answer(run.trajectory("t")).bare == bare
    assert run.ended_by == ended


async def test_tags_and_quotes_are_prompt_and_slots_are_policy(tmp_path: Path):
    run, _ = await chained(tmp_path)
    policy = [s.text.strip() for s in run.segments if s.author is Author.POLICY]
    assert policy == [DIRECTED.strip(), "Mira Holt", "Turin", "Turin"]
    assert all(s.retokenised for s in run.segments if s.author is Author.POLICY)


async def test_where_a_runs_time_went_is_kept_by_slot_and_all_of_it(tmp_path: Path):
    run, _ = await chained(tmp_path)
    spent = {each.slot: each for each in run.trajectory("t").spent}
    assert {"think", "reading"} <= spent.keys()
    assert spent[run.search_tool.name].calls == 3
    usage = run.trajectory("t").usage
    assert sum(each.written for each in spent.values()) == usage.completion_tokens > 0
    read = usage.prompt_tokens - usage.cached_tokens
    assert sum(each.read for each in spent.values()) == read


async def test_a_question_too_long_for_the_context_is_one_sentence(tmp_path: Path):
    with pytest.raises(SettingsError, match="too many for a context"):
        await forced(tmp_path, SmallModel(context_tokens=1000), question="Why? " * 100)


async def ask_within(folder: Path, budgets: Budgets) -> Trajectory:
    policy = SmallModel(Filling(plan=DIRECTED, finds=("Turin", "Mira Holt"), drafts=""))
    researcher = Researcher(
        policy, ForcedDecoder(), Decoding.FORCED, Library(FILMS), RunStore(folder), Ask("")
    )
    return await researcher.ask(Ask(CHAIN, budgets=budgets))


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
    run, search = await chained(tmp_path, tool_calls=2)
    assert (len(search.queries), run.ended_by) == (2, "tool_calls")
    assert run.status is Status.PARTIAL


async def test_a_forced_run_without_a_passage_says_why_and_cites_nothing(tmp_path: Path):
    run = await forced(tmp_path, None, FixedSearch(error="no network"))
    assert "The search failed." in answer_of(run)
    assert parse(run.text).find("cite") == []
    run = await walk(new_run(tmp_path / "none", SmallModel(), FixedSearch([]), Decoding.FORCED),
                     ForcedDecoder())  # fmt: skip
    assert run.status is Status.NO_EVIDENCE
