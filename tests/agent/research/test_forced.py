"""Forced decoding: whatever the model fills in, the scaffold holds and no id is invented.

Code follows the plan: look-ups are searched in turn, read out of what was found, and named where
nothing was. A review that marks something missing sends the run back, and not for ever.

Forced runs under budgets: whole claims stand, slots in progress do not.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.research.forced import SAYS, ForcedDecoder
from rubricem.agent.research.plans import MOST_LOOKUPS, covered
from rubricem.agent.research.reading import (
    adds,
    any_of,
    default_in,
    fuller,
    holds,
    told_sentences,
    trim,
    with_subject,
)
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.run import Run
from rubricem.agent.transcript.question import UNLIMITED, Ask, Budgets, ShownPlan
from rubricem.agent.transcript.scaffold import parse, rejected, rounds, tool_call, turn_faults
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Decoding,
    Message,
    Source,
    Stage,
    Status,
    Trajectory,
)
from tests.agent.research.gbnf import accepts
from tests.support.policies import PASSAGES, QUESTION, FixedSearch, new_run
from tests.support.slots import GROWS, Filling, Library, SmallModel, page, walk

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


async def forced(
    folder: Path,
    model: SmallModel | Filling | None = None,
    search: FixedSearch | None = None,
    question: str = QUESTION,
    **limits: object,
) -> Run:
    """A run through all its stages."""
    policy = model if isinstance(model, SmallModel) else SmallModel(model)
    run = new_run(folder, policy, search, Decoding.FORCED, **limits)
    run.ask = replace(run.ask, question=question)
    return await walk(run, ForcedDecoder())


async def chained(folder: Path, **filled: object) -> tuple[Run, Library]:
    """A run whose second look-up needs what the first one finds."""
    search = Library(FILMS)
    filling = Filling(plan=DIRECTED, finds=("Mira Holt", "Turin"))
    run = await forced(folder, replace(filling, **filled), search, CHAIN)  # type: ignore[arg-type]
    return run, search


def evaluations(run: Run) -> list[str]:
    document = parse(run.text)
    return [document.inner(block).strip() for block in document.find("state_evaluation")]


def answer_of(run: Run) -> str:
    document = parse(run.text)
    return document.last("answer")


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
    assert all(turn.misplaced(number) == [] for number, turn in enumerate(written, start=1))


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
    assert rejected(run.trajectory("t"), citations=True) is None


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
    assert search.queries == ["How do I feed zebras? grass --daily", "How do I feed zebras?"]
    assert "zebra?" not in run.text.replace("feed zebras?", ""), "one thing needs no plan"
    born = await forced(tmp_path / "b", filling, search, "When was Mira Holt born?")
    assert "grass" not in born.text, "of somebody it would name another"


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


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ("The copy is shallow.",
         "A shallow copy makes a new compound object and then inserts the same objects into it "
         "that the original contains."),
        ("A shallow copy makes a new compound object with the same objects of the original.", ""),
        ("copy.deepcopy works.", ""),
        ("The copy is shallow since 1997.", ""),
    ],
    ids=["says little of it", "says most of it", "code", "a number"],
)  # fmt: skip
def test_a_sentence_stands_for_a_claim_that_says_little_of_it(claim: str, told: str):
    text = (
        "A shallow copy makes a new compound object and then inserts the same objects into it "
        "that the original contains.\n\n>>> copy.deepcopy(box) == [b1, c1, d1, e1, f1, g1, h1]"
    )
    source = Source(id="S1", query="q", title="copy", location="c", text=text, tool="search")
    assert fuller(claim, source) == told


SORTS = "numpy.sorts(a, kth, axis=-1, kind: str='introselect', order=None)"


@pytest.mark.parametrize(
    ("question", "head", "told"),
    [
        ("What is the default sorting algorithm kind of numpy.sorts?", SORTS, True),
        ("Which axes does numpy.sorts take by default, what axis?", SORTS, True),
        ("What kind does numpy.sorts take?", SORTS, False),
        ("What is the default kind of numpy.partition?", SORTS, False),
        ("What are the default axis and kind of numpy.sorts?", SORTS, False),
        ("What is the default order of numpy.sorts?", SORTS, False),
        ("What is the default number of samples of numpy.sorts?", "numpy.sorts(a, num=50)", True),
        ("What is the default kind of numpy.sorts?", "Sorts with kind='introselect'.", False),
        ("What is the default kind of numpy.sorts?", f"numpy.sorts({'b, ' * 150}kind=1)", False),
    ],
    ids=["by its name", "once by name", "no default", "another function", "two of them",
         "what None stands for", "by its beginning", "no signature", "too long"],
)  # fmt: skip
async def test_a_default_is_read_off_the_signature(
    tmp_path: Path, question: str, head: str, told: bool
):
    source = page("numpy.sorts", f"{head}\n\nSorts the values of an array in place.")
    policy = Filling(plan=f" {question}", reading=" not found")
    run = await forced(tmp_path, policy, FixedSearch([source]), question)
    assert (head in answer_of(run)) == told


ENTRIES = """numpy.sorts

Sorts the values of an array in place.

Parameters
----------
kind : {'introselect'}, optional
    Which algorithm it sorts them with. Default is 'introselect'.
order : str, default=None
    The names of its fields, if it has any at all.
:param err: Where it writes what went wrong. Defaults to ``stderr``.
    turns (int, optional): How often it goes through them. Defaults to 7."""


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("the default kind", "Default is 'introselect'"),
        ("the default err", ":param err: Where it writes what went wrong. Defaults to ``stderr``."),
        ("the default of turns", "Defaults to 7."),
        ("the default order", ""),
        ("the default weight", ""),
    ],
)
async def test_a_default_is_read_off_the_entry_of_its_parameter(
    tmp_path: Path, asked: str, told: str
):
    source = Source(
        id="S1", query="q", title="numpy.sorts", location="c", text=ENTRIES, tool="search"
    )
    question = f"What is {asked} of numpy.sorts?"
    found = default_in(source, question)
    assert told in found and bool(told) == bool(found)
    if told:
        search = FixedSearch([page(source.title, ENTRIES)])
        run = await forced(tmp_path, Filling(plan=f" {question}"), search, question)
        assert told in answer_of(run)


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("Does client follow redirects by default?", True),
        ("Does client.get follow redirects by default?", True),
        ("Does client follow redirects?", False),
        ("Does client verify by default?", False),
        ("Does another follow redirects by default?", False),
    ],
)
def test_a_default_is_read_off_the_signature_that_has_it_in_other_words(question: str, told: bool):
    text = "client.get(url, *, follow_redirects=False, verify=True)\n\nSends a request."
    source = Source(id="S1", query="q", title="client.get", location="c", text=text, tool="search")
    found = default_in(source, question)
    assert found == ("client.get(url, *, follow_redirects=False, verify=True)" if told else "")


@pytest.mark.parametrize(
    ("title", "said", "told"),
    [
        (
            "numpy.seterr",
            "divide : Treatment for zero.",
            "numpy.seterr: divide : Treatment for zero.",
        ),
        ("numpy.seterr", "Use seterr for all of it.", "Use seterr for all of it."),
        ("git-push(1)", "Forces it.", "Forces it."),
        ("The U.S. of A.", "It is a land.", "It is a land."),
    ],
)
def test_a_sentence_of_an_objects_page_names_the_object(title: str, said: str, told: str):
    source = Source(id="S1", query="q", title=title, location="c", text=said, tool="search")
    assert with_subject(said, source) == told


class Meanings:
    """Of unit vectors by one word; a `--soft` means undoing."""

    name = "meanings"

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        near = [[1.0, 0.0] if re.search("undo|--soft", t, re.I) else [0.0, 1.0] for t in texts]
        return np.array(near, dtype=np.float32)


async def test_where_the_model_finds_nothing_the_nearest_sentence_is_quoted(tmp_path: Path):
    text = (
        "The index has a great many uses in all of git. "
        "Nothing of the working tree changes with reset --soft."
    )
    policy = SmallModel(Filling(reading=" not found"))
    run = new_run(tmp_path, policy, FixedSearch([page("git", text)]), Decoding.FORCED)
    run.ask = replace(run.ask, question="How do I undo a commit?")
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    cited = answer_of(run)
    assert "Nothing of the working tree changes with reset --soft." in cited.split("</cite>")[0]
    assert cited_answer(run.trajectory("t")).text().startswith("Nothing of the working tree")
    policy = SmallModel(Filling(plan=" How do I undo it?\n2. Is undo kept?", reading=" not found"))
    run = new_run(tmp_path / "two", policy, FixedSearch([page("git", text)]), Decoding.FORCED)
    run.ask = replace(run.ask, question="How do I undo it, and is the undo kept?")
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    assert len(run.lookups.found) == 2 and answer_of(run).count("<cite") == 1, "said once"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Note that the size changes as `endpoint` does.\n    num : int\n"
         "        Number of samples to generate. Default is 50. "
         "Must be positive or else zero, as said.",
         ["Note that the size changes as `endpoint` does.",
          "num : int\n        Number of samples to generate. Default is 50.",
          "Must be positive or else zero, as said."]),
        ("If it begins with the prefix, what comes behind it is returned.\n"
         "Otherwise, a copy of the string.",
         ["If it begins with the prefix, what comes behind it is returned. "
          "Otherwise, a copy of the string."]),
        ("Default is 50. It must be positive or else zero, as said.",
         ["Default is 50. It must be positive or else zero, as said."]),
        ("1000-59999: Accounts of ordinary users are made with these.",
         ["1000-59999: Accounts of ordinary users are made with these."]),
        ("Too short.", ["Too short."]),
        ("", []),
    ],
)  # fmt: skip
def test_what_says_little_alone_is_told_with_what_it_belongs_to(text: str, told: list[str]):
    assert list(told_sentences(text)) == told


async def test_a_look_up_that_asks_nothing_of_the_question_is_not_searched(tmp_path: Path):
    search = Library((KITE, MIRA))
    filling = Filling(plan=" How many kites had Mira Holt?\n2. What is the answer?", reading="")
    await forced(tmp_path, filling, search, "How many kites had Mira Holt?")
    assert not any("answer" in query for query in search.queries)


@pytest.mark.parametrize(
    ("question", "what", "does", "quoted"),
    [
        ("Why does git undo change the clock?", "the working tree", "changes", True),
        ("Why does git undo change the clock?", "the working tree", "grows", False),
        ("How many modes does git undo have?", "two modes", "changes", True),
        ("How many modes does git undo have?", "its modes", "changes", False),
        ("Which function takes back an undo?", "redo()", "changes", True),
        ("Which function takes back an undo?", "undo()", "changes", False),
        ("Which exception does an undo raise?", "a RedoError", "changes", True),
        ("Which exception does an undo raise?", "an error", "changes", False),
    ],
)
async def test_a_sentence_is_of_the_kind_that_is_asked_for(
    tmp_path: Path, question: str, what: str, does: str, quoted: bool
):
    text = f"Nothing of {what} {does} with reset --soft."
    policy = SmallModel(Filling(reading=" not found"))
    run = new_run(tmp_path, policy, FixedSearch([page("git", text)]), Decoding.FORCED)
    run.ask = replace(run.ask, question=question)
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    assert ("Nothing of" in answer_of(run)) is quoted


MERGED = """Joins two tables.

Parameters
----------
left : Table
    The first of the two tables that are joined.
origin : bool, default False
    Whether a column is added that says where each of the rows is from.
    Any other name that the column should have is given in its place.
    Of a row in the first table alone the column undo says "left_only" and nothing else.

Returns
-------
A table with all of the rows that can undo what was done before."""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            'Of a row in the first table alone the column undo says "left_only" and nothing else.',
            "tables.merge: origin : bool, default False Whether a column is added that says where "
            "each of the rows is from. ... Of a row in the first",
        ),
        (
            "A table with all of the rows that can undo what was done before.",
            "tables.merge: Returns ------- A table with all of the rows",
        ),
    ],
    ids=["in an entry", "behind the entries"],
)
async def test_a_sentence_of_an_entry_is_quoted_with_what_it_is_an_entry_of(
    tmp_path: Path, said: str, told: str, monkeypatch: pytest.MonkeyPatch
):
    async def only(run: Run, stage: Stage, messages: list[Message], slot: str) -> float:
        return 0.6 if said in messages[-1].content else 0.1

    monkeypatch.setattr(Run, "chance", only)
    search = FixedSearch([page("tables.merge", MERGED)])
    run = new_run(tmp_path, SmallModel(Filling(reading=" not found")), search, Decoding.FORCED)
    run.ask = replace(run.ask, question="After merging, how do I undo it?")
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    assert cited_answer(run.trajectory("t")).text(lambda _: "").startswith(told)
    assert len(run.lookups.steps) == 1, "what leads up to a question is no part of it"


async def ask_undoing(folder: Path, text: str, question: str, expects: str = "") -> str:
    """What is answered where the model finds nothing, out of one passage."""
    policy = SmallModel(Filling(reading=" not found", expects=expects))
    run = new_run(folder, policy, FixedSearch([page("git undo", text)]), Decoding.FORCED)
    run.ask = replace(run.ask, question=question)
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    return cited_answer(run.trajectory("t")).text(lambda _: "")


@pytest.mark.parametrize(
    ("likely", "unless"),
    [(0.9, "force is given"), (0.8, "it is told so")],
    ids=["both have what was expected", "the model doubts the one that has"],
)
async def test_what_was_expected_ends_no_reading_too_early(
    tmp_path: Path, likely: float, unless: str, monkeypatch: pytest.MonkeyPatch
):
    async def weighs(run: Run, stage: Stage, messages: list[Message], slot: str) -> float:
        return likely if "refuses" in messages[-1].content else 0.5

    monkeypatch.setattr(Run, "chance", weighs)
    text = (
        "What is left in the working tree is removed as said under force. "
        f"The command refuses to undo anything of it unless {unless}."
    )
    told = await ask_undoing(tmp_path, text, "What does undo need in git?", " force")
    assert "The command refuses to undo anything" in told


@pytest.mark.parametrize(
    ("question", "shown"),
    [("What happens when I undo a commit?", False), ("How do I undo a commit?", True)],
)
async def test_code_says_how_something_is_done_and_not_what_happens(
    tmp_path: Path, question: str, shown: bool
):
    text = "import tables\nclass Undo(tables.Base):\n    size: int = 4  # which undo is like this"
    told = await ask_undoing(tmp_path, text, question)
    assert ("import tables" in told) is shown


async def test_what_a_command_does_is_told_by_its_own_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def weighs(run: Run, stage: Stage, messages: list[Message], slot: str) -> float:
        return 0.5 if "autoundo" in messages[-1].content else 0.4

    monkeypatch.setattr(Run, "chance", weighs)
    text = (
        "autoundo takes back whatever was done by itself for others and is no longer needed.\n\n"
        "undo is the same as reset but that the files are kept as they are."
    )
    told = await ask_undoing(tmp_path, text, "What does git undo do?")
    assert told.startswith("undo is the same as reset") and "autoundo" not in told


async def test_what_one_look_up_showed_may_answer_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def weighs(run: Run, stage: Stage, messages: list[Message], slot: str) -> float:
        return 0.4

    monkeypatch.setattr(Run, "chance", weighs)
    both = (
        "undo takes back the last change of the working tree that was made.\n\n"
        "redo makes a change of the working tree that was undone before again."
    )
    search = FixedSearch([page("undoing", both), page("other", "Nothing of undo or redo is here.")])
    run = new_run(tmp_path, SmallModel(Filling(reading=" not found")), search, Decoding.FORCED)
    run.ask = replace(
        run.ask, question="What is the difference between it undo and it redo?", passages=1
    )
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    told = cited_answer(run.trajectory("t")).text(lambda _: "")
    assert "undo takes back" in told and "redo makes a change" in told


UNDOING = "How do I undo a commit?", "Nothing of the working tree changes with reset --soft."
PHARE = "Quelle est la hauteur du phare ?", "Il mesure 43 mètres et il est en brique rouge."


@pytest.mark.parametrize(
    ("asked", "chance", "status", "shown"),
    [
        (UNDOING, 0.6, Status.FINISHED, "Nothing of"),
        (UNDOING, 0.4, Status.NO_EVIDENCE, f"Not found: {UNDOING[0]}\nNearest to it: Nothing of"),
        (UNDOING, 0.2, Status.NO_EVIDENCE, f"Not found: {UNDOING[0]}"),
        (PHARE, 0.4, Status.FINISHED, "Il mesure 43"),
        (PHARE, 0.2, Status.NO_EVIDENCE, f"Not found: {PHARE[0]}"),
    ],
)
async def test_what_the_model_doubts_is_shown_as_the_nearest_and_not_as_the_answer(
    asked: tuple[str, str],
    chance: float,
    status: Status,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    async def doubts(run: Run, stage: Stage, messages: object, slot: str) -> float:
        return chance

    monkeypatch.setattr(Run, "chance", doubts)
    question, text = asked
    policy = SmallModel(Filling(reading=" not found", expects=" reset"))
    run = new_run(tmp_path, policy, FixedSearch([page("git", text)]), Decoding.FORCED)
    run.ask = replace(run.ask, question=question)
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    assert run.status is status
    told = cited_answer(run.trajectory("t")).text(lambda _: "")
    assert told.startswith(shown) and ("Nearest" in told) is ("Nearest" in shown)


@pytest.mark.parametrize(
    ("title", "question", "taken"),
    [
        ("git.undo", "How do I take a commit back?", True),
        ("git.reset", "How do I take a commit back?", False),
        ("git.undo", "What does the depth of git.undo take back?", False),
    ],
    ids=["foreseen", "another", "asked about"],
)
async def test_what_the_page_says_that_the_model_foresaw_is_doubted_less(
    tmp_path: Path, title: str, question: str, taken: bool, monkeypatch: pytest.MonkeyPatch
):
    async def doubts(run: Run, stage: Stage, messages: object, slot: str) -> float:
        return 0.35

    monkeypatch.setattr(Run, "chance", doubts)
    policy = SmallModel(Filling(reading=" not found", expects=" git.undo"))
    text = "The depth of what was done last is a commit that this takes back, as all of git."
    run = new_run(tmp_path, policy, FixedSearch([page(title, text)]), Decoding.FORCED)
    run.ask = replace(run.ask, question=question)
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    assert (run.status is Status.FINISHED) is taken


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


def test_a_slot_that_was_cut_ends_with_its_last_whole_sentence():
    assert trim(" One. Two is cut off he", capped=True) == "One."
    assert trim("- a\n- b is cut", capped=True) == "- a"
    assert trim("no end at all", capped=True) == "no end at all"
    assert trim(" Whole text ", capped=False) == "Whole text"


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


@pytest.mark.parametrize(
    ("text", "claim", "held"),
    [
        ("It returns 128 items at most.", "It returns 128 items.", True),
        ("It returns 128 items at most.", "It returns 12 items.", False),
        ("Use my_cache_all for the cache.", "Use my_cache_all for the cache.", True),
        ("Use my_cache_all for the cache.", "Use cache_a for the cache.", False),
        ("The cache can grow without bound.", "The cache grows.", True),
        ("The cache can grow without bound.", "Zebras gallop across grassland.", False),
        ("The cache can grow without bound.", "The cache of Oslo can grow.", False),
    ],
)
def test_a_source_holds_a_claim_by_half_its_words_and_names_and_numbers_whole(
    text: str, claim: str, held: bool
):
    source = Source(id="S1", title="m.f", location="m.py", text=text, tool="python", query="q")
    assert holds(source, claim) is held


def test_a_claim_adds_a_new_word():
    assert adds("It is sorted.", [])
    assert not adds("the cache is growing", ["The cache can grow."])


def test_a_grammar_of_texts_accepts_each_whole_whatever_stands_in_it():
    grammar = any_of([' "Turin", \\ Italy', " not found"])
    assert accepts(grammar, " not found") and not accepts(grammar, " not")
    assert accepts(grammar, ' "Turin", \\ Italy') and not accepts(grammar, " Turin")


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
        covered(item, [CHAIN, "Who directed The Paper Kite?", "When did [1] die?", *SAYS]) is known
    )


@pytest.mark.parametrize(
    ("question", "quoted"),
    [("Why does gather sort keys?", False), ("What is the signature of gather?", True)],
)
async def test_how_something_is_called_answers_no_question_but_one_on_that(
    question: str, quoted: bool, tmp_path: Path
):
    signature = "gather(sort_keys=False, keys=None)"
    search = Library([page("gather", f"{signature}\n\nIt waits.")])
    filling = Filling(reading=f" {signature}.", claims=[signature])
    run = await forced(tmp_path, filling, search, question)
    assert (signature in answer_of(run)) is quoted
    assert (run.status is Status.NO_EVIDENCE) is not quoted


async def test_other_words_of_a_question_do_not_lead_away_from_what_it_names(tmp_path: Path):
    other = page("rich.traverse", "max_depth is the maximum depth of data structures, or None.")
    plan = " What does max_depth limit?"
    filling = Filling(plan=plan, reading=" max_depth is the maximum depth of data structures")
    asked = "How does the max_depth parameter limit copy.deepcopy?"
    run = await forced(tmp_path, filling, FixedSearch([other]), asked)
    assert run.status is Status.NO_EVIDENCE
