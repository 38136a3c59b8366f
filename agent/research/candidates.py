"""What in a passage may answer a look-up, found in its text alone.

What a look-up asks for - a name, a place, a date, or words - is read from its question word. For
names, places and dates a passage provides the candidates, so that no answer can be given that is in
no passage or only repeats the question. Some facts are expressed in few ways: who made a work, kin,
and when and where somebody was born and died. The words beside a name or a date identify these
better than a small model does, which takes "a Scottish magnate" for somebody's father.
"""

import builtins
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import islice, pairwise
from pathlib import Path
from typing import Literal

from rubricem.agent.sources.choice import PYTHON
from rubricem.agent.transcript.words import (
    IDENTIFIER,
    content_words,
    dotted_names,
    main_clause,
    name_spans,
    names,
    phrase,
)
from rubricem.memory.language import STOP_WORDS, is_foreign, language_with, sentences, stands
from rubricem.memory.schema import Source

_ASIDE = re.compile(r"\s*\([^)]*\)\s*$")
_WORD = re.compile(r"[^\W_]+(?:['\u2019.-][^\W_]+)*")
Asked = Literal["name", "place", "date", "words"]

_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(
    rf"\b(?:\d{{1,2}} (?:{_MONTH}),? \d{{3,4}}|(?:{_MONTH}) \d{{1,2}},? \d{{3,4}}|"
    rf"(?:{_MONTH}),? \d{{4}}|(?:c\. ?)?\d{{3,4}}(?:s\b|\b))"
)
MOST_CANDIDATES = 40
LONGEST_NAME = 80
"""characters"""
LONGEST_TOLD = 20_000
"""characters of a text that are read for what they tell"""


_PLACE_ASKED = re.compile(
    r"\W*(?:(?:from|in|at|to) )?where\b|.*\bplace of\b|"
    r".*\b(?:which|what)(?: is| was)?(?: the)? (?:\w+ )?(?:place|city|town|country|village)\b"
)
"""not "Which river does the city lie on?\""""


def asks_for(question: str) -> Asked:
    """What kind of answer a look-up wants, by its question word; of other languages "words"."""
    if is_foreign(question):
        return "words"
    text, named = question, names(question)
    for name in named:  # "The Sleeping City" is no place
        text = text.replace(name, "")
    text = text.casefold()
    if re.search(
        r"\bwhen (?:was|were|did|has|had)\b|\b(?:what|which) (?:year|date|day)\b|\bdate of\b", text
    ):
        return "date"
    # "Where do I put it?", "What takes the place of it?" ask for what a manual says.
    of_somebody = named and not re.search(r"\bwhere (?:do|does|can|should)\b", text)
    if of_somebody and _PLACE_ASKED.match(text):
        return "place"
    first = re.match(r"\W*(?:in |from |by |of |to |at )?(who|whose|whom)\b", text)
    called = re.match(
        r"\W*(?:in |from |of )?(?:what|which)(?: is| was)?(?: the)? "
        r"(?:nationality|birthplace|name|film|person|state)\b",
        text,
    )
    return "name" if first or called else "words"


_HOW_I = re.compile(r"\W*(?:how|where|can|what) (?:(?:do|can|could|should|must) )?(?:I|to)\b", re.I)


def expects_words(question: str) -> bool:
    """Whether the answer is something that manuals say, which a model may know the words of.

    Not what is asked of somebody or of a work, where it would name another. "How do I tell a
    Hugging Face tokenizer" asks nothing of anybody.
    """
    of_nobody = _HOW_I.match(main_clause(question)) or not any(" " in n for n in names(question))
    return asks_for(question) == "words" and bool(of_nobody)


def candidates(text: str, asked: Asked, question: str) -> list[str]:
    """What of a passage may answer a look-up for a name or a date, in order, each once.

    Neighbouring names parted by a comma are also one ("Turin, Italy"). What holds no word but
    those of the question, or a whole name of it, is no answer to it.
    """
    if asked == "date":
        spans = [(match[0], match.span()) for match in _DATE.finditer(text)]
    else:
        spans = name_spans(text)
        for (_, (start, end)), (after, (begin, stop)) in pairwise([*spans]):
            # A place within another, or a name with its title; of persons a comma makes a list.
            if text[end:begin] == ", " and (asked == "place" or " of " in after):
                spans.append((f"{text[start:end]}, {after}", (start, stop)))
        spans = [(span, at) for span, at in spans if not _only_date(span)]
    said = set(_fold_names(question))
    subjects = [f" {phrase(name)} " for name in names(question)]
    fit = (
        span
        for span, _ in spans
        if set(_fold_names(span)) - said
        and len(span) < LONGEST_NAME
        and not any(own in f" {phrase(span)} " for own in subjects if own.strip())
    )
    return list(dict.fromkeys(fit))[:MOST_CANDIDATES]


def extract_answers(text: str, question: str) -> list[str]:
    """The names, places or dates of which a text says that they are what is asked for, best first.

    By the words beside them: "directed by", "son of", "born". What the question names is none of
    them. Of kin and makers only those that are told of first, as a text goes on to others' kin.
    """
    asked, text = asks_for(question), text[:LONGEST_TOLD]
    if _NATION.search(question):
        return _extract_nation(text)
    if _COUNTRY.search(question):
        return _extract_country(text)
    if asked in ("date", "place"):
        if _relation(question):  # "When was Ada's husband born?" asks for another's life
            return []
        return (_extract_dates if asked == "date" else _extract_places)(text, question)
    if not _WHO.match(question):
        return []
    mentions = [*_mentions(text)]
    # "Merry-Go-Round (Ann Bee Song)" may well be sung by Ann Bee.
    asked_of = re.sub(r"\([^()]*\)", " ", question)
    relation, whole = _relation(question), f" {phrase(asked_of)} "
    if relation in ("father", "mother"):
        group = _parents(text, mentions, relation, names(question))
    else:
        groups = (
            g
            for g in _groups(text, mentions, _cues(question, relation))
            if f" {phrase(g[0].name)} " not in whole and not _of_parent(text, g[0].begin)
        )
        group = next(groups, [])
    if not group and _MADE.search(question):
        works = "|".join(_WORKS.findall(question)) or _WORKS.pattern
        by = re.compile(rf"\b(?:{works}) by $")
        group = [m for m in mentions if by.search(text[max(0, m.begin - _BESIDE) : m.begin])][:1]
    # Not by single words: "Rory Mac Rory" may well be the father of "Ron Mac Rory", and "Franz,
    # Duke of Hohenberg" a son of "Karl, Duke of Hohenberg".
    own = [f" {phrase(name)} " for name in names(asked_of) if not _TITLE.match(name)]
    own = [name for name in own if len(name.split()) > 1 and not relation]
    fit = (m.name for m in group if len(m.name) < LONGEST_NAME and not _NOBODY.search(m.name))
    plain = {name: f" {phrase(name)} " for name in fit}
    return [n for n, p in plain.items() if p not in whole and not any(o in p for o in own)]


_NOBODY = re.compile(
    r"\b(?:Awards?|Prizes?|Oscars?|Artist|Festival|Records|Pictures|Studios?|Productions|Films)$"
)
"""ends of names that made nothing and are nobody's kin"""


def extract_by_source(sources: Sequence[Source], question: str) -> dict[str, list[str]]:
    """What the pages that are about a thing say of it in so many words, by their ids."""
    own = own_pages(sources, question)
    texts = {s.id: f"{s.title}. {s.text}" for s in sources if s.id in own}
    return {i: said for i, text in texts.items() if (said := extract_answers(text, question))}


def is_always_told(question: str) -> bool:
    """Whether what is asked for is said in few ways: a text without them does not say it."""
    made = _MADE.search(question)
    return bool(_WHO.match(question)) and bool(made or _relation(question))


@dataclass(frozen=True, slots=True)
class _Mention:
    """Somebody named in a text, with their title: "Ernest, Duke of Bavaria"."""

    name: str
    begin: int
    """where it begins, with what describes it: "Irish physicist John Tyndall\""""
    end: int


_LOWER = r"[^\W\d_A-Z][\w'\u2019-]*"
_DESCRIBES = re.compile(rf"(?:,? (?:and )?{_LOWER}){{1,5}} ")
_TITLED = re.compile(r", (?:the )?(?:\d+(?:st|nd|rd|th) )?")
_TITLE = re.compile(
    r"(?:\d+(?:st|nd|rd|th) )?(?:Arch)?(?:duke|count|earl|king|baron|prince|duchess|countess|queen|"
    r"princess|margrave|marquess|marquis|viscount|lord|lady|emperor|empress|heiress|elector|"
    r"landgrave|baroness)\b",
    re.I,
)


def _mentions(text: str) -> Iterator[_Mention]:
    """Those who are named, in order; a word that only begins a sentence ("Directed by") is none."""
    spans = [(s, at) for s, at in name_spans(text) if not _only_date(s) and not _SAYS.fullmatch(s)]
    begin: int | None = None
    at = 0
    while at < len(spans):
        name, (start, end) = spans[at]
        at += 1
        begin = start if begin is None else begin
        if at < len(spans):
            after, (follows, stop) = spans[at]
            gap = text[end:follows]
            if _is_description(gap):
                continue
            if _TITLED.fullmatch(gap) and _TITLE.match(after):
                name, end = f"{text[start:follows]}{after}", stop
                at += 1
        yield _Mention(name, begin, end)
        begin = None


def _is_description(gap: str) -> bool:
    words = gap.replace(",", " ").split()
    return (
        bool(_DESCRIBES.fullmatch(gap))
        and words[0] != "and"
        and not any(
            (word in STOP_WORDS and word != "and") or _SAYS.fullmatch(word) for word in words
        )
    )


_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class _Cues:
    """How a text says what somebody is, before a name and behind it."""

    before: re.Pattern[str]
    behind: re.Pattern[str]
    across: re.Pattern[str] = _NEVER
    """before a name, whoever is named between"""


_BESIDE, _BEHIND = 80, 60
"""characters before and behind a name in which it is said what somebody is"""
_JOINED = re.compile(rf"(?: ?\([^()]*\))?[,\u2013-]? ?(?:and|by|&)(?: {_LOWER}){{0,4}},? ")
"""between two of whom the same is told: A "and his first wife" B, A ", by" B"""


def _groups(text: str, mentions: Sequence[_Mention], cues: _Cues) -> Iterator[list[_Mention]]:
    """Those of whom a cue tells, each with those that are joined to it ("A and B")."""
    ends = [0, *(mention.end for mention in mentions)]
    for at, mention in enumerate(mentions):
        lead = text[max(ends[at], mention.begin - _BESIDE) : mention.begin]
        behind = text[mention.end : mention.end + _BEHIND]
        whole = text[max(0, mention.begin - _BESIDE) : mention.begin]
        if cues.before.search(lead) or cues.behind.match(behind) or cues.across.search(whole):
            group = [mention]
            for one, other in pairwise(mentions[at:]):
                if not _is_joint(text[one.end : other.begin]):
                    break
                group.append(other)
            yield group


def _is_joint(gap: str) -> bool:
    words = gap.replace(",", " ").split()
    return bool(_JOINED.fullmatch(gap)) and not any(_SAYS.fullmatch(word) for word in words)


_WED = r"spouse|wife|husband|married|marriage|marrying|widow\w*|wed(?:ded)?"
_OWN = r"(?:son|daughter|child\w*)(?! of)|(?:father|mother|parents?) of"
_SIBLING = r"(?:brother|sister|sibling)s?"
_KIN = {
    **dict.fromkeys(("spouse", "wife", "husband"), ("spouse", _WED, _WED)),
    **dict.fromkeys(("sibling", "brother", "sister"), ("sibling", _SIBLING, _SIBLING)),
    **dict.fromkeys(("child", "son", "daughter"), ("child", _OWN, r"(?:son|daughter|child)")),
    "father": ("father", "", ""),
    "mother": ("mother", "", ""),
}
"""what somebody is to another -> what that comes to, how it is said before a name, and behind it"""
_MADE = re.compile(r"\b(?:(direct)|(compos)|(perform|sang|sung|sings)|(wr[io]t|author))")
_MADE_ALSO = (
    r"direct\w*",
    r"compos\w*|music(?:al score)?|scored?|songwriter",
    r"perform\w*|recorded|sung|sang|singer|rapper|vocals|song by|single (?:of|by)",
    r"written|wrote|writer|writing|author\w*|(?:novel|book|story|play|poem) by|novelist|playwright",
)
_WORKS = re.compile(
    r"\b(?:film|movie|novel|book|song|album|single|poem|play|painting|opera|story|series)s?\b"
)
_WHO = re.compile(r"\W*(?:in |from |by |of |to )?(?:who|whose|whom)\b", re.I)
_SAYS = re.compile(
    r"(?!recording$)(?:direct|compos|perform|produc|publish|record|star|featur|releas|edit|includ|"
    r"play|found|adapt|call|nam|marr)(?:s|es|ies|d|ed|red|ied|ring|ing)|\w+ed|"
    r"written|writes|writing|wrote|born|known|became|met|won|made|sung|sang",
    re.I,
)
"""words that say something of a name; one of them alone is no name and describes nobody"""


def _relation(question: str) -> str:
    return next((_KIN[word][0] for word in _asked_words(question) if word in _KIN), "")


def _asked_words(question: str) -> list[str]:
    """What a question asks of what it names; of a work not what kind of work it is."""
    for name in names(question):
        question = question.replace(name, " ")
    words = _fold_names(_WORKS.sub("", question))
    return [word for word in words if word not in STOP_WORDS and len(word) > 2]


def _cues(question: str, relation: str) -> _Cues:
    """How a text says what a question of somebody asks for."""
    if relation:
        before, behind = _KIN[relation][1:]
        return _Cues(re.compile(rf"\b(?:{before})\b", re.I), _aside(behind, names(question)))
    if made := _MADE.search(question):
        ways = _MADE_ALSO[(made.lastindex or 1) - 1]
        if made[2] and "song" in question:
            ways = f"{ways}|written|wrote"
    else:
        words = _asked_words(question)
        stems = (rf"{re.escape(word[: max(5, len(word) - 2)])}\w*" for word in words)
        ways = "|".join(stems) or r"(?!)"
    # "A, directed by B" tells of B.
    aside = rf"[^.;A-Z]{{0,25}}?\b(?:{ways})\b(?! (?:by|is|was|were)\b|:)"
    return _Cues(re.compile(rf"\b(?:{ways})\b", re.I), re.compile(aside))


_WHOM = r",? whom s?he (?:\w+ )?(?:married|wed)\b"


def _aside(relation: str, subjects: Sequence[str]) -> re.Pattern[str]:
    """Behind a name: ", wife of Tom"; what follows at once ("queen consort of B") is another's."""
    of = "|".join(re.escape(name.split()[0]) for name in subjects) or r"\w"
    said = rf" ?(?:,|\(|was|is)[^.;,)A-Z]*?\b(?:{relation})\b(?: of)? (?:the )?(?:{of})\b"
    return re.compile(rf"{said}|{_WHOM}" if relation == _WED else said)


_CHILD_OF = re.compile(
    r"\b(?:(?:son|daughter|child)(?: and (?:\w+ )?heir(?:ess)?)? of|parents (?:were|are))\b", re.I
)
_BORN_TO = re.compile(r"\bborn\b[^.;]* to (?:the )?$", re.I)
_WOMAN = re.compile(
    r"\b(?:wife|actress|queen|(?:arch)?duchess|(?:grand )?princess|countess|lady|empress|baroness|"
    r"infanta|heiress|mother|landgravine|margravine|singer and actress)\b",
    re.I,
)
LONGEST_SENTENCE = 400
"""characters"""
_THEIR = re.compile(r"\b(?:his|her)(?: \w+)? (?:wife|husband|spouse|consort),? $")


def _of_parent(text: str, at: int) -> bool:
    """Whether who is named here is a parent's: "a daughter of Ada and her husband, Bo"."""
    lead = text[max(0, at - LONGEST_SENTENCE) : at]
    begun = max(lead.rfind(end) for end in (". ", ".\n", "; "))
    return bool(_THEIR.search(lead) and _CHILD_OF.search(lead[begun + 1 :]))


def _parents(
    text: str, mentions: Sequence[_Mention], parent: str, subjects: Sequence[str]
) -> list[_Mention]:
    """The one of two parents that is asked for: named as that, else by gender, else by order."""
    named = _Cues(re.compile(rf"\b{parent}\b(?! of)[^.;]{{0,30}}$", re.I), _aside(parent, subjects))
    if found := next(_groups(text, mentions, named), []):
        return found[:1]
    both = next(_groups(text, mentions, _Cues(_CHILD_OF, _NEVER, _BORN_TO)), [])
    if len(both) > 2 and _THEIR.search(text[both[1].end : both[2].begin]):
        del both[1]  # "Alfonso VII of Le\u00f3n and Castile and his wife Berengaria"
    both = both[:2]
    if len(both) == 2 and (whose := _THEIR.search(text[both[0].end : both[1].begin])):
        # "Constance and her third husband, Guy"
        return [both[("husband" in whose[0]) == (parent == "father")]]
    before = dict(zip(mentions, [0, *(mention.end for mention in mentions)], strict=False))
    women = [bool(_WOMAN.search(text[max(before[m], m.begin - _BEHIND) : m.end])) for m in both]
    if len(both) == 2 and women[0] == women[1]:
        return [both[parent == "mother"]]
    return [m for m, woman in zip(both, women, strict=True) if woman == (parent == "mother")]


_DASH = r"\s*[-\u2013\u2014]\s*"
_ALSO = r"[^()\d]*?"
_LIVED = re.compile(rf"\({_ALSO}({_DATE.pattern}){_ALSO}{_DASH}{_ALSO}({_DATE.pattern}){_ALSO}\)")
_FOUNDED = r"(?:found|establish|form|creat|launch|incorporat|inaugurat|start)ed\b"
_BUILT = r"(?:built|complet\w+|construct\w+|opened)\b"
_BEGINNINGS = (
    (re.compile(r"\b(?:released|published|premiered)\b"), r"\b(?:releas|publish|premier)\w+"),
    (re.compile(rf"\b{_FOUNDED}"), rf"\b{_FOUNDED}"),
    (re.compile(rf"\b{_BUILT}"), rf"\b{_BUILT}"),
)
"""what of a work or a house is asked for, and how it is said before a date"""
_OF_YEAR = re.compile(
    rf"\b(?:is|was) an? (?:[\w-]+ ){{0,2}}?(\d{{4}})(?= (?:[^\s.]+ ){{0,6}}?{_WORKS.pattern})"
)
_EVENTS = (
    (re.compile(r"\b(?:born|birth(?:place)?)\b"), r"\b(?:born|birth)\b", 1),
    (re.compile(r"\b(?:die[ds]?|death)\b"), r"\b(?:died|death|killed|executed|passed away)\b", 2),
)
"""what of a life is asked for, how it is said before a date or a place, and which of two dates in
brackets it is"""


def _extract_beginning(text: str, question: str) -> list[str]:
    """When a work came out ("a 1961 film") or a house was founded or built."""
    for asked, said in _BEGINNINGS:
        if asked.search(question):
            before = re.compile(rf"{said}[^.;()\d]{{0,40}}$", re.I)
            dates = (m[0] for m in _DATE.finditer(text) if before.search(_lead(text, m.start())))
            work = _OF_YEAR.search(text) if asked is _BEGINNINGS[0][0] else None
            first = next(dates, "")
            # "a 1961 film, released on 5 May 1961" says more than the year.
            if work and work[1] not in first:
                return [work[1]]
            return [first] if first else []
    return []


def _extract_dates(text: str, question: str) -> list[str]:
    for asked, said, bound in _EVENTS:
        if asked.search(question):
            before = re.compile(rf"{said}[^.;()\d]{{0,40}}$", re.I)
            lived = [lived[bound]] if (lived := _LIVED.search(text)) else []
            dates = (m for m in _DATE.finditer(text) if before.search(_lead(text, m.start())))
            return list(dict.fromkeys([*lived, *(date[0] for date in dates)]))
    return _extract_beginning(text, question)


_BETWEEN = re.compile(r"\s[-\u2013\u2014]\s|\s?[\u2013\u2014]\s?")
_PLACE = re.compile(r"(?:in |at )?([^\W\d_a-z][^\d;:]{1,60})")


def _places_of_life(text: str) -> tuple[str, str]:
    """Where somebody was born and died, each "" if unknown: "(1892 in Turin - May 1962, Rome)"."""
    for lived in _YEARS.findall(text):
        sides = _BETWEEN.split(lived.strip("() "))
        if len(sides) == 2 and all(_DATE.search(side) for side in sides):
            (born, leads), (died, _) = map(_place_beside, sides)
            # "(Sándor Kellner, 1893 - 1956)" names nobody's birthplace.
            return ("" if leads and not died else born), died
    return "", ""


def _place_beside(side: str) -> tuple[str, bool]:
    """The place beside a date, and whether it stands before it."""
    part = next(part for part in side.split(";") if _DATE.search(part))
    date = next(_DATE.finditer(part))
    before, behind = part[: date.start()].strip(" ,"), part[date.end() :].strip(" ,.")
    for said, leads in ((behind, False), (before, True)):
        if place := _PLACE.fullmatch(said):
            return place[1].strip(), leads
    return "", False


def _extract_places(text: str, question: str) -> list[str]:
    """Each also with what it is said to lie in: "Turin", "Turin, Italy"."""
    for asked, said, bound in _EVENTS:
        if asked.search(question):
            if lived := _places_of_life(text)[bound - 1]:
                return [lived]
            before = re.compile(rf"{said}[^.;]*\b(?:in|at|near) (?:the )?$", re.I)
            spans = [(s, at) for s, at in name_spans(text) if not _only_date(s)]
            for (place, (start, end)), after in zip(spans, [*spans[1:], None], strict=False):
                if before.search(_lead(text, start)):
                    within = after and text[end : after[1][0]] == ", "
                    more = [text[start : after[1][1]].rstrip(".")] if after and within else []
                    return [place, *more]
    return []


_NATION = re.compile(r"\b(?:nationality|citizen\w*)\b|\b(?:which|what) country\b.*\bfrom\b", re.I)
_PEOPLE = r"(?!Christ|Luther|Anglic|Rom|Presbyt)[A-Z]\w+?(?:ish|an|ese|ch|ek|ss|li|qi|ni|ic)\b"
"""what somebody of a country is called: "Danish", "Irish", "Nicaraguan\""""
_IS_OF = re.compile(
    rf"\b(?:is|was|were) (?:an?|the|one of the) (?:(?!of\b)[a-z][\w-]* |\d\S* ){{0,3}}"
    rf"(?:{_PEOPLE} ?- ?born,? )?(?P<people>{_PEOPLE}(?:(?: ?- ?| and | ){_PEOPLE}){{0,2}})"
    r"(?! ?- ?born)"
)


def _extract_nation(text: str) -> list[str]:
    """What a text says somebody is by their people: "a Danish director"."""
    return [people["people"]] if (people := _IS_OF.search(text)) else []


_COUNTRY = re.compile(r"\b(?:in|from|of) (?:which|what) (?:country|nation)\b", re.I)


@cache
def _nations() -> tuple[dict[str, str], dict[str, str]]:
    """What countries are called, and what their people and things are -> the country."""
    called, people = dict[str, str](), dict[str, str]()
    text = Path(__file__).with_name("nations.txt").read_text(encoding="utf-8")
    for line in text.splitlines()[1:]:
        country, _, rest = line.partition(": ")
        peoples, _, others = rest.partition("; ")
        called |= dict.fromkeys((country, *filter(None, others.split(", "))), country)
        people |= dict.fromkeys(filter(None, peoples.split(", ")), country)
    return called, people


@cache
def _any_of(*kinds: int) -> str:
    names = sorted({name for kind in kinds for name in _nations()[kind]}, key=len, reverse=True)
    return rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)"


def nation(text: str) -> str:
    """The one country that a text names, also by its people: "American"; "" for none or several."""
    called, people = _nations()
    known = people | called
    named = {known[name] for name in re.findall(_any_of(0, 1), text)}
    return named.pop() if len(named) == 1 else ""


def _extract_country(text: str) -> list[str]:
    """The country of a work or a place, by its first sentences: "a 2009 Nicaraguan film"."""
    made = rf"\b(?:is|was|are|were)\b(?: [a-z\d-]+,?){{0,6}} (?P<of>{_any_of(1)})(?! ?- ?born)"
    for said in islice(sentences(text), 1, 3):  # the first is the title
        if of := re.search(made, said):
            return [of["of"]]
        last: re.Match[str] | None = None
        for named in re.finditer(_any_of(0), said):
            # Of "Georgia, United States" the last, of "Russia, on the Gulf of Finland" not.
            if last and said[last.end() : named.start()] != ", ":
                break
            last = named
        if last:
            return [last[0]]
    return []


_ENDS = (
    (
        r"\bborn\b|\bbirth(?:place)?\b",
        r"\bborn\b|\bbirth|\bnative\b|\bfrom\b|\b(?:raised|grew up)\b",
    ),
    (
        r"\b(?:die[ds]?|death)\b",
        r"\b(?:die[ds]?|death|dead|drowned|perished|suicide|hanged|beheaded|slain|succumbed|fell|"
        r"passed away|shot|kill\w*|execut\w*|murder\w*|assassinat\w*)\b",
    ),
    (
        r"\b(?:buried|burial)\b",
        r"\b(?:buri\w+|inter(?:red|ment)|(?:en)?tomb\w*|graves?|cemetery|crypt|mausoleum|ashes|"
        r"remains|rests?)\b",
    ),
)
"""what of a life is asked for, and the words without which a text does not say it"""
_YEARS = re.compile(r"\([^()]*\d{3}[^()]*\)")


def may_tell(text: str, question: str) -> bool:
    """Whether a text may say where or when somebody was born, died or was buried, if that is asked.

    Brackets may say when, and where if a name stands in them. True where another thing is asked.
    """
    wanted = asks_for(question)
    asked = next((said for asked, said in _ENDS if re.search(asked, question)), None)
    if wanted not in ("date", "place") or asked is None:
        return True
    lived = _YEARS.findall(text)
    if wanted == "place":
        lived = [each for each in lived if any(not _only_date(n) for n in names(each))]
    buried = asked is _ENDS[-1][1]
    return bool(re.search(asked, text, re.I)) or bool(lived and not buried)


def _lead(text: str, at: int) -> str:
    return text[max(0, at - _BESIDE) : at]


def _only_date(span: str) -> bool:
    months = _MONTH.split("|")
    return all(w[0].isdigit() or w.capitalize() in months for w in _WORD.findall(span))


def _fold_names(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def speaks_of(question: str, source: Source) -> bool:
    """Whether a source speaks of what a look-up names: most words of one of its names.

    True where it names nothing. A parameter must stand there as it is, and one of the identifiers
    by its own name, `lru_cache` and not LRUCache: what a page says of others is no answer on one
    that it does not have. What another library has by that name is none either: scipy's
    `trimmed_mean` on `statistics.trimmed_mean`.
    """
    text = f"{source.title} {source.text}"
    if not _is_owned(question, source):
        return False
    plain = (name for name in IDENTIFIER.findall(question) if "." not in name)
    whole = [stands(name, text) for name in (*_objects(question), *plain)]
    if not all(stands(p, text) for p in _parameters(question)) or (whole and not any(whole)):
        return False
    if is_foreign(question):
        return any(_half_stand(names(question), question, text)) or not names(question)
    # `NamedTemporaryFile` stands in `tempfile.NamedTemporaryFile`.
    there = set(_fold_names(text.replace(".", " ")))
    # Of "in Python" no page of Python's documentation says that it is.
    there |= {PYTHON} & {*source.tool.split("+")}
    named = [_fold_names(name.replace(".", " ")) for name in names(question)]
    if PYTHON in there and len(library := source.title.partition(".")[0].casefold()) > 3:
        there |= {word for words in named for word in words if word.endswith(library)}  # PyTorch
    subjects = [own for words in named if (own := [w for w in words if w not in STOP_WORDS])]
    return not subjects or any(2 * len(there & {*s}) > len({*s}) for s in subjects)


_PARAMETER = re.compile(r"\bthe (?:\w+ )?(\w+) (?:parameter|argument|option|flag)\b", re.I)
_NO_PARAMETER = frozenset(
    ("default", "first", "second", "last", "only", "same", "right", "optional", "positional",
     "keyword", "line", "following")
)  # fmt: skip


def _parameters(text: str) -> list[str]:
    """The parameters that a text names: `max_depth`, or what it calls one ("the depth option")."""
    named = [word for word in IDENTIFIER.findall(text) if "." not in word]
    called = [word for word in _PARAMETER.findall(text) if word.casefold() not in _NO_PARAMETER]
    return [*named, *called]


_DOMAINS = frozenset(("com", "org", "net", "edu", "gov"))


def _objects(text: str) -> list[str]:
    """The dotted names of a program in a text by their last part: `gather` of `asyncio.gather`.

    Abbreviations (`U.S.`), short endings of files and domains are none.
    """
    dotted = (word.rpartition(".")[2] for word in dotted_names(text))
    return [name for name in dotted if len(name) > 2 and name not in _DOMAINS]


def _is_owned(question: str, source: Source) -> bool:
    """Whether a source is of a module or type that a question names a member of, if it does.

    A page that is no entry of an index may name it anywhere.
    """
    known = f"{source.title} {source.location}"
    if not _objects(source.title):
        known = f"{known} {source.text}"
    there = set(re.findall(r"[^\W_](?:\w*[^\W_])?", known.casefold()))
    asked = _owners(question)
    return not asked or any(not each or each & there for each in asked)


def _owners(text: str) -> list[frozenset[str]]:
    """Of each dotted name of a text what stands before its last part, in lower case.

    Nothing of a name that is neither in a module that can be imported here nor in a builtin type:
    `df` of `df.merge` is whatever somebody calls it.
    """
    dotted = (word.strip(".").split(".") for word in dotted_names(text))
    return [frozenset(p.casefold() for p in parts[:-1] if _is_owner(parts[0])) for parts in dotted]


@cache
def _is_owner(name: str) -> bool:
    if hasattr(builtins, name) or name in sys.stdlib_module_names:
        return True
    try:
        return len(name) > 2 and find_spec(name) is not None
    except ValueError:  # of a module without a spec, as __main__
        return False


def _half_stand(named: Sequence[str], said: str, text: str) -> list[bool]:
    """Of each name whether half of its words stand in a text, in the forms of what says it."""
    language = language_with(said, text)
    there = content_words(text, language)
    words = [content_words(name, language) for name in named]
    return [2 * len(each & there) >= len(each) for each in words]


def own_pages(sources: Sequence[Source], asked: str) -> set[str]:
    """The ids of the pages that are about a thing that is asked of, by their titles.

    Those whose whole title is asked of before those that are called after it and more.
    """
    called = {s.id: f" {phrase(_ASIDE.sub('', s.title))} " for s in sources if s.title.strip()}
    own, whole = dict[str, str](), f" {phrase(asked)} "
    for name in names(asked):
        plain = f" {phrase(name)} "
        for i, title in called.items():
            shorter, longer = sorted((title, plain), key=len)
            most = 2 * len(title.split()) > len(plain.split())
            if shorter.strip() and shorter in longer and most:
                own[i] = title
    return {i for i, title in own.items() if title in whole} or {*own}


def names_stand(claim: str, text: str) -> bool:
    """Whether a passage has each name of a claim, by half of its words; what merely begins a
    sentence is no name.
    """
    if is_foreign(claim, text):
        return all(_half_stand(names(claim), claim, text))
    there = set(_fold_names(text))
    named = [_fold_names(name) for name in names(claim)]
    if named and len(named[0]) == 1 and claim.casefold().startswith(named[0][0]):
        named = named[1:]
    return all(2 * sum(w in there for w in words) >= len(words) for words in named)


def moment(text: str) -> tuple[int, int, int] | None:
    """The first date in a text as (year, month, day), zeros where it does not say."""
    months = [m.casefold() for m in _MONTH.split("|")]
    found = _DATE.search(text)
    if found is None:
        return None
    words = re.findall(r"\d+|[A-Za-z]+", found[0])
    numbers = [int(word) for word in words if word.isdigit()]
    year = max(numbers)
    day = next((n for n in numbers if n <= 31 and n != year), 0)
    month = next((months.index(w.casefold()) + 1 for w in words if w.casefold() in months), 0)
    return year, month, day
