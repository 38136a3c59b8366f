"""A plan is read as look-ups, and what was found is put into them, offered and compared by code."""

import pytest

from rubricem.agent.research.candidates import (
    MOST_CANDIDATES,
    Asked,
    asks_for,
    candidates,
    expects_words,
    extract_answers,
    may_tell,
    moment,
    names_stand,
    own_pages,
    speaks_of,
)
from rubricem.agent.research.lookups import Finding, Lookups
from rubricem.agent.research.plans import Lookup, complete, read_plan, render_plan
from rubricem.agent.transcript.words import names
from rubricem.memory.schema import Source

FILMS = "Which film has the director who was born later, Summer Of Kites or The Glass Orchard?"
DIRECTORS = """1. Who directed the film Summer Of Kites?
2. Who directed the film The Glass Orchard?
3. When was [1] born?
4. When was [2] born?
5. Compare [3] and [4]: the later one"""


def begun(plan: str, question: str = "", **found: str) -> Lookups:
    """The look-ups of a plan, with what was found: `_1="Ada"`."""
    lookups = Lookups()
    lookups.begin(read_plan(plan, question))
    lookups.found = {int(n[1:]): Finding(text, f"S{n[1:]}") for n, text in found.items()}
    return lookups


def test_what_was_found_stands_in_the_place_of_its_reference():
    lookups = begun(DIRECTORS, FILMS, _1="Ada [2] Bergstrom")
    assert lookups.resolve(lookups.step(3)) == "When was Ada [2] Bergstrom born?"
    assert lookups.resolve(lookups.step(4)) is None


@pytest.mark.parametrize(
    ("question", "expects"),
    [
        ("How do I tell a Hugging Face tokenizer to cut off long texts?", True),
        ("With Apache Spark, how can I read a file?", True),
        ("How do ships turn?", True),
        ("How did Ada Bergstrom make her films?", False),
        ("How do Summer Of Kites and The Glass Orchard end?", False),
    ],
)
def test_words_of_a_manual_are_expected_where_nobody_is_asked_about(question: str, expects: bool):
    assert expects_words(question) is expects


def test_words_that_only_look_like_a_reference_stay():
    lookups = begun("", "What does items[0] of a deque cost?")
    assert lookups.resolve(lookups.step(1)) == "What does items[0] of a deque cost?"
    lookups.add("Says what items[7] costs")
    assert lookups.resolve(lookups.step(2)) == "what items[7] costs"


def test_the_next_look_up_is_the_first_that_is_known_enough_and_was_not_searched():
    lookups = begun(DIRECTORS, FILMS)
    assert lookups.at == 1
    assert lookups.next() == lookups.step(1)
    lookups.queries[1] = ["q"]
    assert lookups.next() == lookups.step(2)
    lookups.found[1] = Finding("Ada", "S1")
    lookups.queries[2] = ["q"]
    assert lookups.next() == lookups.step(3)
    lookups.queries[3] = ["q"]
    assert lookups.next() is None, "[2] was not found, so nothing can be asked of it"


def test_open_is_what_was_not_found_and_a_comparison_is_not_searched():
    lookups = begun(DIRECTORS, FILMS, _1="Ada", _3="1900")
    assert [step.number for step in lookups.open()] == [2, 4]


def test_the_root_is_where_a_chain_begins():
    lookups = begun("1. Who is Ada?\n2. Who wed [1]?\n3. Where did [2] die?", "Who is Ada?")
    assert [lookups.root(step).number for step in lookups.steps] == [1, 1, 1]


@pytest.mark.parametrize("verb", ["Says ", "names ", "Gives ", "Tells ", "States ", ""])
def test_an_item_of_the_rubric_is_looked_up_last_and_without_its_verb(verb: str):
    lookups = begun(DIRECTORS, FILMS)
    assert lookups.add(f"{verb}where Ada died") == "where Ada died"
    assert (lookups.at, lookups.steps[-1]) == (6, Lookup(6, "where Ada died", planned=False))


def test_a_source_is_shown_for_a_look_up_once():
    lookups = begun(DIRECTORS, FILMS)
    lookups.show(["S1", "S2"])
    lookups.show(["S2", "S3"])
    assert lookups.shown == ("S3",)
    lookups.at = 2
    lookups.show(["S1"])
    assert lookups.shown == ("S1",)


def test_a_plan_that_is_begun_anew_knows_nothing():
    lookups = begun(DIRECTORS, FILMS, _1="Ada")
    lookups.queries[1] = ["q"]
    lookups.show(["S1"])
    lookups.begin(read_plan("3. Who is Ada?", "Who is Ada?"))
    assert (lookups.at, lookups.found, lookups.queries, lookups.read) == (3, {}, {}, {})


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("When was [1] born?", "date"),
        ("In what year did it open?", "date"),
        ("What is the date of death of Ada?", "date"),
        ("Where did Ada die?", "place"),
        ("From where is Ada?", "place"),
        ("In which country is Lake Orrin?", "place"),
        ("What is the birth place of Ada?", "place"),
        ("Who directed it?", "name"),
        ("By whom was it made?", "name"),
        ("Whose film is it?", "name"),
        ("What nationality is [1]?", "name"),
        ("What is the name of it?", "name"),
        ("How is the log file moved?", "words"),
        ("What does it do?", "words"),
        ("Which code is returned when another process writes?", "words"),
        ("When is the lock given back?", "words"),
        ("Where do I put my own files?", "words"),
        ("Is Ada a person who sings?", "words"),
        ("", "words"),
    ],
)
def test_the_question_word_says_what_is_asked_for(question: str, asked: Asked):
    assert asks_for(question) == asked


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The film of Ada Bergstrom was long.", ["Ada Bergstrom"]),
        ("Duke Aldwin of Marrow and the sea", ["Duke Aldwin of Marrow"]),
        ("Ludwig van der Aa, Tom Reyes", ["Ludwig van der Aa", "Tom Reyes"]),
        ("Who is older?", []),
        ("J. R. Reyes left!", ["J. R. Reyes"]),
        ("He met Bertha. Tom left!", ["Bertha", "Tom"]),
        ("Ada\nBergstrom", ["Ada Bergstrom"]),
        ("Alumni\n\nAda Bergstrom", ["Alumni", "Ada Bergstrom"]),
        ("nothing at all", []),
        ("", []),
    ],
)
def test_names_are_runs_of_capitalised_words(text: str, found: list[str]):
    assert names(text) == found


BIRTH = "Ada Bergstrom (4 May 1894 in Visby - 2 June 1967) was a director from Turin, Italy."


@pytest.mark.parametrize(
    ("text", "asked", "question", "found"),
    [
        (BIRTH, "date", "When was Ada born?", ["4 May 1894", "2 June 1967"]),
        ("Made in the 1990s, c. 1500 and May 2001.", "date", "When?",
         ["1990s", "c. 1500", "May 2001"]),
        ("In 1931 it opened.", "date", "When in 1931 did it open?", []),
        ("It is by Ada Bergstrom.", "name", "Who is Ada Bergstrom?", []),
        ("Ada Bergstrom and Tom Reyes.", "name", "Who wed Ada Bergstrom?", ["Tom Reyes"]),
        ("The Ada Bergstrom Fund.", "name", "Who is Ada Bergstrom?", []),
        ("He died in Turin, Italy.", "place", "Where?", ["Turin", "Italy", "Turin, Italy"]),
        ("With Tom Reyes, Bo Aa.", "name", "Who?", ["Tom Reyes", "Bo Aa"]),
        ("Tom Reyes, Duke of Marrow.", "name", "Who?",
         ["Tom Reyes", "Duke of Marrow", "Tom Reyes, Duke of Marrow"]),
        ("On 4 May he met Tom. May 1900", "name", "Who?", ["Tom"]),
        ("nothing of use", "name", "Who?", []),
        ("", "date", "When?", []),
    ],
)  # fmt: skip
def test_candidates_are_what_of_a_passage_can_answer(
    text: str, asked: Asked, question: str, found: list[str]
):
    offered = candidates(text, asked, question)
    assert [one for one in found if one not in offered] == []
    if asked == "date" or not found:
        assert offered == found


@pytest.mark.parametrize(
    ("question", "text", "said"),
    [
        ("Who directed The Kite?", "The Kite is a film by Bo Aa, directed by Mira Holt.",
         ["Mira Holt"]),
        ("Who is the director of The Kite?", "A German film. The director is Abel Quist.",
         ["Abel Quist"]),
        ("Who wrote The Kite?", "It has songs of Jo Ek, and stars Tom Reyes.", []),
        ("Who is the father of Ron Mac Rory?",
         "Ron was a Scottish magnate. Ron's father, Rory Mac Rory, died.", ["Rory Mac Rory"]),
        ("Who is the father of Ann Bee?", "Ann Bee was the father of Carl Bee.", []),
        ("Who is the father of Ann Bee?", "Carl Bee, father of Ann Bee. Dan Dee, son of Ed Dee.",
         ["Carl Bee"]),
        ("Who is the mother of Otto II?", "He was the son of Otto the Great and Adelaide of Italy.",
         ["Adelaide of Italy"]),
        ("Who is the father of Eve?", "She is the daughter of actress Amy Bee and singer Carl Dee.",
         ["Carl Dee"]),
        ("Who is the father of Eve?", "Eve was born in Bonn to Prince Carl, Duke of Dee.",
         ["Prince Carl, Duke of Dee"]),
        ("Who is the mother of Eve?", "Eve was the son of Gozlin.", []),
        ("Who is the husband of Eve?", "Eve, daughter of Ada and her husband, Bo, wed Jim Cee.",
         ["Jim Cee"]),
        ("Who directed The Kite?", "The Kite is a 1926 American film directed by Leo Dee.",
         ["Leo Dee"]),
        ("Who directed The Last City?", "Directed by George Dee and Al Cee, it stars Bo Ek.",
         ["George Dee", "Al Cee"]),
        ("Who is the spouse of Mugain?",
         "Mugain, daughter of Eochaid, is the Strumpet wife of Conchobar mac Nessa.",
         ["Conchobar mac Nessa"]),
        ("Who is the wife of Tom Reyes?", "Iris Aa (wife of Tom Reyes) met Bo Ek.", ["Iris Aa"]),
        ("Who composed the film The Kite?", "A drama film written by Mira Holt.", []),
        ("Who is the mother of Ann Bee?", "Ann Bee was the only child of King Bo and his wife, "
         "Queen Cy.", ["Queen Cy"]),
        ("Who performed the song B Boy?",
         "B Boy is a song by American hip hop artist Meek Mill, from a film by Bo Ek.",
         ["Meek Mill"]),
        ("Who is the performer of song Merry (Ayumi Aa Song)?",
         "Merry is a song recorded by Japanese recording artist Ayumi Aa.", ["Ayumi Aa"]),
        ("Who composed the song Back Home?", "Back Home is a song written by Chuck Bee.",
         ["Chuck Bee"]),
        ("Who is the father of Al Guzman, 5th Duke of Dee?",
         "He was the son of Juan Al Guzman, 3rd Duke of Dee.", ["Juan Al Guzman, 3rd Duke of Dee"]),
        ("Who wrote The Hat?", "The Hat is a novel written by the English novelist Eve Ef.",
         ["Eve Ef"]),
        ("Who is the author of The Hat?", "The Hat is a 1920 novel by Eve Ef.", ["Eve Ef"]),
        ("Who composed the film The Hat?", "The Hat is based on a play by Eve Ef.", []),
        ("Where did Tom Reyes die?", "He died in Turin, Italy, and was sung of in Rome.",
         ["Turin", "Turin, Italy"]),
        ("What is the place of birth of Ada?", "Ada was born on 4 May 1894 in Bonn to Carl Bee.",
         ["Bonn"]),
        ("Where was Ada born?", "Ada is a painter of Lyon.", []),
        ("When was Ada born?", "Ada Bo (born 4 May 1894) won a prize in 1977.", ["4 May 1894"]),
        ("When was Ada born?", "Ada (Gotha, 4 May 1894 \u2013 Bonn, 2 June 1967) sang in 1901.",
         ["4 May 1894"]),
        ("When did Ada die?", "Ada (4 May 1894 - 2 June 1967) sang in 1901.", ["2 June 1967"]),
        ("When did Ada die?", "Ada died, aged 73, on 2 June 1967.", []),
        ("When did Ada die?", "Ada died on 2 June 1967.", ["2 June 1967"]),
        ("When did Ada's husband die?", "Ada died on 2 June 1967.", []),
        ("When was The Kite released?", "The Kite is a film of 1990.", []),
        ("When was The Kite released?", "The Kite. It is a 1961 Indian drama film.", ["1961"]),
        ("When was The Kite released?",
         "The Kite. It is a 1961 film, based on a novel published in 1949.", ["1961"]),
        ("When was The Kite released?", "The Kite. A film that was released on 5 May 1961.",
         ["5 May 1961"]),
        ("When was The Kite founded?", "The Kite. A museum established in 1816 in Bonn.", ["1816"]),
        ("When was The Kite built?", "The Kite. A hall founded 1816, completed in 1820.", ["1820"]),
        ("In which country is Ufa?", "Ufa. It is a village in Dee County, Fars, Iran.", ["Iran"]),
        ("In which country is Ufa?", "Ufa. Ufa is a town in Dee, Georgia, United States.",
         ["United States"]),
        ("In which country is Ufa?", "Ufa. It is an isle in Russia, on the Gulf of Finland.",
         ["Russia"]),
        ("In which country is The Kite?", "The Kite. It is a 1961 South Korean film, shot in Peru.",
         ["South Korean"]),
        ("In which country is Ufa?", "Ufa. Ufa is a village of Dee.", []),
        ("Who is the father of Ed Bee?",
         "Ed followed his father resuming the presidency, before Hal Bee. He was the only child of "
         "Bo Bee.", ["Bo Bee"]),
        ("Who is the mother of Sancha?", "Sancha was daughter of Al V of Leon and Castile and his "
         "first wife Bera of Metz.", ["Bera of Metz"]),
        ("Who is the father of Ann Bee?",
         "Ann was the daughter of Constance, Duchess of Dee, and her third husband Guy Bee.",
         ["Guy Bee"]),
        ("Who is the mother of Ann Bee?", "Born in Bonn, her parents were Al Bee and Eva Cee.",
         ["Eva Cee"]),
        ("Who is the wife of Al Bee?", "Al is known for Eva Cee, whom he married in 1918.",
         ["Eva Cee"]),
        ("Who is the husband of Eva?", "She was the wife of a National Artist.", []),
        ("Who is the father of Mu?", "A younger son of Caliph Harun al-Rashid, he rose.",
         ["Caliph Harun al-Rashid"]),
        ("What is the nationality of Ada?", "Ada is a retired Danish film director.", ["Danish"]),
        ("Which country Ada is from?", "Ada was an Austrian- born American painter of Rome.",
         ["American"]),
        ("What nationality is Ada?", "Ada was a Greek American scout.", ["Greek American"]),
        ("What nationality is Ada?", "Ada was a Duke of Mole and a Christian.", []),
        ("Where was Ada born?", "Ada (2 May 1892, in Bonn, Rhine \u2013 1962, in Ur) sang in Rome.",
         ["Bonn, Rhine"]),
        ("Where did Ada die?", "Ada (born Eve Bee; 2 May 1892, Bonn - Ur, 4 May 1962) sang.",
         ["Ur"]),
        ("Where was Ada born?", "Ada (Eva Bee, 1892 \u2013 1962) sang in Rome.", []),
    ],
)  # fmt: skip
def test_who_is_asked_for_is_told_by_the_words_beside_a_name(
    question: str, text: str, said: list[str]
):
    assert extract_answers(text, question) == said


@pytest.mark.parametrize(
    ("text", "question", "may"),
    [
        ("He was raised in exile in Ulster.", "Where was Ada buried?", False),
        ("He rests in the abbey of Ur.", "Where was Ada buried?", True),
        (
            "Ada (18 June 1926) was a queen. She spent her youth in Bonn.",
            "Where did Ada die?",
            False,
        ),
        ("Ada (1900, Bonn - 1926, Ur) was a queen.", "Where did Ada die?", True),
        ("Ada (18 June 1926) was a queen.", "When did Ada die?", True),
        ("Ada was assassinated in Ur.", "Where did Ada die?", True),
        ("Ada sings in Ur.", "Where does Ada sing?", True),
    ],
)
def test_a_text_without_the_words_for_it_does_not_say_where_a_life_ended(
    text: str, question: str, may: bool
):
    assert may_tell(text, question) is may


@pytest.mark.parametrize(
    ("titles", "own"),
    [
        (["Mira Holt", "Mira"], [0]),
        (["Mira Holt (painter)", "Born", "", "Tom Reyes"], [0]),
        (["Mira Holt - An Encyclopaedia", "Holt"], [0]),
        (["Mira Holt II", "Mira Holt"], [1]),
        (["Mira", "Born"], []),
    ],
)
def test_a_page_is_of_what_it_is_called_after(titles: list[str], own: list[int]):
    sources = [
        Source(id=str(n), title=title, location="", text="", tool="", query="")
        for n, title in enumerate(titles)
    ]
    assert own_pages(sources, "When was Mira Holt born?") == {str(n) for n in own}


def test_a_single_letter_or_a_short_name_is_no_month():
    assert candidates("It is by Jan.", "name", "Who?") == ["Jan"]


def test_candidates_are_few_and_short():
    many = ". ".join(f"Person{n} Longname" for n in range(200))
    assert len(candidates(many, "name", "Who?")) == MOST_CANDIDATES
    assert candidates("A" + "b" * 100, "name", "Who?") == []


@pytest.mark.parametrize(
    ("question", "text", "stands"),
    [
        ("Where did Ada Bergstrom die?", "Ada Bergstrom died there.", True),
        ("Where did Ada Bergstrom die?", "Tom Reyes died there.", False),
        ("Where did Ada Bergstrom die?", "Ada died there.", False),
        ("Who wed Ada Bergstrom or Tom Reyes?", "of Tom Reyes", True),
        ("how large can it grow?", "anything", True),
        ("What does the max_depth parameter of copy.deepcopy limit?", "copy.deepcopy(x)", False),
        ("What does the memo argument of copy.deepcopy do?", "copy.deepcopy(x, memo)", True),
        ("What does the depth option of copy.deepcopy do?", "copy.deepcopy(x, memo)", False),
        ("What is the default option of copy.deepcopy?", "copy.deepcopy(x, memo)", True),
        ("What is the default encoding parameter of json.dumps?", "json.dumps(obj)", False),
        ("Which is the first positional argument of json.dumps?", "json.dumps(obj)", True),
        ("What does the -f command line option of json.tool do?", "json.tool: -f", True),
        ("What does statistics.trimmed_mean do?", "statistics: a trimmed mean", False),
        ("Is np.linalg.norm faster than math.hypot?", "numpy.linalg.norm(x)", True),
        ("who is head of state of the U.S.?", "of the U.S: the president", True),
        ("Which join does DataFrame.merge do?", "pandas.DataFrame.merge(right)", True),
        ("How do I keep a NamedTemporaryFile?", "tempfile.NamedTemporaryFile(mode)", True),
        ("How do I keep a NamedTemporaryFile?", "tempfile.SpooledTemporaryFile(mode)", False),
        ("How many entries does lru_cache keep?", "LRUCache keeps a hundred.", False),
        ("How many entries does lru_cache keep?", "functools.lru_cache(maxsize=128)", True),
        ("what does example.com sell, and is main.py read?", "it sells kites", True),
    ],
)
def test_a_passage_is_about_what_a_look_up_names(question: str, text: str, stands: bool):
    page = Source(id="S1", title="", location="", text=text, tool="", query="")
    assert speaks_of(question, page) is stands


@pytest.mark.parametrize(
    ("question", "title", "text", "owned"),
    [
        ("What does statistics.trimmed_mean do?", "scipy.stats.mstats.trimmed_mean",
         "Of the statistics.", False),
        ("What does statistics.trimmed_mean do?", "statistics.trimmed_mean", "", True),
        ("What does pathlib.Path.copytree return?", "shutil.copytree", "", False),
        ("Why does str.replace change it?", "jinja2.filters.do_replace", "", False),
        ("Why does str.replace change it?", "String methods", "str.replace(old, new)", True),
        ("What does json.dumps do?", "simplejson.dumps", "", False),
        ("What does df.groupby do?", "pandas.DataFrame.groupby", "", True),
        ("What does np.sort do?", "numpy.sort", "", True),
        ("Is np.linalg.norm faster than math.hypot?", "numpy.linalg.norm", "", True),
        ("Who is Ada?", "Ada", "", True),
    ],
)  # fmt: skip
def test_what_another_library_has_by_that_name_is_no_answer(
    question: str, title: str, text: str, owned: bool
):
    page = Source(id="S1", title=title, location="a.py", text=text, tool="", query="")
    assert speaks_of(question, page) is owned


@pytest.mark.parametrize(
    ("claim", "text", "stands"),
    [
        ("Ada Bergstrom died.", "Bergstrom died.", True),
        ("Ada Bergstrom died in Oslo.", "Ada Bergstrom died.", False),
        ("Zebras gallop.", "They gallop.", True),
        ("no name", "", True),
    ],
)
def test_a_claims_names_stand_by_half_of_their_words(claim: str, text: str, stands: bool):
    assert names_stand(claim, text) is stands


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("born 4 May 1894 in Visby", (1894, 5, 4)),
        ("May 4, 1894", (1894, 5, 4)),
        ("May 1894", (1894, 5, 0)),
        ("in 1894", (1894, 0, 0)),
        ("c. 1500", (1500, 0, 0)),
        ("the 1990s", (1990, 0, 0)),
        ("12 May 812", (812, 5, 12)),
        ("4 May 1894 - 2 June 1967", (1894, 5, 4)),
        ("May be", None),
        ("", None),
    ],
)
def test_a_moment_is_a_texts_first_date(text: str, when: tuple[int, int, int] | None):
    assert moment(text) == when


@pytest.mark.parametrize(
    ("question", "third", "fourth", "answer"),
    [
        (FILMS, "4 May 1894", "2 June 1900", "The Glass Orchard"),
        (FILMS, "1993", "2 June 1900", "Summer Of Kites"),
        (FILMS.replace("later", "earlier"), "1993", "2014", "Summer Of Kites"),
        (FILMS.replace("later", "earlier"), "2014", "1993", "The Glass Orchard"),
    ],
)
def test_dates_are_put_in_order_through_the_chains_that_led_to_them(
    question: str, third: str, fourth: str, answer: str
):
    plan = DIRECTORS.partition("\n5.")[0] if "earlier" in question else DIRECTORS
    told = begun(plan, question, _1="Ada", _2="Tom", _3=third, _4=fourth).compare(question)
    assert told is not None and told.answer == answer
    assert told.note.startswith("In order: ") and f"{answer} (" in told.note


def test_dates_that_are_the_same_answer_nothing():
    told = begun(DIRECTORS, FILMS, _1="Ada", _2="Tom", _3="1900", _4="1900").compare(FILMS)
    assert told is not None and told.answer == ""


@pytest.mark.parametrize(
    ("third", "fourth"),
    [("1900", None), (None, None), ("1900", "long ago"), ("Visby", "Oslo")],
    ids=["one", "none", "no date", "no dates"],
)
def test_what_is_not_known_is_not_compared(third: str | None, fourth: str | None):
    known = {"_3": third, "_4": fourth}
    found = {name: text for name, text in known.items() if text is not None}
    assert begun(DIRECTORS, FILMS, _1="Ada", _2="Tom", **found).compare(FILMS) is None


COUNTRIES = "1. In which country is Lake Orrin?\n2. In which country is Port Ambel?"
SAME = "Are Lake Orrin and Port Ambel located in the same country?"


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        ("Norway", "Norway", "yes"),
        ("Norway", "Peru", "no"),
        ("Turin, Italy", "Italy", "yes"),
        ("American", "U.S.", "yes"),
        ("England", "British", "yes"),
        ("North Korea", "Korea", "no"),
        ("Greek American", "American", "yes"),
    ],
)
@pytest.mark.parametrize("plan", [COUNTRIES, f"{COUNTRIES}\n3. Compare [1] and [2]: the same"])
def test_things_are_the_same_where_one_says_no_more_than_the_other(
    plan: str, first: str, second: str, answer: str
):
    told = begun(plan, SAME, _1=first, _2=second).compare(SAME)
    verdict = "The same." if answer == "yes" else "Not the same."
    assert told is not None and told.of == (1, 2)
    assert (told.note, told.answer) == (
        f"Lake Orrin: {first}; Port Ambel: {second}. {verdict}",
        answer,
    )


def test_a_question_that_compares_nothing_is_not_answered_by_a_comparison():
    plan = "1. When was Ada born?\n2. When was Bo born?"
    assert begun(plan, "Ada, Bo?", _1="1900", _2="1901").compare("Ada, Bo?") is None
    assert begun("1. When was Ada born?", FILMS, _1="1900").compare(FILMS) is None


@pytest.mark.parametrize(
    ("number", "asked", "again"),
    [
        (1, ["Who directed the film Summer Of Kites?"], FILMS),
        (1, [FILMS.upper()], "Summer Of Kites"),
        (1, [FILMS, "summer  of kites"], None),
        (3, ["When was Ada Bergstrom born?"], "Ada Bergstrom"),
        (3, ["Ada Bergstrom"], FILMS),
        (3, ["Ada Bergstrom", FILMS], None),
    ],
)
def test_a_look_up_is_tried_again_in_other_words(number: int, asked: list[str], again: str | None):
    lookups = begun(DIRECTORS, FILMS, _1="Ada Bergstrom")
    lookups.queries[number] = asked
    assert lookups.retry(lookups.step(number), FILMS) == again


def test_dates_of_one_year_are_not_put_in_order_where_one_is_no_more_than_a_year():
    lookups = begun("1. When was Ada born?\n2. When was Tom born?", "Who is older, Ada or Tom?")
    lookups.found = {1: Finding("1894", "S1"), 2: Finding("4 May 1894", "S2")}
    compared = lookups.compare("Who is older, Ada or Tom?")
    assert compared is not None and compared.answer == ""


@pytest.mark.parametrize(
    ("asked", "died", "answer"),
    [
        ("Who lived longer, Ada Bo or Tom Cee?", "3 May 1960", "Ada Bo"),
        ("Who lived longer, Ada Bo or Tom Cee?", "5 May 1970", "Tom Cee"),
        ("Who lived shorter, Ada Bo or Tom Cee?", "3 May 1960", "Tom Cee"),
        ("Who lived longer, Ada Bo or Tom Cee?", "1969", ""),
    ],
)
def test_lives_are_compared_by_their_length(asked: str, died: str, answer: str):
    steps = complete([Lookup(1, asked)], asked)
    lookups = Lookups(steps=steps)
    dates = ("1 May 1900", "2 May 1969", "4 May 1900", died)
    lookups.found = {n: Finding(date, "S1") for n, date in enumerate(dates, start=1)}
    told = lookups.compare(asked)
    assert told is not None and (told.answer, told.of) == (answer, (1, 2, 3, 4))
    assert "Ada Bo (69 years)" in told.note
    assert read_plan(render_plan(steps), asked) == steps


@pytest.mark.parametrize(("tool", "speaks"), [("python", True), ("a+python", True), ("a", False)])
def test_the_documentation_of_python_speaks_of_python_without_saying_so(tool: str, speaks: bool):
    text = "Recursively delete a directory tree."
    source = Source(id="S1", query="q", title="rmtree", location="c", text=text, tool=tool)
    assert speaks_of("How do I delete a directory tree in Python?", source) is speaks


def test_of_what_is_not_certain_a_draft_is_kept_before_a_quote_and_else_the_likelier():
    lookups = Lookups()
    lookups.begin([Lookup(1, "How is it undone?"), Lookup(2, "Is it kept?")])
    quote, draft, other = (
        Finding("A quote.", "S1", quoted=True), Finding("A draft.", "S1", worded=True),
        Finding("Another draft.", "S2", worded=True),
    )  # fmt: skip
    for finding, chance in (
        (quote, 0.65),
        (draft, 0.55),
        (other, 0.6),
        (quote, 0.69),
        (draft, 0.5),
    ):
        lookups.doubt(finding, chance)
    assert lookups.unsure() == {1: other}
    lookups.found[1] = draft
    assert not lookups.unsure(), "what is found needs none"
    lookups.begin([Lookup(1, "How is it undone?")])
    assert not lookups.unsure(), "a plan that was changed is begun anew"


@pytest.mark.parametrize(
    ("question", "before", "source", "chance"),
    [
        ("How is it done?", "", "S2", 0.68),
        ("Why is it done?", "", "S2", 0.58),
        ("How is it done?", "Use `git reset` with --soft.", "S2", 0.78),
        ("How is it done?", "Use `git reset` with --soft.", "S1", 0.68),
        ("How is it done?", "Use `git stash` with --keep-index.", "S2", 0.58),
        ("How is it done with git reset --soft?", "Use `git stash` for it.", "S2", 0.68),
        ("How is it done?", "It cannot be done at all.", "S2", 0.68),
    ],
    ids=["alone", "what may not be so", "another says the same", "the same says it again",
         "another says something else", "the question names it", "another names nothing"],
)  # fmt: skip
def test_a_draft_is_weighed_by_what_else_was_drafted(
    question: str, before: str, source: str, chance: float
):
    lookups = Lookups()
    lookups.begin([Lookup(1, question)])
    if before:
        lookups.doubt(Finding(before, "S1", worded=True), 0.6)
    draft = Finding("The option --soft of `git reset` does it.", source, worded=True)
    assert lookups.weigh(draft, 0.68, question) == pytest.approx(chance)
