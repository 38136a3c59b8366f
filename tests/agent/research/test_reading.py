"""What is read for a look-up: which sentences may answer it, and how they are quoted."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rubricem.agent.reports.cited import Cited, cited_answer
from rubricem.agent.reports.verifier import SAYS, SAYS_MORE
from rubricem.agent.research.forced import ForcedDecoder
from rubricem.agent.research.reading import (
    AnswerReader,
    Slots,
    adds,
    any_of,
    trim,
)
from rubricem.agent.research.run import Run
from rubricem.memory.schema import (
    AnswerFormat,
    Decoding,
    Message,
    Passage,
    Stage,
    Status,
)
from tests.agent.research.gbnf import accepts
from tests.support.policies import FixedSearch, new_run
from tests.support.slots import Filling, Library, Meanings, SmallModel, answer_of, page, walk
from tests.support.values import GivenModel


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
    told = told.partition("See also")[0]
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


RESETS = (
    "The index has a great many uses in all of git. "
    "With reset --soft git takes back the last commit and keeps the files as they are."
)
DRAFTED = "To undo a commit, use git reset with the option --soft."


class Drafting(GivenModel):
    """Asked as the verifier asks, it holds with these chances that the passage says a claim, and
    that the claim says more."""

    says, says_more = 0.9, 0.1

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        given = await super().weigh(prefix, options)
        for asked, yes in ((SAYS, self.says), (SAYS_MORE, self.says_more)):
            if asked in self.read[-1]:
                return yes / 2, yes / 2, 1 - yes, 0.0
        return given


async def draft_undoing(
    folder: Path, reader: Drafting, text: str = RESETS, **limits: object
) -> Run:
    """A run whose model is asked beside its transcript, over one passage."""
    policy = SmallModel(Filling(reading=" the transcript is read on", expects=" revert it"))
    policy.reader = reader
    run = new_run(folder, policy, FixedSearch([page("git", text)]), Decoding.FORCED, **limits)
    run.ask = replace(run.ask, question="How do I undo a commit?")
    return await walk(run, ForcedDecoder(embedder=Meanings()))


async def test_an_answer_is_drafted_from_the_passages_alone_and_shown_with_what_it_rests_on(
    tmp_path: Path,
):
    reader = Drafting(text=DRAFTED)
    run = await draft_undoing(tmp_path, reader)
    cited = cited_answer(run.trajectory("t"))
    assert cited.text(lambda _: "").splitlines() == [
        DRAFTED, RESETS.partition(". ")[2]
    ]  # fmt: skip
    assert RESETS in reader.read[0] and "How do I undo a commit?" in reader.read[0]
    assert "revert it" not in reader.read[0], "what it expects would be said again"
    assert "the transcript is read on" not in run.text and run.status is Status.FINISHED
    assert run.spending.slots["draft"].calls == 4, "it is written, then held against its passage"


MISSED = "Not found: How do I undo a commit?"
UNSURE = "Not certain:"


@pytest.mark.parametrize(
    ("drafted", "yes", "status", "told"),
    [
        ("not found", 0.35, Status.NO_EVIDENCE, f"{MISSED}\nNearest to it:"),
        ("not found", 0.4, Status.PARTIAL, f"{UNSURE} With reset --soft git takes back"),
        ("Not found.", 0.2, Status.NO_EVIDENCE, MISSED),
        ("To undo it, use git reset --mixed_up.", 0.85, Status.FINISHED, "With reset --soft git"),
        ("To undo a commit, use git with 128.", 0.85, Status.FINISHED, "With reset --soft git"),
        ("Undo the commit.", 0.85, Status.FINISHED, "With reset --soft git takes back"),
        ("Undo the commit.", 0.75, Status.PARTIAL, f"{UNSURE} With reset --soft git takes back"),
        ("Undo the commit.", 0.35, Status.NO_EVIDENCE,
         f"{MISSED}\nNearest to it: With reset --soft"),
        (DRAFTED, 0.65, Status.PARTIAL, f"{UNSURE} {DRAFTED}\nIt rests on: With reset --soft git"),
        (DRAFTED, 0.45, Status.PARTIAL, f"{UNSURE} With reset --soft git takes back"),
        (DRAFTED, 0.35, Status.NO_EVIDENCE, f"{MISSED}\nNearest to it:"),
        ("To undo a commit, use git reset with 128.", 0.65, Status.PARTIAL,
         f"{UNSURE} With reset --soft git takes back"),
        ("With reset --soft git takes back the last commit to undo it, and keeps files.", 0.65,
         Status.FINISHED, "With reset --soft git takes back the last commit to undo it"),
        ("The index has 3 uses, a great many.", 0.75, Status.PARTIAL, UNSURE),
        ("Yes.", 0.1, Status.NO_EVIDENCE, MISSED),
        ("With reset --soft git takes back the last commit and keeps the files.", 0.75,
         Status.FINISHED, "With reset --soft git takes back"),
    ],
    ids=["nothing, one is near", "nothing, one may be it", "nothing", "another name",
         "another number", "the question again", "again, hardly sure", "again, and unsure",
         "not certain",
         "the sentence is likelier", "the model doubts it", "not certain, of another number",
         "all that is asked, in the passage's words", "nothing that is asked",
         "no word", "the sentence itself"],
)  # fmt: skip
async def test_a_draft_that_no_passage_holds_is_not_shown(
    tmp_path: Path, drafted: str, yes: float, status: Status, told: str
):
    reader = Drafting(lambda text: yes if "--soft" in text else 0.1, drafted)
    run = await draft_undoing(tmp_path, reader)
    shown = cited_answer(run.trajectory("t")).text(lambda _: "")
    assert run.status is status and shown.startswith(told)
    assert shown.count("With reset --soft git takes back") <= 1, "nothing is said twice"
    assert ("Nearest" in shown) is ("Nearest" in told)


async def test_what_a_doubted_draft_rests_on_is_shown_as_the_nearest(tmp_path: Path):
    reader = Drafting(lambda text: 0.35 if "Is this answer right" in text else 0.1, DRAFTED)
    run = await draft_undoing(tmp_path, reader)
    shown = cited_answer(run.trajectory("t")).text(lambda _: "")
    assert run.status is Status.NO_EVIDENCE and "To undo" not in shown
    assert shown.startswith(f"{MISSED}\nNearest to it: With reset --soft")


async def test_a_draft_on_why_is_not_certain_where_another_would_be(tmp_path: Path):
    policy = SmallModel(Filling(expects=" revert it"))
    policy.reader = Drafting(lambda t: 0.75 if "Is this answer right" in t else 0.1, DRAFTED)
    for question, status in (("How do I undo it?", Status.FINISHED),
                             ("Why do I undo a commit?", Status.PARTIAL)):  # fmt: skip
        folder = tmp_path / str(status)
        run = new_run(folder, policy, FixedSearch([page("git", RESETS)]), Decoding.FORCED)
        run.ask = replace(run.ask, question=question)
        assert (await walk(run, ForcedDecoder(embedder=Meanings()))).status is status


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ("git undo how many of them does it take", Status.NO_EVIDENCE),
        ("How long is undo kept by default?", Status.NO_EVIDENCE),
        ("How long is undo kept?", Status.FINISHED),
    ],
)
async def test_a_draft_without_a_number_tells_no_amount(
    tmp_path: Path, question: str, status: Status
):
    policy = SmallModel(Filling(expects=" undo"))
    policy.reader = Drafting(text="With reset --soft git takes back what was the last commit.")
    run = new_run(tmp_path, policy, FixedSearch([page("git", RESETS)]), Decoding.FORCED)
    run.ask = replace(run.ask, question=question)
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    assert run.status is status


async def test_a_draft_that_is_not_certain_is_told_as_that(tmp_path: Path):
    reader = Drafting(lambda text: 0.6 if "Is this answer right" in text else 0.1, DRAFTED)
    run = await draft_undoing(tmp_path, reader)
    assert run.reason == "not certain: How do I undo a commit?" and not run.lookups.found
    first, second = (p for p in cited_answer(run.trajectory("t")).pieces if isinstance(p, Cited))
    assert first.text == DRAFTED and not first.certain
    assert second.text.startswith("With reset --soft") and second.certain


@pytest.mark.parametrize(
    ("says", "says_more", "borne_out", "lead"),
    [(0.9, 0.1, 0.8, ""), (0.6, 0.7, 0.8, UNSURE), (0.6, 0.7, 0.6, UNSURE),
     (0.3, 0.8, 0.8, None), (0.3, 0.8, 0.6, None)],
    ids=["held", "hardly", "hardly, and unsure", "not held", "unsure, and not held"],
)  # fmt: skip
async def test_a_draft_is_certain_where_the_verifier_holds_it_and_left_out_where_it_does_not(
    tmp_path: Path, says: float, says_more: float, borne_out: float, lead: str | None
):
    drafted = "Use reset --soft, with which git takes back the last commit and keeps all files."
    reader = Drafting(lambda t: borne_out if "Is this answer right" in t else 0.1, drafted)
    reader.says, reader.says_more = says, says_more
    run = await draft_undoing(tmp_path, reader)
    shown = cited_answer(run.trajectory("t")).text(lambda _: "")
    other = MISSED if borne_out < 0.7 else f"{UNSURE} With reset --soft"
    assert shown.startswith(other if lead is None else f"{lead} {drafted}".strip())
    assert (drafted in shown) is (lead is not None)
    searched = len(run.lookups.queries[1])
    assert searched == (1 if borne_out > 0.7 and lead is not None else 2), (
        "another draft is no surer"
    )


class Nearness:
    """An embedder by which texts are as near to any question as the number they end with."""

    dimensions = 2
    name = "nearness"

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        ends = (re.search(r"\b0\.\d(?=\.?$)", text) for text in texts)
        near = [1.0 if query else float(end[0]) if end else 0.0 for end in ends]
        return np.array([[each, 0.0] for each in near], dtype=np.float32)


@pytest.mark.parametrize(
    ("answer_format", "seen"),
    [
        (AnswerFormat.LONG, [
            "See also two: The commit before the last one is restored by a checkout alone: 0.9.",
            "See also one: Whoever wants the index as well has to give --mixed to it: 0.8. "
            "It is short: 0.1.",
        ]),
        (AnswerFormat.EXACT, []),
    ],
)  # fmt: skip
async def test_what_is_nearest_is_quoted_with_its_neighbours_where_nothing_answers(
    tmp_path: Path, answer_format: AnswerFormat, seen: list[str]
):
    policy = SmallModel(Filling(expects=" undo"))
    policy.reader = Drafting(0.1, "not found")
    pages = [
        page("one", "Whoever wants the index as well has to give --mixed to it: 0.8. "
             "It is short: 0.1."),
        page("two", "The commit before the last one is restored by a checkout alone: 0.9."),
        page("three", "Of branches there is a page that tells how each of them is made: 0.6."),
    ]  # fmt: skip
    run = new_run(
        tmp_path, policy, FixedSearch(pages), Decoding.FORCED, answer_format=answer_format
    )
    run.ask = replace(run.ask, question="How do I undo a commit?")
    run = await walk(run, ForcedDecoder(embedder=Nearness()))
    told = cited_answer(run.trajectory("t")).text(lambda _: "").splitlines()
    assert [line for line in told if line.startswith("See also")] == seen
    assert run.status is Status.NO_EVIDENCE


@pytest.mark.parametrize(
    ("question", "seen"),
    [("How do I undo a commit?", 3), ("How do I undo it, and is the undo kept?", 2)],
    ids=["one look-up", "two"],
)
async def test_beside_each_of_several_look_ups_less_is_quoted(
    tmp_path: Path, question: str, seen: int
):
    plan = " How do I undo it?\n2. Is undo kept?" if seen == 2 else ""
    policy = SmallModel(Filling(plan=plan, expects=" undo"))
    policy.reader = Drafting(0.1, "not found")
    told = ("restored by a checkout", "kept under another name", "shown by its own page",
            "moved to a new branch")  # fmt: skip
    pages = [
        page(f"page {at}", f"The commit before the last one is {way} of index {at}: 0.9.")
        for at, way in enumerate(told)
    ]
    run = new_run(tmp_path, policy, FixedSearch(pages), Decoding.FORCED)
    run.ask = replace(run.ask, question=question)
    run = await walk(run, ForcedDecoder(embedder=Nearness()))
    first = run.lookups.steps[0].number
    assert len(await AnswerReader(Slots(), Nearness()).see_also(run, first, "")) == seen


async def test_the_entry_that_is_named_is_drafted_from_first_and_quoted(tmp_path: Path):
    policy = SmallModel(Filling(expects=" git undo -a -b"))
    policy.reader = reader = Drafting(0.1, "not found")
    entry = "-a\n    Take back the last one. It is kept under another name for a month."
    pages = [
        page("one", "Whoever wants the index as well has to give more to it than that: 0.8."),
        page("two", "The last one is restored by a checkout alone, which is told here: 0.9."),
        page("git-undo(1)", f"{entry}\n\n-b\n    What was ever done."),
    ]
    run = new_run(tmp_path, policy, FixedSearch(pages), Decoding.FORCED)
    run.ask = replace(run.ask, question="How do I undo what I did?")
    run = await walk(run, ForcedDecoder(embedder=Nearness()))
    assert "[1] git-undo(1)" in next(read for read in reader.read if "[1] " in read)
    told = cited_answer(run.trajectory("t")).text(lambda _: "").splitlines()
    seen = [line for line in told if line.startswith("See also")]
    assert seen[0] == f"See also git-undo(1): {' '.join(entry.split())}"
    assert seen[1] == "See also git-undo(1): -b What was ever done."
    assert len(seen) == 4, "beside what is nearest"


async def test_an_answer_is_drafted_from_two_passages_and_where_they_have_none_from_others(
    tmp_path: Path,
):
    class Seeing(Drafting):
        async def complete(self, prefix, sampling, *rest):  # type: ignore[no-untyped-def]
            said = await super().complete(prefix, sampling, *rest)
            there = "--soft" in self.read[-1]
            return replace(said, text=DRAFTED if there else "not found")

    first = [
        page("undo one", "What it is to undo a commit is told below, in all that follows. " * 9),
        page("undo two", "Others undo commits by hand, which this manual tells nowhere else. " * 9),
    ]
    policy = SmallModel(Filling(expects=" undo a commit"))
    policy.reader = reader = Seeing()
    run = new_run(tmp_path, policy, FixedSearch([*first, page("git", RESETS)]), Decoding.FORCED)
    run.ask = replace(run.ask, question="How do I undo a commit?")
    run = await walk(run, ForcedDecoder())
    assert run.lookups.found[1].text == DRAFTED
    drafts = [r for r in reader.read if "[1] " in r and "in other words" not in r]
    assert not any("[3] " in read for read in drafts)
    assert ["--soft" in read for read in drafts] == [False, True]


async def test_an_answer_is_drafted_from_the_best_pieces_of_all_passages(tmp_path: Path):
    policy = SmallModel(Filling(expects=" undo"))
    policy.reader = reader = Drafting(0.1, "not found")
    rest = "Of all else that a branch is there is more to tell than a page can hold. " * 12
    pages = [
        page("one", f"{rest}\n\nWhat was done last is taken back by soft resets alone: 0.9."),
        page("two", rest),
        page("three", f"{rest}\n\nThe index as well is taken back where it is mixed: 0.8."),
    ]
    run = new_run(tmp_path, policy, FixedSearch(pages), Decoding.FORCED)
    run.ask = replace(run.ask, question="How do I undo a commit?")
    await walk(run, ForcedDecoder(embedder=Nearness()))
    read = next(read for read in reader.read if "[1] " in read)
    assert "0.9." in read and "0.8." in read, "neither passage begins with it"
    assert read.index("0.9.") < read.index("0.8.")


@pytest.mark.parametrize(
    ("chance", "told"),
    [(0.9, f"{UNSURE} {DRAFTED}"), (0.65, f"{UNSURE} With reset --soft")],
    ids=["borne out", "hardly borne out"],
)
async def test_what_is_drafted_only_when_asked_again_is_never_certain(
    tmp_path: Path, chance: float, told: str
):
    class Refusing(Drafting):
        async def complete(self, prefix, sampling, *rest):  # type: ignore[no-untyped-def]
            said = await super().complete(prefix, sampling, *rest)
            again = "does answer it, in other words" in self.read[-1]
            return replace(said, text=DRAFTED if again else "not found")

    reader = Refusing(lambda text: chance if "Is this answer right" in text else 0.1)
    run = await draft_undoing(tmp_path, reader)
    shown = cited_answer(run.trajectory("t")).text(lambda _: "")
    assert shown.startswith(told) and (DRAFTED in shown) is (DRAFTED in told)
    assert run.status is not Status.FINISHED


async def test_a_draft_that_is_how_something_is_called_is_no_answer(tmp_path: Path):
    signature = "git.reset(soft=True, mixed=False, hard=False)"
    reader = Drafting(lambda t: 0.9 if "Is this answer right" in t else 0.1, signature)
    run = await draft_undoing(tmp_path, reader, f"{signature}\n\n{RESETS}")
    assert run.status is Status.NO_EVIDENCE


async def test_where_drafts_failed_what_was_expected_makes_no_sentence_certain(tmp_path: Path):
    policy = SmallModel(Filling(expects=" reset --soft takes back"))
    policy.reader = Drafting(lambda text: 0.6 if "--soft" in text else 0.1, "not found")
    run = new_run(tmp_path, policy, FixedSearch([page("git", RESETS)]), Decoding.FORCED)
    run.ask = replace(run.ask, question="How do I undo a commit?")
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    shown = cited_answer(run.trajectory("t")).text(lambda _: "")
    assert run.status is Status.PARTIAL and shown.startswith(f"{UNSURE} With reset --soft")


async def test_what_a_draft_names_that_no_passage_has_is_searched_for(tmp_path: Path):
    policy = SmallModel(Filling(expects=" undo a commit"))
    policy.reader = Drafting(text="Undo the last commit with `undoing.approx` and keep all files.")
    told = "undoing.approx()\n\nKeep all files and undo the last commit of them that was made."
    search = Library([page("undo", "It is to undo a commit."), page("undoing.approx", told)])
    run = new_run(tmp_path, policy, search, Decoding.FORCED, passages=1)
    run.ask = replace(run.ask, question="How do I undo a commit?")
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    assert run.lookups.queries[1][-1] == "undoing.approx"
    assert run.lookups.found[1].text.startswith("Undo the last commit with")


async def test_a_draft_that_denies_what_it_rests_on_is_not_shown(tmp_path: Path):
    reader = Drafting(text="With --soft git takes back the last commit, not the files.")
    text = "Of the last commit git takes back the files with --soft, and it keeps nothing else."
    run = await draft_undoing(tmp_path, reader, text)
    assert reader.text not in run.text


async def test_passages_are_drafted_from_under_their_headings(tmp_path: Path):
    reader = Drafting(text="The function highlight() sets it in bold.")
    policy = SmallModel(Filling(expects=" bold"))
    policy.reader = reader
    text = "It returns a copy of the text with each match that was found in it set in bold."
    found = Passage("Search", "a.html", "Search > 5.1 The highlight() function", text)
    run = new_run(tmp_path, policy, FixedSearch([found]), Decoding.FORCED)
    run.ask = replace(run.ask, question="How do I show a match in bold?")
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    assert "[1] Search > 5.1 The highlight() function\nIt returns" in reader.read[0]
    assert run.lookups.found[1].text == reader.text, "its name stands in the heading alone"


async def test_an_answer_of_one_sentence_has_the_question_as_its_rubric(tmp_path: Path):
    run = await draft_undoing(tmp_path, Drafting(text=DRAFTED))
    assert "<rubric>\n- Answers: How do I undo a commit?\n</rubric>" in run.text
    assert not {"rubric", "rubric_review"} & run.spending.slots.keys(), "no model is asked for it"


async def test_a_command_that_is_put_together_of_what_stands_apart_is_not_shown(tmp_path: Path):
    for made_up in ("`git undo --hard`", "`git reset commit --soft`"):
        drafted = f"To undo it, git takes back the last commit with {made_up}."
        run = await draft_undoing(tmp_path / made_up[5:9], Drafting(text=drafted))
        assert made_up not in answer_of(run)


async def test_a_draft_names_no_passage_by_its_place_and_rests_on_no_link(tmp_path: Path):
    link = "All of it is told on another page, too: https://undo.example/reset_soft_last_commit."
    text = f"{link}\n\nWith reset --soft git takes back what was done last, and keeps all files."
    reader = Drafting(text="Use reset --soft [1], of the last commit in undo[0] [2].")
    run = await draft_undoing(tmp_path, reader, text + " Then undo[0] is what was done.")
    found = run.lookups.found[1]
    assert found.text == "Use reset --soft, of the last commit in undo[0]."
    assert all("https" not in more.text for more in found.more)


async def test_a_draft_rests_on_the_sentence_that_has_its_rare_words(tmp_path: Path):
    text = (
        "Use the command with the option that undo needs to undo it. "
        "Use the option --keep of the command to undo nothing that was changed. "
        "Use the option --soft of the command to leave all files as they are."
    )
    drafted = "Use the command with the option --soft."
    run = await draft_undoing(tmp_path, Drafting(text=drafted), text)
    assert run.lookups.found[1].more[0].text.startswith("Use the option --soft")


async def test_a_name_made_of_the_questions_words_says_something(tmp_path: Path):
    text = "undo_commit(keep=None) With undo_commit a commit is taken back, its files are kept."
    for drafted, found in (("To undo a commit, use the function `undo_commit`.", True),
                           ("To undo a commit, use the function to undo it.", False)):  # fmt: skip
        reader = Drafting(lambda t: 0.8 if "Is this answer right" in t else 0.1, drafted)
        run = await draft_undoing(tmp_path / str(found), reader, text)
        assert (drafted in answer_of(run)) is found


async def test_a_draft_rests_on_a_passage_that_has_its_option(tmp_path: Path):
    near = page("git-diff", "To undo what the commit has, the index is reset, which leaves files.")
    told = page("git-reset", "The reset with --soft leaves all files as they are after the commit.")
    policy = SmallModel(Filling(expects=" undo"))
    policy.reader = Drafting(
        text="To undo a commit, the index is reset with `--soft`, which leaves files."
    )
    run = new_run(tmp_path, policy, FixedSearch([near, told]), Decoding.FORCED)
    run.ask = replace(run.ask, question="How do I undo a commit?")
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    assert run.sources[run.lookups.found[1].source].title == "git-reset"


async def test_without_an_embedder_the_transcript_is_read_on_where_no_passage_holds_a_draft(
    tmp_path: Path,
):
    said = "With reset --soft git takes back the last commit."
    policy = SmallModel(Filling(reading=f" {said}", claims=[said]))
    policy.reader = Drafting(text="To undo a commit, use git reset --mixed_up.")
    run = new_run(tmp_path, policy, FixedSearch([page("git", RESETS)]), Decoding.FORCED)
    run.ask = replace(run.ask, question="How do I undo a commit?")
    run = await walk(run, ForcedDecoder())
    assert run.status is Status.FINISHED and "With reset --soft" in answer_of(run)


async def test_a_bare_answer_is_no_drafted_sentence(tmp_path: Path):
    reader = Drafting(text=DRAFTED)
    run = await draft_undoing(tmp_path, reader, answer_format=AnswerFormat.EXACT)
    assert DRAFTED not in run.text and "draft" not in run.spending.slots


UNDOING = "How do I undo a commit?", "Nothing of the working tree changes with reset --soft."


PHARE = "Quelle est la hauteur du phare ?", "Il mesure 43 mètres et il est en brique rouge."


@pytest.mark.parametrize(
    ("asked", "chance", "status", "shown"),
    [
        (UNDOING, 0.6, Status.FINISHED, "Nothing of"),
        (UNDOING, 0.35, Status.NO_EVIDENCE, f"Not found: {UNDOING[0]}\nNearest to it: Nothing of"),
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


@pytest.mark.parametrize("asked", [UNDOING, PHARE], ids=["English", "French"])
async def test_where_no_answer_could_be_drafted_a_sentence_must_be_sure_in_any_language(
    asked: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def doubts(run: Run, stage: Stage, messages: object, slot: str) -> float:
        return 0.35

    monkeypatch.setattr(Run, "chance", doubts)
    question, text = asked
    policy = SmallModel(Filling(reading=" not found", expects=" reset"))
    policy.reader = Drafting(text="not found")
    run = new_run(tmp_path, policy, FixedSearch([page("git", text)]), Decoding.FORCED)
    run.ask = replace(run.ask, question=question)
    run = await walk(run, ForcedDecoder(embedder=Meanings()))
    assert run.status is Status.NO_EVIDENCE
    assert "Nearest to it: " in cited_answer(run.trajectory("t")).text(lambda _: "")


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


def test_a_slot_that_was_cut_ends_with_its_last_whole_sentence():
    assert trim(" One. Two is cut off he", capped=True) == "One."
    assert trim("- a\n- b is cut", capped=True) == "- a"
    assert trim("no end at all", capped=True) == "no end at all"
    assert trim(" Whole text ", capped=False) == "Whole text"


def test_a_claim_adds_a_new_word():
    assert adds("It is sorted.", [])
    assert not adds("the cache is growing", ["The cache can grow."])


def test_a_grammar_of_texts_accepts_each_whole_whatever_stands_in_it():
    grammar = any_of([' "Turin", \\ Italy', " not found"])
    assert accepts(grammar, " not found") and not accepts(grammar, " not")
    assert accepts(grammar, ' "Turin", \\ Italy') and not accepts(grammar, " Turin")
