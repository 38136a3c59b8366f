"""A plan as numbered look-ups: how it is read, and how code completes it.

A look-up may refer to what an earlier one finds: `2. Where did [1] die?` (Self-Ask,
arXiv:2210.03350; ReWOO, arXiv:2305.18323). A small model finds the first steps of a chain, but it
forgets half of a comparison, compares what was not asked for, and takes a father-in-law for one
step. So if a question compares two things, the look-ups of the first are repeated for the other,
what is compared is taken from the question's own word (older: born), and kin that is named through
another person is looked up through that person. If none of this applies, the plan is the model's.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rubricem.agent.research.candidates import asks_for
from rubricem.agent.transcript.words import (
    IDENTIFIER,
    content_words,
    main_clause,
    names,
    overlap,
    phrase,
)
from rubricem.memory.language import is_foreign

MOST_LOOKUPS = 6
"""of a plan; what a small model writes beyond that repeats itself"""
_ITEM = re.compile(r"^[ \t]*(\d{1,3})[.)][ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
REFERENCE = re.compile(r"\[(\d{1,3})\]")
_WHAT_KIN = re.compile(
    r"^What (is|was) the (child|son|daughter|father|mother|spouse|wife|husband|brother|sister|"
    r"sibling|director|composer|performer|author)\b(?= of)"
)
"""what a small model asks of somebody"""
_COMPARES = re.compile(
    r"\b(?:compare|which of|earlier|earliest|first|older|oldest|later|latest|last|younger|"
    r"youngest|longer|more|same|both)\b",
    re.I,
)
# In lower case: "The Last Coupon" compares nothing.
LAST = re.compile(r"\b(?:later|latest|last|younger|youngest|newer|recent|recently)\b")
FIRST = re.compile(r"\b(?:earlier|earliest|first|older|oldest|before)\b")
LIVED = re.compile(r"\blive[ds]? (?:the )?(?:longe|shorte)(?:r|st)\b")
SAME = re.compile(r"\b(?:same|both|share)\b|^Both\b")


@dataclass(frozen=True, slots=True)
class Lookup:
    """One step of a plan. `refers` are the numbers of the look-ups whose answers it names."""

    number: int
    text: str
    refers: tuple[int, ...] = ()
    compares: bool = False
    """it sets side by side what others found, and is not searched"""
    planned: bool = True
    """False: the review asked for it"""


def read_plan(text: str, question: str) -> list[Lookup]:
    """The look-ups of a plan's text, at most MOST_LOOKUPS, numbered as they are written.

    Left out: repeated ones, one that refers to itself, to a later or to no look-up, and one that
    names neither a reference nor anything of the question but common words ("Who is older?"). A
    plan without any is the question itself.
    """
    found: dict[int, Lookup] = {}
    for written, said in _ITEM.findall(text)[: 4 * MOST_LOOKUPS]:
        line = _WHAT_KIN.sub(r"Who \1 the \2", said)
        number, refers = int(written), tuple(dict.fromkeys(map(int, REFERENCE.findall(line))))
        asked = content_words(REFERENCE.sub("", line))
        known = {other.text.casefold() for other in found.values()}
        if number in found or line.casefold() in known or any(r not in found for r in refers):
            continue
        compares = len(refers) > 1 and bool(_COMPARES.search(line))
        named_there = subjects(question)
        if len(named_there) == 1 and not refers and not subjects(line):
            # "How do I turn that on?" finds what nobody asked about.
            line = f"{named_there[0]}: {line}"
        named = bool(refers) or names(line) or not names(question)
        if asked and named and not any(found[r].compares for r in refers):
            found[number] = Lookup(number, line, refers, compares)
        if len(found) == MOST_LOOKUPS:
            break
    return list(found.values()) or [Lookup(1, " ".join(question.split()))]


def subjects(text: str) -> list[str]:
    """The identifiers that a text names, or else its names."""
    named = [word.strip(".") for word in IDENTIFIER.findall(text)]
    return list(dict.fromkeys(named)) or list(dict.fromkeys(names(text)))


def render_plan(steps: Sequence[Lookup]) -> str:
    """The plan's text, as `read_plan` reads it."""
    return "\n".join(f"{step.number}. {step.text}" for step in steps)


def outline(steps: Sequence[Lookup]) -> str:
    """How the look-ups of a plan hang together, in a sentence."""
    searched = [step for step in steps if not step.compares]
    told = ["One look-up" if len(searched) == 1 else f"{len(searched)} look-ups"]
    told += [f"[{s.number}] needs {_join_numbers(s.refers)}" for s in searched if s.refers]
    told += [f"{_join_numbers(s.refers)} are compared" for s in steps if s.compares]
    return "; ".join(told) + "."


def _join_numbers(numbers: Sequence[int]) -> str:
    return " and ".join(f"[{number}]" for number in numbers)


def complete(steps: Sequence[Lookup], question: str) -> list[Lookup]:
    """The plan with what a small model leaves out of it."""
    question = " ".join(question.split())
    if is_foreign(question):
        return _about(steps, question)
    if differ := _DIFFERENCE.search(question):
        return [Lookup(n, f"What does {differ[n]} do?") for n in (1, 2)]
    sides = two_sides(question)
    chain = _side_chain(steps, sides, question) if sides else []
    if sides and chain:
        return _both(chain, sides, question)
    if _asks_how(question) and not any(step.refers for step in steps):
        return _parts(steps, question)
    return _through_persons(_bridge_plan(steps, question), question)


def _about(steps: Sequence[Lookup], question: str) -> list[Lookup]:
    """The plan as it is where each look-up that rests on no other is half in the question's words.

    Else the question: in another language a small model falls back upon its worked examples.
    """
    own = all(step.refers or overlap(step.text, question) >= 0.5 for step in steps)
    return list(steps) if own else [Lookup(1, question)]


_HOW = re.compile(
    r"\W*(?:how|why|can|could|may|should|is there|does|do|what (?:does|do|happens))\b", re.I
)


def _asks_how(question: str) -> bool:
    return bool(_HOW.match(main_clause(question)))


_DIFFERENCE = re.compile(r"\bdifferences? between (\S.*?) and (\S.*?)[ ?.]*$", re.I)


_GOES_ON = re.compile(r"\b(?:and|or) (?:else )?(?:\w+ )?\w+ (?:it|them)\b", re.I)
"""what is done with the same thing: "insert a row or update it\""""


_ASKS = re.compile(
    r"(?:^|[.,;:?!]\s+)(?:(?:and|or|but|so|then|if \w+),?\s+)*"
    r"(?:in which|how|what|which|when|where|who|whose|why|does|do|did|is|are|can|could|should|will|"
    r"would|may|must)\b",
    re.I,
)
"""where a clause that asks begins"""


def asks_one_thing(question: str) -> bool:
    """Whether a question has no parts that a model would have to tell, or code tells them.

    What leads up to it is none: "pandas: how do I", "It gives me tuples; how can I".
    """
    asked = main_clause(question.strip())
    clauses = [match.end() for match in _ASKS.finditer(asked)]
    told = _GOES_ON.sub("", asked[clauses[0] :] if clauses else asked)
    # "remove untracked files and directories" joins things that one command is done with.
    joined = re.search(r"[;?]\s|\b(?:and|or|than)\b" if clauses else r"[;?]\s", told)
    return (len(clauses) < 2 and not joined) or bool(_DIFFERENCE.search(question))


RELATIONS = (
    "born birth died death buried directed director film composed composer performed performer "
    "wrote written author father mother parent husband wife spouse child son daughter brother "
    "sister country nationality date place year located released"
)
"""what the look-ups of a chain ask that a question says in other words: "paternal grandfather\""""


def is_covered(text: str, known: Sequence[str]) -> bool:
    """Whether a text holds no word but those of others, in whatever form."""
    words = content_words(" ".join(known))
    return all(
        any(word.startswith(other[:4]) or other.startswith(word) for other in words)
        for word in content_words(text)
    )


def _parts(steps: Sequence[Lookup], question: str) -> list[Lookup]:
    """The parts of a question on how something is done, or the question, if it has not several.

    A small model adds what nobody asked ("What is pandas?", "What is the default?"), and each such
    look-up costs the reader time and an answer of another thing.
    """
    named = " ".join(names(question))
    parts = [
        step
        for step in steps
        if is_covered(step.text, [question])
        and not is_covered(step.text, [named, "what do mean use"])
    ]
    return parts if len(parts) > 1 else [Lookup(1, question)]


Sides = tuple[str, str]
_OR = re.compile(
    r"^[^,]*?(?:,| between| out of| of) (?:the (?:[a-z]+ )?)?(?P<a>\S.*?),? or (?P<b>\S.*?)\W*$"
)
_OUT_OF = re.compile(
    r"\b(?:[Bb]etween|[Oo]ut of) (?P<a>\S.*?),? and (?P<b>[A-Z0-9\"'].*?)(?:, |\W*$)"
)
_TITLE = r"(?:[A-Z0-9][^\s,]*|\([^)]*\)|[a-z]{1,3}|&)"
_AND = re.compile(
    rf"^(?:Are|Is|Were|Was|Do|Does|Did|Have|Has) (?:[a-z]+,? )*"
    rf"(?P<a>[A-Z0-9\"'].*?),? and (?:[a-z]+ )*(?P<b>[A-Z0-9\"']\S*(?: {_TITLE})*?)"
    rf"(?=,? (?:both|located|have|share|in|that|who|from|the|of the same|originate)\b|[?.]|$)"
)


def two_sides(question: str) -> Sides | None:
    """The two things that a question sets side by side; None: it does not, or not plainly."""
    if FIRST.search(question) or LAST.search(question) or LIVED.search(question):
        found = _OR.search(question) or _OUT_OF.search(question)
    else:
        found = _AND.search(question) if SAME.search(question) else None
    if found is None or phrase(found["a"]) == phrase(found["b"]):
        return None
    return found["a"].strip(" ,"), found["b"].strip(" ,?.")


_BRIDGED = re.compile(r"\bwhose\b|\b(?:ha(?:s|ve)|with) (?:a|an|the)\b|\b(?!out )\w+s? of\b", re.I)
_MADE = re.compile(
    r"\b(released|published|founded|established|built|opened|formed|created|launched|introduced|"
    r"produced|completed|started|discovered|invented|written|recorded|composed)\b",
    re.I,
)
_SAME_WHAT = re.compile(r"\bsame (\w+)|\bshare (?:a|an|the) (?:same )?(\w+)", re.I)


def _question_of(words: str, *, bridged: bool) -> str | None:
    """What is compared, as a question about `{}`; None where a question's words do not say."""
    if same := _SAME_WHAT.search(words):
        what = (same[1] or same[2]).casefold()
        if what in ("country", "nation") and not bridged:
            return f"In which {what} is {{}}?"
        of_person = what in ("country", "nationality", "nation")
        return f"What is the {'nationality' if of_person else what} of {{}}?"
    if re.search(r"\bdied\b", words, re.I):
        return "When did {} die?"
    if re.search(r"\b(?:born|older|oldest|younger|youngest)\b", words, re.I):
        return "When was {} born?"
    if made := _MADE.search(words):
        return f"When was {{}} {made[1].casefold()}?"
    return (
        "When was {} released?" if re.search(r"\bc(?:ame|ome|oming) out\b", words, re.I) else None
    )


def _side_chain(steps: Sequence[Lookup], sides: Sides, question: str) -> list[str]:
    """The look-ups of one side, the last of which is compared; a reference is to one of them."""
    words = question.replace(sides[0], "").replace(sides[1], "")
    bridged = bool(_BRIDGED.search(words))
    if LIVED.search(words) and not bridged:
        return [f"When was {sides[0]} born?", f"When did {sides[0]} die?"]
    asked = _question_of(words, bridged=bridged)
    if asked and not bridged:
        return [asked.format(sides[0])]
    first = _name_pattern(sides[0])
    roots = [
        s for s in steps if first.search(s.text) and not _name_pattern(sides[1]).search(s.text)
    ]
    if not roots:
        return []
    if asked:
        return [roots[0].text, asked.format("[1]")]
    chain = [roots[0]]
    for step in steps:
        if step.refers == (chain[-1].number,) and not step.compares:
            chain.append(step)
    return [REFERENCE.sub(f"[{at}]", step.text) for at, step in enumerate(chain)]


def _name_pattern(name: str) -> re.Pattern[str]:
    return re.compile(r"\W+".join(map(re.escape, phrase(name).split())) + r"\)?", re.I)


def _both(chain: Sequence[str], sides: Sides, question: str) -> list[Lookup]:
    """The look-ups of one side, those of the other, and what they are compared by."""
    size, first = len(chain), _name_pattern(sides[0])
    steps = []
    for at in range(2 * size):
        text = chain[at % size]
        if at >= size:
            text = first.sub(lambda _: sides[1], text, count=1)
            text = REFERENCE.sub(lambda number: f"[{int(number[1]) + size}]", text)
        refers = tuple(int(number) for number in REFERENCE.findall(text))
        steps.append(Lookup(at + 1, text, refers))
    by = "the same" if SAME.search(question) else "the later one"
    if FIRST.search(question) and not LAST.search(question):
        by = "the earlier one"
    of: tuple[int, ...] = (size, 2 * size)
    if LIVED.search(question):
        by, of = "the longer life", tuple(range(1, 2 * size + 1))
    told = f"Compare {_join_numbers(of)}: {by}"
    return [*steps, Lookup(2 * size + 1, told, of, compares=True)]


_WRITES = r"wr[io]t|author"
_STEMS = {
    "director": "direct", "composer": "compos", "performer": "perform|sang|sing|sung",
    "singer": "perform|sang|sing|sung", "author": _WRITES, "writer": _WRITES,
    "producer": "produc", "founder": "found", "creator": "creat",
    "father": "father", "mother": "mother", "spouse": "spouse|wife|husband|marri",
    "wife": "spouse|wife|marri", "husband": "spouse|husband|marri", "son": "son|child",
    "daughter": "daughter|child", "child": "child", "brother": "brother|sibling",
    "sister": "sister|sibling", "sibling": "sibling",
}  # fmt: skip
"""what somebody is to a work or to another -> how a look-up may put that"""
_ROLE = "|".join(_STEMS)
_CALLED = (
    r"(?P<name>\[\d+\]|[A-Z0-9\"'\u201c]\S*"
    r"(?: (?:\([^)]*\)|(?:[a-z]{1,3} ){0,2}[A-Z0-9&]\S*))*)"
)
_ROLE_OF = re.compile(rf"\b(?:the )?(?P<role>{_ROLE}) of (?:the )?(?P<work>[a-z]+ )?{_CALLED}")
_S_ROLE = re.compile(
    rf"(?<!\S)(?!(?:Wh[a-z]+|How|Is|Was|Are|Were|Did|Do|Does|In|On|From) )"
    rf"{_CALLED}['\u2019]s (?P<role>{_ROLE})\b(?!-)"
)
_THEM = "[0]"
"""whoever is looked up, in what is asked of them"""
_CASES = tuple(map(re.compile, (
    r"\b(?:born|birth\w*)\b", r"\b(?:die[ds]?|death)\b", r"\b(?:buried|burial)\b",
    r"\b(?:nation\w*|countr\w*|citizen\w*)\b",
)))  # fmt: skip
"""what is asked of somebody, which a small model puts as another thing: "Where did they live?\""""


def _bridge_plan(steps: Sequence[Lookup], question: str) -> list[Lookup]:
    """The plan that goes through whom a question names by another thing, and asks what it asks.

    As it is where it does both, and where the question names nobody in this way, or several.
    """
    bridge = _bridge(question)
    if bridge is None or _COMPARES.search(question):
        return list(steps)
    role, person, rest = bridge
    stem = re.compile(rf"\b(?:{_STEMS[role]})", re.I)
    first = next((s for s in steps if not s.refers and stem.search(s.text)), None)
    last = [s for s in steps if first and first.number in s.refers]
    asked = next((case for case in _CASES if case.search(rest)), re.compile(""))
    kind = _kind(rest)
    if any(asked.search(step.text) and {kind, _kind(step.text)} != _APART for step in last):
        return list(steps)
    return [Lookup(1, person), Lookup(2, rest.replace(_THEM, "[1]"), (1,))]


_APART = {"date", "place"}
"""what a small model takes for one another: "Where did they die?" is no answer to when"""


def _kind(text: str) -> str:
    """What a look-up asks for, whoever its reference may be."""
    return asks_for(REFERENCE.sub("Ada Mole", text))


def _bridge(question: str) -> tuple[str, str, str] | None:
    """Whom a question names by another thing: their role, who that is, and what is asked of them.

    None: nobody, or that is all it asks.
    """
    if found := _ROLE_OF.search(question):
        end = found.end() - len(found["name"]) + len(found["name"].rstrip("?.! "))
        work = found["work"] or ""
    elif found := _S_ROLE.search(question):
        end, work = found.end(), ""
    else:
        return None
    person = f"Who is the {found['role']} of {work}{found['name'].rstrip('?.! ')}?"
    rest = f"{question[: found.start()]}{_THEM}{question[end:]}"
    if re.fullmatch(rf"\W*who (?:is|was) {re.escape(_THEM)}\W*", rest, re.I):
        return None
    return found["role"], person, rest


_THROUGH = {
    "paternal grandfather": ("father", "father"),
    "paternal grandmother": ("father", "mother"),
    "maternal grandfather": ("mother", "father"),
    "maternal grandmother": ("mother", "mother"),
    "father-in-law": ("spouse", "father"),
    "mother-in-law": ("spouse", "mother"),
    "brother-in-law": ("spouse", "brother"),
    "sister-in-law": ("spouse", "sister"),
    "sibling-in-law": ("spouse", "sibling"),
    "stepmother": ("father", "wife"),
    "stepfather": ("mother", "husband"),
}
"""kin -> the person that it is named through, and what they are to that person"""
_KIN = re.compile(
    rf"^(?P<who>Who (?:is|was)) (?:the (?P<k1>{'|'.join(_THROUGH)}) of (?P<p1>.+?)"
    rf"|(?P<p2>.+?)['\u2019]s (?P<k2>{'|'.join(_THROUGH)}))\?*$",
    re.I,
)


def _through_persons(steps: Sequence[Lookup], question: str) -> list[Lookup]:
    """The plan with two look-ups for whoever one of them names through another person."""
    new, numbers = list[Lookup](), dict[int, int]()
    for step in [Lookup(1, question)] if _KIN.search(question) else steps:
        text = REFERENCE.sub(lambda n: f"[{numbers.get(int(n[1]), n[1])}]", step.text)
        refers = tuple(numbers[number] for number in step.refers)
        if kin := _KIN.search(text):
            through, then = _THROUGH[(kin["k1"] or kin["k2"]).casefold()]
            person = f"Who is the {through} of {kin['p1'] or kin['p2']}?"
            new.append(Lookup(len(new) + 1, person, refers))
            text, refers = f"Who is the {then} of [{len(new)}]?", (len(new),)
        elif not step.compares and (bridge := _bridge(text)):
            new.append(Lookup(len(new) + 1, bridge[1], refers))
            text, refers = bridge[2].replace(_THEM, f"[{len(new)}]"), (len(new),)
        numbers[step.number] = len(new) + 1
        new.append(Lookup(len(new) + 1, text, refers, step.compares))
    return new


def carry_over(plan: Sequence[str], other: str, question: str) -> list[str]:
    """A plan for `other` with the names of `question` in the place of its own.

    [] where the two questions differ in more than names and the words that bind them, where the
    plan has no place for one of the names, and where something of the other's would be left in it.
    """
    theirs, own = _find_frame(other), _find_frame(question)
    if theirs.frame != own.frame or not own.names or len(theirs.names) != len(own.names):
        return []
    swaps = dict(zip(theirs.names, own.names, strict=True))
    # In one go: one after another the second would be put into the first.
    longest = sorted(swaps, key=len, reverse=True)
    either = re.compile("|".join(f"(?P<n{at}>{_whole(name)})" for at, name in enumerate(longest)))
    put = set[str]()

    def instead(found: re.Match[str]) -> str:
        name = longest[int((found.lastgroup or "n0")[1:])]
        put.add(name)
        return swaps[name]

    new = [either.sub(instead, text) for text in plan]
    left = content_words(" ".join(swaps)) - content_words(question)
    stray = any(left & content_words(text) for text in new)
    covers = all(is_covered(REFERENCE.sub("", text), [question, RELATIONS]) for text in new)
    return new if covers and not stray and put == {*swaps} else []


def through_known(question: str, asked: Sequence[str]) -> list[str]:
    """The plan through whom a question names by another thing, by a look-up that found somebody so.

    In the words of the one that found them, or else of the question, where one found somebody else
    who is the same to another thing. [] where there is neither, where the question names nobody so,
    and where it compares.
    """
    bridge = None if _COMPARES.search(question) else _bridge(question)
    if bridge is None:
        return []
    role, person, rest = bridge
    stem, named = re.compile(rf"\b(?:{_STEMS[role]})", re.I), names(person)
    alike = [
        text
        for text in asked
        if text.startswith("Who ")
        and stem.search(text)
        and is_covered(text, [person, *names(text)])
    ]
    if not named or not alike:
        return []
    phrases = [f" {phrase(name)} " for name in named]
    of_it = [t for t in alike if all(each in f" {phrase(t)} " for each in phrases)]
    first = next((text for text in of_it if is_covered(text, [person])), person)
    return [first, rest.replace(_THEM, "[1]")]


def _whole(name: str) -> str:
    """A pattern of a name as a whole, with the article that it may be written without."""
    bare = re.sub(r"^the ", "", name, flags=re.I)
    return rf"(?<!\w)(?i:(?:the )?{re.escape(bare)})(?!\w)"


@dataclass(frozen=True, slots=True)
class _Framed:
    names: tuple[str, ...] = ()
    frame: tuple[str, ...] = ()
    """the question's other words in their order, without those that bind, and marks for names"""


_BINDING = frozenset(
    """a an and are at be between by did do does for from had has have in is of or out that the was
    were which who whose with""".split()  # noqa: SIM905
)
_PIECE = re.compile(r"['\u2019]s(?!\w)|(?:(?!['\u2019]s(?!\w))[^\s,;:?!])+|[,;:?!]")
"""a word, and apart from it the possessive and what marks off parts"""
_SHORT = 3
"""letters at most of what binds the parts of names in whatever language"""


def _find_frame(question: str) -> _Framed:
    """A question by its names, the two that it sets side by side or the one run of capitals."""
    text = " ".join(question.split())
    named = two_sides(text) or _run_of_capitals(text)
    for name in sorted(named, key=len, reverse=True):
        text = text.replace(name, f" [{named.index(name)}] ", 1)
    first, *rest = re.findall(r"\[\d\]|\w+", text.casefold()) or [""]
    return _Framed(tuple(named), (first, *(word for word in rest if word not in _BINDING)))


def _run_of_capitals(text: str) -> tuple[str, ...]:
    """What a question names, from the first capital behind its first word to the last."""
    pieces = [found[0] for found in _PIECE.finditer(text)]
    at = [i for i, piece in enumerate(pieces) if i and _is_capital(piece)]
    run = pieces[at[0] : at[-1] + 1] if at else []
    plain = (piece for piece in run if not _is_capital(piece) and len(piece) > _SHORT)
    joined = re.sub(r" (?=[,;:?!]|['\u2019]s(?!\w))", "", " ".join(run))
    whole = bool(joined) and joined in text and not content_words(" ".join(plain), "en")
    return (joined,) if whole else ()


def _is_capital(piece: str) -> bool:
    return piece.lstrip("(\"'\u201c")[:1].isupper() or piece[:1].isdigit()
