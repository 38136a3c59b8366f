"""Forced decoding: whatever the model fills in, the scaffold holds and no id is invented.

Code follows the plan: look-ups are searched in turn, read out of what was found, and named where
nothing was. A review that marks something missing sends the run back, and not for ever.

Forced runs under budgets: whole claims stand, slots in progress do not.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.research.forced import SAYS, ForcedDecoder
from rubricem.agent.research.plans import MOST_LOOKUPS, is_covered
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.run import Run
from rubricem.agent.transcript.question import UNLIMITED, Ask, Budgets, ShownPlan
from rubricem.agent.transcript.scaffold import find_violation, parse, rounds, tool_call, turn_faults
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Decoding,
    Passage,
    Stage,
    Status,
    Trajectory,
)
from tests.support.policies import PASSAGES, QUESTION, FixedSearch, new_run
from tests.support.slots import GROWS, Filling, Library, SmallModel, answer_of, forced, page

KITE = page("The Paper Kite", "The Paper Kite is a film directed by Mira Holt with Tom Reyes.")
MIRA = page("Mira Holt", "Mira Holt was born on 4 May 1894 and died at home, mourned by all Turin.")
IRIS = page("The Iris", "The Iris is a film directed by Abel Quist.")
ABEL = page("Abel Quist", "Abel Quist was born on 2 June 1901 in Lyon.")
FILMS = (KITE, MIRA, IRIS, ABEL)
CHAIN = "Where did the director of The Paper Kite die?"
DIRECTED = " Who directed The Paper Kite?\n2. Where did [1] die?"
LATER = "Which film has the director who was born later, The Paper Kite or The Iris?"
BORN = (
    " Who directed The Paper Kite?\n2. Who directed The Iris?\n3. When was [1] born?\n"
    "4. When was [2] born?"
)
BIRTHS = ("Mira Holt", "Abel Quist", "4 May 1894", "2 June 1901")


async def chained(folder: Path, **filled: object) -> tuple[Run, Library]:
    """A run whose second look-up needs what the first one finds."""
    search = Library(FILMS)
    filling = Filling(plan=DIRECTED, finds=("Mira Holt", "Turin"))
    run = await forced(folder, replace(filling, **filled), search, CHAIN)  # type: ignore[arg-type]
    return run, search


def evaluations(run: Run) -> list[str]:
    document = parse(run.text)
    return [document.inner(block).strip() for block in document.find("state_evaluation")]


async def test_a_run_is_valid_by_construction(tmp_path: Path):
    run = await forced(tmp_path)
    first, later = (
        "".join(s.text for s in run.segments if s.turn == turn and s.author is not Author.TOOL)
        for turn in (1, 2)
    )
    assert turn_faults(first, 1) == []
    assert parse(run.text).find("cite")[0].attributes["id"] == "S1"
    assert [b.tag for b in parse(later).blocks] == ["state_evaluation", "review", "answer"]


@pytest.mark.parametrize(("source", "told"), [("python", True), ("a+python", True), ("a", False)])
async def test_whoever_asks_the_python_documentation_is_told_so(
    tmp_path: Path, source: str, told: bool
):
    search = FixedSearch()
    search.name = source
    run = new_run(tmp_path, SmallModel(), search, Decoding.FORCED)
    said = ForcedDecoder().message(run)
    assert ("the documentation of Python and its libraries" in said) == told


@given(slot=st.text(alphabet="ab <>/.\n&thinkanswcrt\"'[]1", max_size=60), missing=st.booleans())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_no_slot_can_break_the_tags(
    tmp_path_factory: pytest.TempPathFactory, slot: str, missing: bool
):
    filling = Filling(
        slot, slot, slot, slot, missing=[""] if missing else [], claims=[slot], expects=slot
    )
    run = await forced(tmp_path_factory.mktemp("run"), filling)
    document = parse(run.text)
    assert all(block.closed for block in document.root.walk())
    assert document.orphans == ()
    tags = " ".join(block.tag for block in document.blocks)
    search = r"(call_tool tool_output state_evaluation )"
    assert re.fullmatch(
        rf"think structured_plan {search}+(review {search}+)?review answer", tags
    ), tags
    written = rounds(run.trajectory("t"))
    assert all(turn.find_misplaced(number) == [] for number, turn in enumerate(written, start=1))


async def test_the_question_is_searched_where_the_plan_has_no_look_up(tmp_path: Path):
    search = FixedSearch()
    run = await forced(tmp_path, Filling(plan=" [2] and [3]."), search)
    assert search.queries == [QUESTION]
    call = tool_call("".join(s.text for s in run.segments if s.turn == 1))
    assert call is not None and call.query == search.queries[0]


async def test_a_chain_is_followed_with_what_was_found(tmp_path: Path):
    run, search = await chained(tmp_path)
    assert search.queries == ["Who directed The Paper Kite?", "Where did Mira Holt die?"]
    assert evaluations(run) == [
        "[1] Who directed The Paper Kite? Mira Holt (S1)\nOpen: [2]",
        "[2] Where did Mira Holt die? Turin (S2)\nOpen: nothing",
    ]
    assert (run.status, [s.id for s in run.evidence.own]) == (Status.FINISHED, ["S1", "S2"])
    assert re.findall(r'<cite id="(\w+)">', answer_of(run)) == ["S1", "S2"]
    assert find_violation(run.trajectory("t"), citations=True) is None


async def test_where_a_runs_time_went_is_kept_by_slot_and_all_of_it(tmp_path: Path):
    run, _ = await chained(tmp_path)
    spent = {each.slot: each for each in run.trajectory("t").spent}
    assert {"think", "rubric", "reading", "rubric_review", "claim"} <= spent.keys()
    assert (spent["reading"].calls, spent[run.search_tool.name].calls) == (1, 2)
    usage = run.usage
    assert sum(each.written for each in spent.values()) == usage.completion_tokens > 0
    read = usage.prompt_tokens - usage.cached_tokens
    assert sum(each.read for each in spent.values()) == read
    assert all(each.seconds >= 0 for each in spent.values())


async def test_each_look_up_of_a_plan_is_read_and_answered(tmp_path: Path):
    both = " How large can the cache grow?\n2. Which function is an unbounded cache?"
    filling = Filling(plan=both, claims=("The cache can grow without bound.", "It is unbounded."))
    asked = "How large can the cache grow, and which function is an unbounded cache?"
    run = await forced(tmp_path, filling, question=asked)
    document = parse(run.text)
    assert document.inner(document.find("cite")[0]) == filling.claims[0]
    assert [text[:3] for text in evaluations(run)[:2]] == ["[1]", "[2]"]


async def test_dates_are_compared_by_code_whatever_the_model_says(tmp_path: Path):
    filling = Filling(plan=BORN, finds=BIRTHS, bare="The Paper Kite")
    run = await forced(
        tmp_path, filling, Library(FILMS), LATER, answer_format=AnswerFormat.EXACT, tool_calls=9
    )
    answer = answer_of(run).strip().splitlines()
    assert answer[-1] == "Answer: The Iris"
    order = "In order: The Paper Kite (4 May 1894), then The Iris (2 June 1901)."
    assert order in answer
    assert run.status is Status.FINISHED
    told = await forced(tmp_path / "long", filling, Library(FILMS), LATER, tool_calls=9)
    assert f"{order} So it is The Iris." in answer_of(told)


async def test_a_look_up_that_finds_nothing_is_tried_once_more_and_then_named(tmp_path: Path):
    run, search = await chained(tmp_path, finds=("Mira Holt",))
    assert search.queries[:2] == ["Who directed The Paper Kite?", "Where did Mira Holt die?"]
    assert evaluations(run)[-1].endswith("not found\nOpen: [2]")
    assert answer_of(run).rstrip().endswith("\nNot found: Where did Mira Holt die?")
    assert run.status is Status.PARTIAL
    assert run.reason == "not found: Where did Mira Holt die?"
    assert re.findall(r'<cite id="(\w+)">', answer_of(run)) == ["S1"]


async def test_what_nothing_was_found_for_is_searched_in_other_words_once(tmp_path: Path):
    search = Library([KITE])
    plan = " Who directed the short film Hollow Reed?\n2. Where did [1] die?"
    asked = "Where did the director of Hollow Reed die?"
    run = await forced(tmp_path, Filling(plan=plan), search, asked)
    assert search.queries == ["Who directed the short film Hollow Reed?", asked]
    assert run.status is Status.NO_EVIDENCE
    # What rests on it is not named a second time.
    assert answer_of(run).strip() == "Not found: Who directed the short film Hollow Reed?"


async def test_a_search_that_brings_the_same_again_ends(tmp_path: Path):
    search = FixedSearch(PASSAGES[:1])
    filling = Filling(plan=" What is evicted?\n2. What shrinks?", reading="")
    run = await forced(tmp_path, filling, search, "What is evicted, and what shrinks?")
    assert len(search.queries) <= 4
    assert run.status is Status.NO_EVIDENCE and run.sources


async def test_a_sentence_on_most_of_what_is_asked_is_quoted_where_the_model_finds_nothing(
    tmp_path: Path,
):
    asked = "How do I make gather return exceptions in the result list and not raise the first?"
    gather = page("gather", "It waits for all. With return_exceptions the exceptions are part of "
                            "the result list; else the first is raised. Zebras graze.")  # fmt: skip
    signature = "gather(exceptions, list)"
    filling = Filling(plan=" What is gather?", reading=" not found", claims=[signature])
    run = await forced(tmp_path, filling, Library([gather]), asked)
    assert "With return_exceptions the exceptions are part of the result list" in answer_of(run)
    assert signature not in answer_of(run), "which says nothing of it"
    other = page("gather", "It waits for all. The first result is what gather gave. Zebras graze.")
    run = await forced(tmp_path / "other", replace(filling), Library([other]), asked)
    assert run.status is Status.NO_EVIDENCE, "a sentence on little of it is not"


async def test_a_search_ends_with_what_the_model_expects_and_the_next_without(tmp_path: Path):
    search = FixedSearch(PASSAGES[:1])
    filling = Filling(plan=" What is a zebra?", reading="", expects=" grass --daily")
    run = await forced(tmp_path, filling, search, "How do I feed zebras?")
    asked = "How do I feed zebras?"
    assert search.queries == [f"{asked} grass --daily", asked, asked]
    assert "zebra?" not in run.text.replace("feed zebras?", ""), "one thing needs no plan"
    search = FixedSearch(PASSAGES[:1])
    await forced(tmp_path / "plain", filling, search, "how do i feed zebras")
    assert search.queries[0] == "how do i feed zebras? grass --daily", "as it ends in the examples"
    born = await forced(tmp_path / "b", filling, search, "When was Mira Holt born?")
    assert "grass" not in born.text, "of somebody it would name another"


class ByWords(FixedSearch):
    """Finds the pages that have a word of the query, those with its last word first."""

    async def search(self, query: str, limit: int) -> list[Passage]:
        last = query.split()[-1]
        found = [p for p in self.passages if {*p.text.split()} & {*query.split()}]
        return sorted(found, key=lambda each: last not in each.text)[:limit]


async def test_what_the_model_expects_wrongly_leaves_room_for_what_the_question_finds(
    tmp_path: Path,
):
    expected = [page(f"rm {n}", f"rm --cached takes {n} out of the index") for n in range(6)]
    search = ByWords([*expected, page("clean", "clean will remove untracked files of any kind")])
    filling = Filling(reading="", expects=" rm --cached")
    run = await forced(tmp_path, filling, search, "How do I remove untracked files?", passages=2)
    first = [s.title for s in run.sources.values() if s.query.endswith("--cached")]
    assert first == ["rm 0", "clean", "rm 1"]


UNDO = (
    "Undo a commit, making it a topic branch. You keep the changes in the working tree with "
    "reset --soft, which leaves the index. The last commit can be shown."
)


async def test_what_the_model_expected_is_no_answer_by_itself(tmp_path: Path):
    """Said again, it is taken where a passage has it and speaks of what is asked, and quoted."""
    asked, said = "How do I undo the last commit and keep the changes", " reset --soft"
    filling = Filling(expects=said, reading=said, claims=["reset --soft"])
    run = await forced(tmp_path, filling, FixedSearch([page("reset", UNDO)]), f"{asked} here?")
    assert "You keep the changes in the working tree with reset --soft" in answer_of(run)
    other = page("mixer", "The mixer stops after reset --soft, and its bowl turns.")
    run = await forced(tmp_path / "other", filling, FixedSearch([other]), f"{asked} here?")
    assert run.status is Status.NO_EVIDENCE
    said = " console must record html"
    filling = Filling(expects=said, reading=said, claims=[said.strip()])
    text = "Console.export_html() may be called, and makes a page of what the console has kept."
    run = await forced(
        tmp_path / "third", filling, FixedSearch([page("export_html", text)]),
        "What must be true of a console before export_html may be called?",
    )  # fmt: skip
    assert "console must record html" not in answer_of(run), "whatever it shares"


async def test_a_look_up_that_asks_nothing_of_the_question_is_not_searched(tmp_path: Path):
    search = Library((KITE, MIRA))
    filling = Filling(plan=" How many kites had Mira Holt?\n2. What is the answer?", reading="")
    await forced(tmp_path, filling, search, "How many kites had Mira Holt?")
    assert not any("answer" in query for query in search.queries)


async def test_a_passage_is_read_for_a_look_up_once(tmp_path: Path):
    model = SmallModel(Filling(reading=" Zebras gallop across grassland.", plan=" What is it?"))
    await forced(tmp_path, model, FixedSearch(PASSAGES[:1]))
    reads = [before for before, s in model.calls if re.search(r"\[\d+\] [^\n]*$", before)]
    assert len(reads) == 1


@pytest.mark.parametrize("returns", [0, 1, 2, 9])
async def test_a_missing_item_is_searched_and_the_run_sent_back_so_often_at_most(
    returns: int, tmp_path: Path
):
    search = FixedSearch()
    filling = Filling(rubric=" Says what grows\n- Says maxsize None zebras", missing=["zebras"])
    run = await forced(tmp_path, filling, search, review_returns=returns)
    reviews = parse(run.text).find("review")
    assert len(reviews) == run.returns + 1 <= returns + 1
    assert run.returns == (1 if returns else 0) or returns > 1
    assert search.queries[1:2] == (["maxsize None zebras"] if returns else [])
    marks = parse(run.text).review_marks()
    assert [mark.state for mark in marks] == ["met", "missing"]
    assert marks[0].ids == ("S1",)


async def test_a_model_that_finds_the_same_missing_for_ever_ends(tmp_path: Path):
    search = FixedSearch()
    filling = Filling(rubric=" Says zebras", missing=["zebras"], plan=" Zebras?\n2. zebras?" * 30)
    run = await forced(tmp_path, filling, search, review_returns=10, tool_calls=1000)
    assert run.returns <= 10 and len(search.queries) <= 2 * (MOST_LOOKUPS + 10)
    assert parse(run.text).find("answer")[-1].closed


async def test_a_review_does_not_send_back_where_no_search_is_left(tmp_path: Path):
    search = FixedSearch()
    filling = Filling(missing=["Says"])
    run = await forced(tmp_path, filling, search, tool_calls=1)
    assert (len(search.queries), run.returns) == (1, 0)


async def test_what_no_look_up_found_is_missing_whatever_the_model_says(tmp_path: Path):
    rubric = " Names the director of The Paper Kite\n- Gives the place to die"
    run, _ = await chained(tmp_path, finds=("Mira Holt",), rubric=rubric)
    marks = parse(run.text).review_marks()
    assert [mark.state for mark in marks] == ["met", "missing"]


async def test_a_plan_that_a_person_changed_is_followed(tmp_path: Path):
    search = Library(FILMS)
    model = SmallModel(Filling(finds=("Mira Holt", "Turin")))
    run, decoder = new_run(tmp_path, model, search, Decoding.FORCED), ForcedDecoder()
    run.ask = replace(run.ask, question=CHAIN)
    await run.open(decoder.system(run), decoder.message(run))
    run.turn = 1
    await decoder.plan(run)
    plan = f"1.{DIRECTED}"
    edited = ShownPlan(rubric=("Says where",), research_plan=plan, query="The Paper Kite film")
    await run.prompt(Stage.PLAN, edited.note())
    await decoder.observe(run, await run.search(edited.query))
    run.turn = 2
    assert await decoder.research(run) == "Where did Mira Holt die?"
    await decoder.observe(run, await run.search("Where did Mira Holt die?"))
    run.turn = 3
    assert await decoder.research(run) is None
    assert search.queries == ["The Paper Kite film", "Where did Mira Holt die?"]


async def test_a_bracketed_number_of_a_question_is_no_reference(tmp_path: Path):
    asked = "What does items[0] of a deque cost?"
    run = await forced(tmp_path, Filling(reading=""), question=asked)
    assert f"Not found: {asked}" in answer_of(run)


async def test_only_ids_that_were_found_are_offered(tmp_path: Path):
    filling = Filling(plan=DIRECTED, finds=("Mira Holt", "Turin"))
    await forced(tmp_path, filling, Library(FILMS), CHAIN)
    marks = [offered for offered in filling.offered if " [missing]" in offered]
    assert marks == [[" [met: S1]", " [met: S2]", " [missing]"]]


async def test_what_a_grammar_offers_stands_in_the_passages(tmp_path: Path):
    filling = Filling(plan=DIRECTED, finds=("Mira Holt", "Turin"))
    await forced(tmp_path, filling, Library(FILMS), CHAIN)
    assert filling.offered[0] == [" Turin", " not found"], "its own page names the director"
    kites = page("Kite", f"{KITE.text} {IRIS.text}")
    filling = Filling(plan=DIRECTED, finds=("Mira Holt", "Turin"))
    await forced(tmp_path / "list", filling, Library((kites, MIRA)), CHAIN)
    assert {" Mira Holt", " Abel Quist", " not found"} <= {*filling.offered[0]}


async def test_what_its_source_does_not_say_is_not_shown(tmp_path: Path):
    run = await forced(tmp_path, Filling(claims=["maxsize defaults to 4096."]))
    assert "4096" not in run.text
    assert "If maxsize is None the cache can grow without bound." in answer_of(run)


async def test_a_sentence_that_nearly_repeats_the_question_is_quoted_where_the_model_is_lost(
    tmp_path: Path,
):
    run = await forced(tmp_path, Filling(reading=" Zebras.", claims=["It is not a cache."]))
    quoted = "If maxsize is None the cache can grow without bound."
    assert [parse(run.text).inner(c) for c in parse(run.text).find("cite")] == [quoted]
    assert run.status is Status.FINISHED


async def test_an_item_on_something_else_is_not_searched_for(tmp_path: Path):
    search, filling = FixedSearch(), Filling(rubric=" Says zebras", missing=["zebras"])
    run = await forced(tmp_path, filling, search)
    assert (run.returns, len(search.queries)) == (0, 1)
    assert [mark.state for mark in parse(run.text).review_marks()] == ["missing"]


async def test_an_answer_that_no_source_holds_is_said_to_be_none(tmp_path: Path):
    zebras = "Zebras gallop across grassland."
    filling, asked = Filling(reading=f" {zebras}", claims=[zebras]), "What gallops there?"
    run = await forced(tmp_path, filling, question=asked)
    assert "Zebras" not in run.text
    assert answer_of(run).strip() == f"Not found: {asked}"
    assert run.status is Status.NO_EVIDENCE


@pytest.mark.parametrize("answer_format", [AnswerFormat.LONG, AnswerFormat.EXACT])
@pytest.mark.parametrize("leak", [" Oslo", " Ada Bergstrom", " not found", " reprlib", ""])
async def test_no_word_of_a_worked_example_is_an_answer(
    leak: str, answer_format: AnswerFormat, tmp_path: Path
):
    filling = Filling(DIRECTED, reading=leak, claims=[leak], bare=leak.strip(),
                      finds=(leak.strip(), "Mira Holt"))  # fmt: skip
    run = await forced(tmp_path, filling, Library(FILMS), CHAIN, answer_format=answer_format)
    said = "".join(evaluations(run)) + answer_of(run)
    assert not re.search("Oslo|Bergstrom|reprlib", said)
    words = await forced(tmp_path / "words", Filling(reading=leak, claims=[leak]))
    assert not re.search("Oslo|Bergstrom|reprlib", answer_of(words))


async def test_an_exact_answer_ends_with_its_bare_line(tmp_path: Path):
    filling = Filling(reading=" grow without bound", bare="grow without bound")
    run = await forced(tmp_path, filling, answer_format=AnswerFormat.EXACT)
    assert answer_of(run).strip().splitlines()[-1] == "Answer: grow without bound"
    none = Filling(reading="", bare="yes")
    asked, form = "What gallops there?", AnswerFormat.EXACT
    run = await forced(tmp_path / "none", none, question=asked, answer_format=form)
    assert answer_of(run).strip().splitlines()[-1] == "Answer: not found"


async def test_tags_are_prompt_and_slots_are_policy(tmp_path: Path):
    run = await forced(tmp_path)
    written = [s.text.strip() for s in run.segments if s.author is Author.POLICY]
    assert set(written) == {
        "Says what happens", GROWS, "[met: S1]",
        "The cache can grow without bound.",
    }  # fmt: skip
    assert all(s.stage for s in run.segments[1:])
    assert {s.stage for s in run.segments[1:]} == set(Stage)


async def test_a_question_too_long_for_the_context_is_one_sentence(tmp_path: Path):
    run = new_run(tmp_path, SmallModel(context_tokens=2048), decoding=Decoding.FORCED)
    run.ask = type(run.ask)("why " * 500)
    with pytest.raises(SettingsError, match="too many for a context"):
        ForcedDecoder().message(run)


async def test_no_further_search_is_made_where_little_room_is_left(tmp_path: Path):
    opening = len(ForcedDecoder().system(new_run(tmp_path / "x", SmallModel()))) + 200
    filling = Filling(plan=DIRECTED, finds=("Mira Holt", "Turin"), missing=["Says"])
    search = Library(FILMS)
    await forced(tmp_path, SmallModel(filling, opening + 2000), search, CHAIN)
    assert len(search.queries) == 1


async def asked(
    folder: Path,
    budgets: Budgets = UNLIMITED,
    searches: int = 10,
    source: FixedSearch | None = None,
) -> tuple[Trajectory, SmallModel]:
    claims = ("Mira Holt directed The Paper Kite.", "She died in Turin.")
    filling = Filling(plan=DIRECTED, finds=("Mira Holt", "Turin"), claims=claims)
    policy, source, store = SmallModel(filling), source or Library(FILMS), RunStore(folder)
    researcher = Researcher(policy, ForcedDecoder(), Decoding.FORCED, source, store, Ask(""))
    return await researcher.ask(Ask(CHAIN, tool_calls=searches, budgets=budgets)), policy


async def test_a_budget_cut_at_every_call_leaves_a_report_and_closed_tags(tmp_path: Path):
    whole, model = await asked(tmp_path / "whole")
    assert whole.status is Status.FINISHED
    spent, limits = 0, []
    for before, _ in model.calls:
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
    whole, model = await asked(tmp_path / "whole")
    claims = [i for i, (before, _) in enumerate(model.calls) if before.endswith('">')]
    used = sum(len(before) for before, _ in model.calls[: claims[0] + 1])
    written = whole.usage.completion_tokens - len("She died in Turin.")
    run, _ = await asked(tmp_path / "cut", Budgets(tokens=used + written + 1))
    assert (run.ended_by, run.cut_in) == ("tokens", Stage.ANSWER)
    text = cited_answer(run).text()
    assert text.startswith(
        "Mira Holt directed The Paper Kite [1].\nMira Holt was born on 4 May 1894"
    )
    assert text.endswith("(The answer breaks off here.)"), (
        "what was cut is quoted, as no model is asked"
    )


@pytest.mark.parametrize(
    ("searches", "status", "ended_by"),
    [(1, Status.PARTIAL, "tool_calls"), (10, Status.FINISHED, "")],
)
async def test_a_forced_run_says_that_its_searches_were_spent(
    searches: int, status: Status, ended_by: str, tmp_path: Path
):
    run, _ = await asked(tmp_path, searches=searches)
    assert (run.status, run.ended_by) == (status, ended_by)


@pytest.mark.parametrize(
    ("source", "said", "reason"),
    [
        (FixedSearch([]), "Not found: Who directed The Paper Kite?",
         "not found: Who directed The Paper Kite?"),
        (FixedSearch(error="gone"), "The search failed.", "the search failed: gone"),
    ],
    ids=["empty", "failing"],
)  # fmt: skip
async def test_a_forced_run_without_a_passage_says_why_and_cites_nothing(
    source: FixedSearch, said: str, reason: str, tmp_path: Path
):
    run, _ = await asked(tmp_path, source=source)
    assert (run.status, run.reason) == (Status.NO_EVIDENCE, reason)
    assert cited_answer(run).text() == said
    assert parse(run.transcript()).find("cite") == []


async def test_the_beginning_of_a_passage_is_read_first_and_the_rest_where_it_does_not_answer(
    tmp_path: Path,
):
    born, _, died = MIRA.text.partition(" and ")
    life = f"{born}. {'She painted many kites. ' * 12}She {died}"
    film = page("The Paper Kite", f"{KITE.text} {'It was shown in many towns. ' * 12}")
    search = Library((film, page("Mira Holt", life)))
    filling = Filling(plan=DIRECTED, finds=("Mira Holt", "Turin"))
    run = await forced(tmp_path, filling, search, CHAIN)
    shown = [s.text for s in run.segments if s.author is Author.TOOL]
    assert ["Turin" in text for text in shown] == [False, False, True]
    assert not any("many towns. It was shown in many towns. It was shown in many towns. It was "
                   "shown in many towns. It was shown" in text for text in shown)  # fmt: skip
    assert len(search.queries) == 2, "what is left of a passage is no search"
    assert [e.splitlines()[0][-9:] for e in evaluations(run)][1] == "not found"
    assert "mourned by all Turin" in answer_of(run)
    assert filling.offered[0] == [" Turin", " not found"], "asked of what is shown alone"


async def test_what_is_on_other_things_is_found_and_not_read(tmp_path: Path):
    grey = "Who directed Grey Kite Harbour?"
    run = await forced(tmp_path, Filling(plan=f" {grey}"), FixedSearch((KITE, MIRA)), grey)
    shown = [s.text for s in run.segments if s.author is Author.TOOL]
    assert "<snippet" not in "".join(shown) and "Found on other things: 2." in shown[0]
    assert run.status is Status.NO_EVIDENCE and len(run.sources) == 2
    mira = "Who directed Grey Harbour?\n2. When was Mira Holt born?"
    filling = Filling(plan=f" {mira}", finds=["4 May 1894"])
    asked = "Who directed Grey Harbour, and when was Mira Holt born?"
    run = await forced(tmp_path / "two", filling, FixedSearch((MIRA,)), asked)
    shown = [s.text for s in run.segments if s.author is Author.TOOL]
    assert MIRA.text in shown[-1] and "4 May 1894" in answer_of(run), "it is shown when it is read"


async def test_what_its_own_page_says_in_few_ways_needs_no_model(tmp_path: Path):
    """And is not there where the page says nothing of the kind."""
    filling = Filling(plan=DIRECTED, finds=("Mira Holt", "Turin"))
    await forced(tmp_path, filling, Library(FILMS), CHAIN)
    assert [" Turin", " not found"] in filling.offered
    assert not any(" Mira Holt" in offered for offered in filling.offered)
    starring = page("The Paper Kite", "The Paper Kite is a film starring Tom Reyes.")
    filling = Filling(plan=DIRECTED, finds=("Tom Reyes", "Turin"))
    run = await forced(tmp_path / "starring", filling, Library((starring, MIRA)), CHAIN)
    assert not filling.offered and "Not found: Who directed The Paper Kite?" in answer_of(run)


async def test_an_exact_answer_quotes_its_sources_and_asks_no_model_for_words(tmp_path: Path):
    filling = Filling(plan=DIRECTED, finds=("Mira Holt", "Turin"), claims=["Kites fly."])
    run = await forced(tmp_path, filling, Library(FILMS), CHAIN, answer_format=AnswerFormat.EXACT)
    assert answer_of(run).strip().endswith("Answer: Turin")
    written = [s for s in run.segments if s.author is Author.POLICY]
    assert not any(s.stage is Stage.ANSWER for s in written)


async def test_a_bare_answer_is_held_against_each_look_up_of_its_plan(tmp_path: Path):
    """And the model is not asked for a rubric of it."""
    filling = Filling(plan=DIRECTED, finds=("Mira Holt", "Turin"), rubric=" Says what kites are")
    run = await forced(tmp_path, filling, Library(FILMS), CHAIN, answer_format=AnswerFormat.EXACT)
    assert "Says what kites are" not in run.text
    assert "- Answers: Who directed The Paper Kite? [met: " in run.text
    assert "- Answers: Where did [1] die? [met: " in run.text


async def test_what_a_page_cannot_say_is_not_read_out_of_it(tmp_path: Path):
    abbey = page("Mira Holt", "Mira Holt was raised in exile in Turin, with her brothers of Oslo.")
    plan = " Who directed The Paper Kite?\n2. Where was [1] buried?"
    filling = Filling(plan=plan, finds=("Mira Holt", "Turin"))
    asked = "Where was the director of The Paper Kite buried?"
    run = await forced(tmp_path, filling, Library((KITE, abbey)), asked)
    assert not any(" Turin" in offered for offered in filling.offered)
    assert "Not found: Where was Mira Holt buried?" in answer_of(run)


async def test_an_item_of_a_worked_example_is_no_item_of_another_question(tmp_path: Path):
    leaked = " Says where the director died\n- Says what happens"
    run = await forced(tmp_path, Filling(rubric=leaked))
    assert "director" not in run.text and "- Says what happens" in run.text
    alone = await forced(tmp_path / "alone", Filling(rubric=leaked.splitlines()[0]))
    assert f"- Answers: {QUESTION}" in alone.text


@pytest.mark.parametrize(
    ("item", "known"),
    [
        ("Says when the director died", True),
        ("Names the director of The Paper Kite", True),
        ("Says what the kite weighs", False),
    ],
)
def test_an_item_that_asks_what_the_look_ups_ask_needs_no_model(item: str, known: bool):
    assert (
        is_covered(item, [CHAIN, "Who directed The Paper Kite?", "When did [1] die?", *SAYS])
        is known
    )


async def test_other_words_of_a_question_do_not_lead_away_from_what_it_names(tmp_path: Path):
    other = page("rich.traverse", "max_depth is the maximum depth of data structures, or None.")
    plan = " What does max_depth limit?"
    filling = Filling(plan=plan, reading=" max_depth is the maximum depth of data structures")
    asked = "How does the max_depth parameter limit copy.deepcopy?"
    run = await forced(tmp_path, filling, FixedSearch([other]), asked)
    assert run.status is Status.NO_EVIDENCE
