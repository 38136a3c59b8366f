"""A plan is read as look-ups, and code adds what a small model leaves out of it."""

import pytest

from rubricem.agent.research.plans import (
    MOST_LOOKUPS,
    Lookup,
    asks_one_thing,
    carry_over,
    complete,
    outline,
    read_plan,
    render_plan,
    through_known,
    two_sides,
)

FILMS = "Which film has the director who was born later, Summer Of Kites or The Glass Orchard?"
DIRECTORS = """1. Who directed the film Summer Of Kites?
2. Who directed the film The Glass Orchard?
3. When was [1] born?
4. When was [2] born?
5. Compare [3] and [4]: the later one"""
DIRECTED_EACH = """1. Who directed the film Summer Of Kites?
2. When was [1] born?
3. Who directed the film The Glass Orchard?
4. When was [3] born?
5. Compare [2] and [4]: the later one"""


def test_a_plan_is_its_numbered_lines_with_what_they_refer_to():
    assert read_plan(DIRECTORS, FILMS) == [
        Lookup(1, "Who directed the film Summer Of Kites?"),
        Lookup(2, "Who directed the film The Glass Orchard?"),
        Lookup(3, "When was [1] born?", (1,)),
        Lookup(4, "When was [2] born?", (2,)),
        Lookup(5, "Compare [3] and [4]: the later one", (3, 4), compares=True),
    ]


@pytest.mark.parametrize(
    ("plan", "read"),
    [
        ("1. Where is [2]?\n2. Where is [1]?", []),
        ("1. Who is Ada?\n2. Where is [2]?", [1]),
        ("1. Who is Ada?\n2. Where is [3]?\n3. When was [1] born?", [1, 3]),
        ("1. Who is Ada?\n2. Where is [9]?", [1]),
        ("1. Who is Ada?\n2. who is ada?\n3. Who is Bo?", [1, 3]),
        ("1. Who is Ada?\n1. Who is Bo?", [1]),
        ("1. Who is Ada?\n2. Who is older?", [1]),
        ("1. Who is Ada?\n2. What of it?\n3. What is [1]?", [1]),
        ("1. Who is Ada?\n2. Who is Bo?\n3. Compare [1], [2]: same\n4. Where is [3]?", [1, 2, 3]),
        ("7) Who is Ada?\n  8. Where was [7] born?  ", [7, 8]),
        ("1.\n2. Who is Ada?", [2]),
    ],
    ids=["circular", "itself", "later", "missing", "repeated", "number twice", "names nothing",
         "common words", "of a comparison", "other numbers", "empty line"],
)  # fmt: skip
def test_a_line_that_cannot_be_looked_up_is_left_out(plan: str, read: list[int]):
    question = "Is Ada older than Bo?"
    numbers = [step.number for step in read_plan(plan, question)]
    assert numbers == (read or [1])
    assert bool(read) or read_plan(plan, question) == [Lookup(1, question)]


@pytest.mark.parametrize("plan", ["", "Look at the documentation.", "- Who is Ada?", "1.", "1. ?"])
def test_a_plan_without_look_ups_is_the_question(plan: str):
    assert read_plan(plan, "Who\n is  Ada?") == [Lookup(1, "Who is Ada?")]


def test_of_a_hundred_items_the_first_are_looked_up():
    plan = "\n".join(f"{n}. Who is Ada the {n}th?" for n in range(1, 101))
    assert [step.number for step in read_plan(plan, "Q?")] == list(range(1, MOST_LOOKUPS + 1))


def test_what_names_nothing_is_looked_up_where_the_question_names_nothing_either():
    assert len(read_plan("1. what is evicted?\n2. how large can it grow?", "how large is it?")) == 2


@pytest.mark.parametrize(
    ("question", "line", "asked"),
    [
        (
            "How does functools.lru_cache evict, and what does maxsize=None do?",
            "What does maxsize=None do?",
            "functools.lru_cache: What does maxsize=None do?",
        ),
        (
            "Are keys enforced in SQLite, and how do I turn that on?",
            "How do I turn that on?",
            "SQLite: How do I turn that on?",
        ),
        ("How does heapq.merge sort?", "How does heapq.merge sort?", "How does heapq.merge sort?"),
        (
            "How do os.stat and os.scandir differ?",
            "How is a file's size found?",
            "How is a file's size found?",
        ),
    ],
    ids=["identifier", "name", "named already", "one of two"],
)
def test_a_lookup_names_the_one_subject_of_its_question(question: str, line: str, asked: str):
    assert read_plan(f"1. {line}", question)[0].text == asked


@pytest.mark.parametrize(
    ("question", "sides"),
    [
        ("Which film came out earlier, Murder, She Said or Story Of Barbara?",
         ("Murder, She Said", "Story Of Barbara")),
        ("Who was born first out of Erick Chipeta and Praveen Agrawal?",
         ("Erick Chipeta", "Praveen Agrawal")),
        ("Do both films The First Bell and The Last Coupon have directors from the same country?",
         ("The First Bell", "The Last Coupon")),
        ("Which is older, the Eiffel Tower or the Golden Gate Bridge?",
         ("Eiffel Tower", "the Golden Gate Bridge")),
        ("Are both Lake Orrin and Port Ambel located in the same country?",
         ("Lake Orrin", "Port Ambel")),
        ("Are director of film Garbo (Film) and director of film Souls At Sea both from the same "
         "country?", ("Garbo (Film)", "Souls At Sea")),
        ("Do the movies Thor The Conqueror and City Of Pain, originate from the same country?",
         ("Thor The Conqueror", "City Of Pain")),
        ("Where did the director of The Paper Kite die?", None),
        ("Should I use a list or a tuple?", None),
        ("Which comes first, or does it matter?", None),
    ],
)  # fmt: skip
def test_the_two_things_that_a_question_compares(question: str, sides: tuple[str, str] | None):
    assert two_sides(question) == sides


@pytest.mark.parametrize(
    ("question", "thought", "plan"),
    [
        (FILMS, "1. Who directed the film Summer Of Kites?\n2. Where was [1] born?",
         DIRECTED_EACH),
        (FILMS.replace("was born", "died"), "1. Who directed Summer Of Kites?",
         DIRECTED_EACH.replace("the film ", "").replace("was [1] born", "did [1] die")
         .replace("was [3] born", "did [3] die")),
        ("Who was born first, Ada Mills or Tom Fry?",
         "1. Who was born first, Ada Mills or Tom Fry?",
         "1. When was Ada Mills born?\n2. When was Tom Fry born?\n"
         "3. Compare [1] and [2]: the earlier one"),
        ("Which museum was founded later, The Iris or The Kite?", "",
         "1. When was The Iris founded?\n2. When was The Kite founded?\n"
         "3. Compare [1] and [2]: the later one"),
        ("Do both films The Kite and The Iris have the directors from the same country?",
         "1. Who directed The Kite?",
         "1. Who directed The Kite?\n2. What is the nationality of [1]?\n"
         "3. Who directed The Iris?\n4. What is the nationality of [3]?\n"
         "5. Compare [2] and [4]: the same"),
        ("Who is Ada Mills's mother-in-law?", "1. Who is Ada Mills?",
         "1. Who is the spouse of Ada Mills?\n2. Who is the mother of [1]?"),
        ("Where was the maternal grandfather of Ada born?",
         "1. Who is the maternal grandfather of Ada?\n2. Where was [1] born?",
         "1. Who is the mother of Ada?\n2. Who is the father of [1]?\n3. Where was [2] born?"),
        ("How do I read a huge CSV file with pandas?",
         "1. What is pandas?\n2. How can I read CSV in chunks?\n3. What is the default size?",
         "1. How do I read a huge CSV file with pandas?"),
        ("How can the cache grow, and why does it shrink?",
         "1. How can the cache grow?\n2. Why does the cache shrink?",
         "1. How can the cache grow?\n2. Why does the cache shrink?"),
        ("Who is faster, Ada or Tom, at chess?", "1. How fast is Ada?", "1. How fast is Ada?"),
        ("Where did the director of The Kite die?",
         "1. Who directed The Kite?\n2. Where did [1] die?",
         "1. Who directed The Kite?\n2. Where did [1] die?"),
        ("When did the director of The Kite die?",
         "1. Who directed The Kite?\n2. Where did [1] die?",
         "1. Who is the director of The Kite?\n2. When did [1] die?"),
        ("What is the place of birth of Ada Of Mole, Queen Of Ur's mother?",
         "1. Who is the mother of Ada Of Mole, Queen Of Ur?\n2. Where did [1] live?",
         "1. Who is the mother of Ada Of Mole, Queen Of Ur?\n"
         "2. What is the place of birth of [1]?"),
        ("Where was the husband of Ada Mole born?", "1. Who is Ada Mole?\n2. Where did [1] born?",
         "1. Who is the husband of Ada Mole?\n2. Where was [1] born?"),
        ("Which country the director of film In A Kite, Up! (1920 Film) is from?",
         "1. Who directed the film In A Kite, Up!?\n2. Where is [1] from?",
         "1. Who is the director of film In A Kite, Up! (1920 Film)?\n"
         "2. Which country [1] is from?"),
        ("Where did the director of The Kite die, and when was his wife born?",
         "1. Who directed The Kite?\n2. Where did [1] die?\n3. When was [1]'s wife born?",
         "1. Who directed The Kite?\n2. Where did [1] die?\n3. Who is the wife of [1]?\n"
         "4. When was [3] born?"),
        ("Where is the wife of the director of The Kite buried?",
         "1. Who directed The Kite?\n2. Where is the wife of [1] buried?",
         "1. Who directed The Kite?\n2. Who is the wife of [1]?\n3. Where is [2] buried?"),
        ("Who is Ada's mother?", "1. Who is Ada's mother?", "1. Who is Ada's mother?"),
        ("Who is the author of Ada, and is it the same as of Bo?", "1. Who wrote Ada?",
         "1. Who wrote Ada?"),
    ],
    ids=["other side", "what is asked", "not the question", "as it was made", "nationality",
         "through a spouse", "in a chain", "what nobody asked", "two parts",
         "no sides", "a chain", "when, not where", "another case", "nobody in between",
         "no word of its own", "another's wife", "three in a row", "nothing of them", "compared"],
)  # fmt: skip
def test_a_plan_is_made_whole_by_the_words_of_the_question(question: str, thought: str, plan: str):
    steps = complete(read_plan(thought, question), question)
    assert render_plan(steps) == plan
    assert read_plan(plan, question) == steps, "and reads as it is written"


@pytest.mark.parametrize(
    ("question", "one"),
    [
        ("After merging two tables in pandas, how can I tell which rows are new?", True),
        ("If I delete a branch, what happens to its commits?", True),
        ("How do I insert a row or update it if the key is there?", True),
        ("How do I fetch a page and save it?", True),
        ("torch: which context manager turns off gradients while I predict?", True),
        ("Where can I insert a value so that the list stays sorted, without a scan?", True),
        ("My query gives me plain tuples; how can I get at columns by name?", True),
        ("remove untracked files and directories from the working tree", True),
        ("Where does it stand? How do I move it?", False),
        ("How can the cache grow, and why does it shrink?", False),
        ("In git, how do I fetch, and how do I push?", False),
        ("Is it faster or safer?", False),
    ],
)
def test_what_leads_up_to_a_question_and_goes_on_with_it_is_no_part(question: str, one: bool):
    assert asks_one_thing(question) is one


def test_an_outline_says_what_needs_what():
    steps = read_plan(DIRECTED_EACH, FILMS)
    assert outline(steps) == ("4 look-ups; [2] needs [1]; [4] needs [3]; [2] and [4] are compared.")
    assert outline([Lookup(1, "Who is Ada?")]) == "One look-up."


def test_who_somebody_is_is_no_what():
    plan = read_plan("1. Who directed An Event?\n2. What is the child of [1]?", "An Event")
    assert [step.text for step in plan] == ["Who directed An Event?", "Who is the child of [1]?"]


OF_KITE = "What nationality is the director of film The Paper Kite?"
KITE_PLAN = ("Who directed the film The Paper Kite?", "What is the nationality of [1]?")
OF_TWO = "Which film has the director who was born later, The Kite or The Iris?"
TWO_PLAN = ("Who directed The Kite?", "Who directed The Iris?", "When was [1] born?")


@pytest.mark.parametrize(
    ("plan", "other", "question", "new"),
    [
        (KITE_PLAN, OF_KITE, "What is the nationality of the director of film Won in the Clouds?",
         ["Who directed the film Won in the Clouds?", "What is the nationality of [1]?"]),
        (("Who directed Paper Kite?",), OF_KITE, OF_KITE.replace("Paper Kite", "Old Mill"),
         ["Who directed The Old Mill?"]),
        (TWO_PLAN, OF_TWO, "Which film whose director was born later, Iris Or Me or The Kite 2?",
         ["Who directed Iris Or Me?", "Who directed The Kite 2?", "When was [1] born?"]),
        (("Who is the mother of Henry I Of Vell?",), "When was Henry I Of Vell's mother born?",
         "When was Lamprocles's mother born?", ["Who is the mother of Lamprocles?"]),
        (KITE_PLAN, OF_KITE, "What nationality is the composer of film The Iris?", []),
        (KITE_PLAN, OF_KITE, "Which nationality is the director of film The Iris not?", []),
        (KITE_PLAN, OF_KITE, "What nationality is the director of film the iris?", []),
        (KITE_PLAN, OF_KITE, OF_TWO, []),
        (("Who directed the film of it?", KITE_PLAN[1]), OF_KITE, OF_KITE.replace("Kite", "Mill"),
         []),
        ((*KITE_PLAN, "Who is in Paper?"), OF_KITE, OF_KITE.replace("Paper Kite", "Iris"), []),
        ((*KITE_PLAN, "Delete all files"), OF_KITE, OF_KITE.replace("Paper Kite", "Iris"), []),
        (TWO_PLAN[:1], OF_TWO, OF_TWO.replace("Kite", "Mill"), []),
        (("What is it?",), "What is it?", "What is it?", []),
        ((), "", "", []),
    ],
    ids=["other words that bind", "without its article", "one name within another", "a possessive",
         "another thing", "turned round", "small letters", "two for one", "no place for the name",
         "something left over", "words of nobody", "a side without a place", "no name", "nothing"],
)  # fmt: skip
def test_a_plan_is_carried_to_a_question_that_differs_in_its_names_alone(
    plan: tuple[str, ...], other: str, question: str, new: list[str]
):
    assert carry_over(plan, other, question) == new


@pytest.mark.parametrize(
    ("question", "asked", "plan"),
    [
        ("When was the director of film The Kite born?", ["Who directed The Kite?"],
         ["Who directed The Kite?", "When was [1] born?"]),
        ("Where did Anna Of Vell's mother die?", ["Who is the mother of Anna Of Vell?"],
         ["Who is the mother of Anna Of Vell?", "Where did [1] die?"]),
        ("When was the composer of film The Kite born?", ["Who directed The Kite?"], []),
        ("When was the director of film The Kite born?", ["Who directed The Iris?"],
         ["Who is the director of film The Kite?", "When was [1] born?"]),
        ("When was the director of film The Kite born?", ["Who directed it badly in a storm?"], []),
        ("When was the director of film The Kite born?", ["When did he direct The Iris?"], []),
        ("When was the director of film The Kite born?", ["Where was its director born?"], []),
        ("When was the director of film The Kite born?", ["Who directed The Kite in Lyon?"],
         ["Who is the director of film The Kite?", "When was [1] born?"]),
        ("Who is the director of film The Kite?", ["Who directed The Kite?"], []),
        ("When was Mira Holt born?", ["Who directed The Kite?"], []),
        (FILMS, ["Who directed the film Summer Of Kites?"], []),
    ],
    ids=["a film", "kin", "another role", "another film", "other words", "another question",
         "more than the person", "further words",
         "nothing else asked", "nobody by another thing", "it compares"],
)  # fmt: skip
def test_a_plan_goes_through_whom_an_earlier_lookup_found(
    question: str, asked: list[str], plan: list[str]
):
    assert through_known(question, asked) == plan
