"""What a sentence says to a question, and with what it is quoted."""

from dataclasses import replace
from pathlib import Path

import pytest

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.research.forced import ForcedDecoder
from rubricem.agent.research.quoting import (
    Inquiry,
    entries,
    entries_named,
    excerpts,
    fuller,
    holds,
    is_made_up,
    piece_around,
    quotable_sentences,
    whole_list,
    with_neighbours,
    with_subject,
)
from rubricem.agent.research.run import Run
from rubricem.agent.transcript.scaffold import neutralise
from rubricem.memory.schema import (
    Decoding,
    Message,
    Source,
    Stage,
    Status,
)
from tests.support.policies import FixedSearch, new_run
from tests.support.slots import (
    Filling,
    Library,
    Meanings,
    SmallModel,
    answer_of,
    forced,
    page,
    walk,
)
from tests.support.values import source


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
    found = Inquiry(question).default_in(source)
    assert told in found and bool(told) == bool(found)
    if told:
        search = FixedSearch([page(source.title, ENTRIES)])
        run = await forced(tmp_path, Filling(plan=f" {question}"), search, question)
        assert told in answer_of(run)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("how many turns does numpy.sorts take if I don't tell it", "Defaults to 7."),
        (
            "How many turns are gone through when I only give numpy.sorts an array?",
            "Defaults to 7.",
        ),
        ("How many turns does numpy.sorts make without setting them?", "Defaults to 7."),
        ("What kind does numpy.sorts take by itself?", "Default is 'introselect'"),
        ("How many turns can numpy.sorts make at most?", ""),
        ("What happens if I set the turns of numpy.sorts to 3?", ""),
    ],
)
def test_a_default_is_asked_for_in_a_persons_words(asked: str, told: str):
    source = Source(
        id="S1", query="q", title="numpy.sorts", location="c", text=ENTRIES, tool="search"
    )
    found = Inquiry(asked).default_in(source)
    assert told in found and bool(told) == bool(found)


def test_an_amount_is_the_one_default_that_is_a_number():
    head = "functools.lru_cache(maxsize=128, typed=False)"
    text = f"{head}\n\nLeast-recently-used cache decorator."
    source = Source(
        id="S1", query="q", title="functools.lru_cache", location="c", text=text, tool="python"
    )
    amount = Inquiry("What's the default number of entries lru_cache keeps?")
    assert amount.default_in(source) == head
    assert Inquiry("What is the default of lru_cache?").default_in(source) == ""
    several = source.model_copy(update={"text": text.replace("False", "2")})
    assert amount.default_in(several) == ""


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("How many samples does numpy.spread return if I don't say how many?", "num : int"),
        ("How many stops does numpy.spread return if I don't say how many?", ""),
        ("How many samples can numpy.spread return?", ""),
    ],
)
def test_an_amount_is_read_off_the_entry_of_the_number_of_what_is_counted(asked: str, told: str):
    text = (
        "num : int, optional\n    Number of samples to make. Default is 50.\n"
        "axis : int, optional\n    Where the samples stand, by default 0."
    )
    source = Source(
        id="S1", query="q", title="numpy.spread", location="c", text=text, tool="python"
    )
    found = Inquiry(asked).default_in(source)
    assert found.startswith(told) and bool(told) == bool(found)


def test_what_a_draft_rests_on_is_no_signature_where_a_sentence_tells_more():
    head = "tree.copy(source, target, symlinks=False, links_exist_ok=False, *, ignore=None)"
    told = "If links_exist_ok is false and the target is there, an error is raised."
    source = Source(id="S1", query="q", title="tree.copy", location="c", text=head, tool="python")
    drafted = "Call it with links_exist_ok set to True and symlinks to False."
    inquiry = Inquiry("How is it copied twice?")
    assert inquiry.basis([(source, head), (source, told)], drafted) == (source, told)
    assert inquiry.basis([(source, head)], drafted) == (source, head)


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
    found = Inquiry(question).default_in(source)
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
        ("git-push(1)", "Forces it.", "git-push(1): Forces it."),
        ("git-push(1)", "Use git push for it.", "Use git push for it."),
        ("apt-mark.8", "hold marks a package.", "apt-mark.8: hold marks a package."),
        ("apt-mark.8", "By apt-mark hold.", "By apt-mark hold."),
        ("The U.S. of A.", "It is a land.", "It is a land."),
        ("VACUUM", "It shrinks the file.", "VACUUM: It shrinks the file."),
        ("EXPLAIN QUERY PLAN", "See EXPLAIN QUERY PLAN.", "See EXPLAIN QUERY PLAN."),
    ],
)
def test_a_sentence_of_an_objects_page_names_the_object(title: str, said: str, told: str):
    source = Source(id="S1", query="q", title=title, location="c", text=said, tool="search")
    assert with_subject(said, source) == told


LISTED = (
    "Each value has one of the following\nstorage classes:\n\nNULL. The value is a NULL value.\n\n"
    "INTEGER. The value is a signed integer.\n\nBLOB. The value is a blob of data, as it was."
)


@pytest.mark.parametrize(
    ("said", "text", "told"),
    [
        ("Each value has one of the following storage classes: NULL.", LISTED,
         "Each value has one of the following storage classes: NULL, INTEGER, BLOB"),
        ("Each value has one of the following storage classes: NULL.", LISTED.partition("INT")[0],
         "Each value has one of the following storage classes: NULL."),
        ("The value is a blob: of data.", LISTED, "The value is a blob: of data."),
    ],
)  # fmt: skip
def test_a_sentence_that_leads_to_a_list_is_quoted_with_its_items(said: str, text: str, told: str):
    assert whole_list(said, text) == told


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("How do I undo it?", True),
        ("I want to keep results. Which decorator does that?", True),
        ("torch: which context manager turns it off?", True),
        ("What happens when it ends?", False),
        ("What is the default of maxsize?", False),
    ],
)
def test_what_a_page_says_first_is_asked_about_where_a_thing_is_asked_for(
    question: str, asks: bool
):
    lead = "functools.lru_cache(maxsize=128)\n\nLeast-recently-used cache decorator."
    source = Source(
        id="S1", query="q", title="functools.lru_cache", location="c", text=lead, tool="python"
    )
    told = " ".join(Inquiry(question).summary(source).split())
    assert told == (" ".join(lead.split()) if asks else "")
    other = source.model_copy(update={"text": "Arguments must be hashable."})
    assert Inquiry(question).summary(other) == ""


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
    assert list(quotable_sentences(text)) == told


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
            "each of the rows is from. Any other name that the column should have is given in its "
            "place. Of a row in the first",
        ),
        (
            "A table with all of the rows that can undo what was done before.",
            "tables.merge: Returns ------- A table with all of the rows",
        ),
    ],
    ids=["in an entry", "behind the entries"],
)
async def test_a_sentence_of_an_entry_is_quoted_with_the_whole_of_it(
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


BRANCH = """Lists branches.

-d
--delete
    Delete a branch. It must be fully merged in its upstream branch.

    Of several each is deleted.

-D
    Shortcut for --delete --force.

clean (and the tidy alias)
    Forget what was deleted:

    > git branch clean"""
CALLED = """tables.count(of, dropna=True)

Parameters
----------
of, by : str, optional
    What is counted.
dropna : bool, default True
    Don't include counts of NaN.

Returns
-------
int
    How many there are."""
ARGUED = """Args:
    seconds (float): How long it waits
        for a reply.
    twice (bool): Whether it asks again."""
SET = """:param text: What is asked.
:param again: Ask a second time, so that
    both can be compared.

* **verify** - *(optional)* `False` asks nothing
of the server.
* **cert** - A path."""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (BRANCH, {
            "--delete -d": "-d --delete Delete a branch. It must be fully merged in its upstream "
            "branch. Of several each is deleted.",
            "-D": "-D Shortcut for --delete --force.",
            "clean": "clean (and the tidy alias) Forget what was deleted: > git branch clean",
        }),
        (CALLED, {
            "by of": "of, by : str, optional What is counted.",
            "dropna": "dropna : bool, default True Don't include counts of NaN.",
            "int": "int How many there are.",
        }),
        (ARGUED, {
            "seconds": "seconds (float): How long it waits for a reply.",
            "twice": "twice (bool): Whether it asks again.",
        }),
        (SET, {
            "text": ":param text: What is asked.",
            "again": ":param again: Ask a second time, so that both can be compared.",
            "verify": "* **verify** - *(optional)* `False` asks nothing of the server.",
            "cert": "* **cert** - A path.",
        }),
        ("Run this:\n\n    $ make\n\nIt ends.\n>>> f(\n...    1)\n-- SELECT a, b\n--   FROM c", {}),
    ],
    ids=["manual", "numpydoc", "google", "fields", "code"],
)  # fmt: skip
def test_an_entry_is_what_stands_below_or_beside_its_terms(text: str, found: dict[str, str]):
    told = {" ".join(sorted(e.names)): " ".join(e.text.split()) for e in entries(text) if e.names}
    assert told == found


@pytest.mark.parametrize(
    ("title", "text", "question", "told"),
    [
        ("git-branch(1)", BRANCH, "What does git branch -d do?", ["-d"]),
        ("git-branch(1)", BRANCH, "git branch -d or git branch -D?", ["-d", "-D"]),
        ("git-branch(1)", BRANCH, "How is git branch clean?", ["clean"]),
        ("git-branch(1)", BRANCH, "What does git tag -d do?", []),
        ("Branches", BRANCH, "What does git tag -d do?", ["-d"]),
        ("Branches", BRANCH, "Is it clean?", []),
        ("tables.count", CALLED, "How many of them, by dropna?", []),
        ("tables.count", CALLED, "How many? Set `dropna` to False.", ["dropna"]),
        ("tables.count", CALLED, "What does it count with dropna=False?", ["dropna"]),
    ],
)
def test_an_entry_is_named_by_its_option_or_as_it_is_typed(
    title: str, text: str, question: str, told: list[str]
):
    source = Source(id="S1", query="q", title=title, location="c", text=text, tool="search")
    assert [e.text.split()[0] for e in entries_named(source, question)] == told


def test_a_long_entry_is_told_up_to_a_sentence():
    said = [f"It says {number} in just these {'many ' * 20}words." for number in range(9)]
    [entry] = entries("--long\n    " + "\n    ".join(said))
    assert entry.told == " ".join(["--long", *said[:3]])


def test_a_sentence_of_an_entry_has_its_neighbours_there():
    said = "dropna : bool, default True Don't include counts of NaN."
    assert with_neighbours(said, CALLED) == said
    assert [*quotable_sentences(CALLED)][-1].startswith("Returns"), "no part of the last parameter"


def test_a_later_sentence_of_an_entry_is_told_with_its_option():
    said = [f"It says {number} in just these {'many ' * 20}words." for number in range(4)]
    text = "\n".join(["--long N", "-l N", *(f"    {each}" for each in said)])
    assert with_neighbours(f"--long N -l N {said[0]}", text).startswith("--long N -l N It says 0")
    assert with_neighbours(said[2], text) == " ".join(["--long N -l N ...", *said[2:]])


def test_no_signature_is_told_beside_a_sentence():
    said = "It copies a whole tree of folders into another place."
    head = "tree.copy(source, target, links=False, links_exist=False, *, depth=9, ignore=None, n=1)"
    assert with_neighbours(said, f"{head}\n\n{said}") == said
    assert with_neighbours(head, f"{head}\n\n{said}") == f"{head} {said}"


def test_a_sentence_is_told_with_its_neighbours_of_sixty_words():
    text = "\n\n".join(
        f"{name} is a sentence of just twenty words{' or so' * 6}." for name in "abcde"
    )
    told = [" ".join(each.split()) for each in quotable_sentences(text)]
    for at, (first, last) in enumerate([(0, 2), (1, 3), (2, 4), (2, 4), (2, 4)]):
        assert with_neighbours(told[at], text) == " ".join(told[first : last + 1]), "what is next"
    long = f"It has {'ever more words and ' * 20}no end. It is short, and says nothing more of it."
    assert with_neighbours(next(quotable_sentences(long)), long) == next(quotable_sentences(long))


def test_what_is_shown_says_no_more_whatever_numbers_it_has():
    said = ">>> index.value_counts() gives 3.0 and 2.0, where nothing else was counted at all"
    counted = Inquiry("How is it counted?")
    assert counted.says_more(said, "Nothing else is shown.")
    assert not counted.says_more(said, f"Not certain: {neutralise(said)}.")


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


MANUAL = """git-push(1)
    git push [-f | --force] <remote> :<branch> deletes what is remote, `git remote` lists it.
-d, --delete
    All of the branches are deleted. -v is of git remote add, see `--dry-run`.
"""


@pytest.mark.parametrize(
    ("claim", "made_up"),
    [
        ("Run `git push origin --delete old`.", False),
        ("Run git-push with -f.", False),
        ("Run `git push -fd`.", False),
        ("Run `git remote add`.", False),
        ("Run `git remote deletes`.", True),
        ("Run `git add`.", True),
        ("Run `git push --remove`.", True),
        ("Run `git push -fx`.", True),
        ("It is well-known that git remote deletes.", False),
    ],
)
def test_a_command_of_words_and_options_that_stand_apart_is_made_up(claim: str, made_up: bool):
    assert is_made_up(claim, MANUAL) is made_up


def test_of_named_libraries_alone_entries_are_quoted():
    ours, other = source(1, "Text.", "numpy.isclose"), source(2, "Text.", "cmath.isclose")
    manual = source(3, "Text.", "git-log(1)")
    all_of_them = [ours, other, manual]
    named = Inquiry("Is numpy's isclose true of two NaN?")
    assert named.of_named_libraries(all_of_them) == [ours, manual]
    unnamed = Inquiry("Is isclose true of two NaN?")
    assert unnamed.of_named_libraries(all_of_them) == all_of_them


def test_texts_share_the_rare_words_of_a_question_more_than_frequent_ones():
    texts = ["Undo the commit.", "Undo the branch.", "Undo nothing.", "Keep the files."]
    shared = Inquiry("How do I undo a commit?", "keep").shares_of(texts)
    assert shared[0] > shared[1] == shared[2] > 0
    assert 0 < shared[3] < Inquiry("Undo a commit, and keep it?").shares_of(texts)[3], (
        "expected alone"
    )
    assert Inquiry("What is it?").shares_of(["Undo it."]) == [0.0]


def test_excerpts_hold_so_many_words_and_stand_as_in_their_source():
    one = source(1, "First come five words here. Then there are five more.", "One")
    two = source(2, "Others have six words, as here.", "Two")
    told = [(one, "Then there are five more."), (two, two.text),
            (one, "First come five words here."), (one, "come five words")]  # fmt: skip
    whole = [(one, ["First come five words here.", "Then there are five more."]),
             (two, [two.text])]  # fmt: skip
    assert list(excerpts(told, 50)) == [whole]
    first, second = excerpts(told[:3], 11)
    assert first == [(one, ["Then there are five more."]), (two, [two.text])]
    assert second == [(one, ["First come five words here."])]
    assert [len(batch) for batch in excerpts(told[:3], 1)] == [1, 1, 1], "one at least"


def test_an_entry_is_read_whole_unless_it_is_long():
    said = "Take back what was done last and keep everything that was changed in the files."
    entry = f"-s\n    {said}\n    It is kept for a month, under another name."
    assert piece_around(f"-s {said}", f"{entry}\n\nNothing else.") == " ".join(entry.split())
    long = f"-s\n    {said}\n    " + "It is kept for a month, under another name of its own. " * 20
    piece = piece_around(next(quotable_sentences(long)), f"{long}\n\nNothing else.")
    assert piece.startswith("-s Take back") and len(piece.split()) <= 60
