"""How far a sentence of a source answers a question, and how it is quoted, by code alone.

An `Inquiry` is a look-up's question with the answer that the model expected: passages, sentences
and claims are compared with its words, its names and numbers, and the kind of answer that it asks
for. A sentence is quoted on one line, with what is needed to understand it: the sentence that
follows a short one, the parameter that its entry describes, the name of its page, the items of the
list that it introduces.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise, takewhile

from rubricem.agent.reports.rules import contradiction
from rubricem.agent.research.candidates import asks_for, names_stand
from rubricem.agent.transcript.scaffold import neutralise
from rubricem.agent.transcript.words import (
    ASKS_DEFAULT,
    DEFAULT,
    IDENTIFIER,
    NAME,
    OPTION,
    SIGNATURE,
    TYPED,
    closest_sentence,
    content_words,
    dotted_names,
    exact_names,
    main_clause,
    overlap,
    worded_defaults,
)
from rubricem.memory.language import LETTER, is_prose, language_of, length, sentences, stands
from rubricem.memory.schema import Source

SUPPORT = 0.5
"""share of a claim's words that its source must hold"""

WORD = re.compile(rf"(?:{LETTER}|\.)+")
_EXACT = re.compile(rf"{NAME.pattern}|\d")
"""in a word of a claim: it must stand in the source as it is"""
QUOTE_CHARACTERS = 400
EXPECTED, ENTERED, LEANING = 0.25, 0.25, 0.15
"""added to how likely a sentence answers where all that was expected is there, and where it is the
entry of a parameter that the question sets or of a command that it asks about; taken off where it
leans on another"""
FORESEEN = 0.15
"""added where its page is what the model expected by its full name: of `os.walk` no sentence says
that it is how to walk through all files of a directory tree"""
MEANS = 0.15
"""added to what a page says first of its thing, where one is asked for by what it does"""
NAMING = 0.1
"""added where another thing is named, and the question asks which one it is"""
FAITHFUL = 0.7
"""share of a claim's words that its look-up, what was found and the source's title must hold"""
WHOLE = 0.4
"""share of what was found that its claim must say"""
RELATED = 0.5
"""share of a look-up's words that a passage holds which is taken for what the model expected"""
MUCH_MORE = 2
"""times the content words of a claim, from which the sentence that it rests on stands for it"""
STATED = 0.6
"""share of what an answer says beside its question that its source must hold"""
LATER = 0.1
"""what the next nearer sentence must hold less of an answer, in the weight of its words, for a
farther one to be what it rests on: one that a single sentence has weighs 3 to 4"""
REPEATED = 0.75
"""share of a sentence's words, from which an answer says it again"""
EXPECTED_ALONE = 0.5
"""what a word is worth that is expected of an answer, and not asked about"""
LEAST_SAID = 3
"""content words of a claim; what says less ("git reset") helps nobody"""


LEAST_WHOLE = 8
"""words, below which a sentence tells little without the next one ("1000-59999:")"""
MOST_TOGETHER = 480
"""characters of a sentence and of what the entry begins with that it is in"""
_OF_THE_LAST = re.compile(r"(?:The )?[Dd]efaults?\b|By default\b|Otherwise\b|If not,")
"""a sentence that says nothing without the one before it: "Number of samples. Default is 50.\""""


_NAMES = r"\*{0,2}\w+(?:, \*{0,2}\w+)*"
ENTRY = re.compile(rf"\n(?=[ \t]*(?:{_NAMES} : |:param [^:\n]+:|{_NAMES} \([^()\n]*\): ))")
"""before a parameter of a docstring: `num : int, optional`, `:param num:` or `num (int): `"""


_SECTION = re.compile(
    r"\n[ \t]*(?:\w[\w ]*\n[ \t]*-{3,}|(?:Returns|Raises|Yields|Examples?|Notes?):)"
)
"""what ends the parameters of a docstring, and begins another part of it"""
_PARTS = re.compile(rf"{ENTRY.pattern}|(?={_SECTION.pattern})")


def quotable_sentences(text: str) -> Iterator[str]:
    """The sentences of a text, where short ones and those that lead to the next are part of it.

    A default is part of what it is the default of, which stands before it; a parameter begins anew,
    and so does what a docstring says behind them.
    """
    for entry in _PARTS.split(text):
        held, last = "", ""
        for said in sentences(entry):
            if last and not held and _OF_THE_LAST.match(said):
                last = f"{last} {said}"
                continue
            held = f"{held} {said}".strip()
            if not held.endswith(":") and length(held) >= LEAST_WHOLE:
                if last:
                    yield last
                held, last = "", held
        yield from filter(None, (last, held))


def with_lead(said: str, text: str) -> str:
    """A sentence after the beginning of the entry that it is in: whose parameter it is of.

    "The column says left_only" is what a parameter named `indicator` asks for.
    """
    for entry in ENTRY.split(f"\n{text}")[1:]:
        within = _SECTION.split(entry, maxsplit=1)[0]
        told = [" ".join(each.split()) for each in quotable_sentences(within)]
        if said in told[1:]:
            joined = " " if said == told[1] else " ... "
            led = f"{told[0]}{joined}{said}"
            return led if len(led) <= MOST_TOGETHER else said
    return said


_COMMAND = re.compile(r"([\w.+-]+?)(?:\(\d\w*\)|\.\d)")
"""the title of a manual's page: git-push(1), apt-mark.8"""


MOST_TERMS = 4
"""lines that one description can be of: `-d`, `--delete`"""
_TERM = re.compile(r"(?!>>>|--? |\$ |#|[-=~^]{3,}$|.*[.:;]$)[^\s].{0,90}")
_HEADS = re.compile(r"[\w.<>:+-]*\w>?")
_OPENED = re.compile(rf"[ ]*(?:[*-] )?(?=(?:{_NAMES} \([^()]*\): |:param [^:]+:|\*\*\w+\*\*))")
"""what begins an entry whose description stands on the same line"""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a manual or docstring says of one option, parameter, key or command."""

    names: frozenset[str]
    text: str
    """terms and description, as they stand there"""

    @property
    def told(self) -> str:
        """On one line, with as many of its sentences as are told together."""
        first, *others = _in_lines(self.text)
        for said in others:
            if len(f"{first} {said}") > MOST_TOGETHER:
                break
            first = f"{first} {said}"
        return first


def entries(text: str) -> list[Entry]:
    """The entries of a text: terms, each on a line, and what stands below them further in.

    Or the parameter of a docstring whose description begins beside it.
    """
    lines, found, at = text.expandtabs().splitlines(), list[Entry](), 0
    while at < len(lines):
        opened = _OPENED.match(lines[at])
        terms = 0 if opened else _terms(lines[at : at + MOST_TERMS])
        end = _end_of_entry(lines, at, terms) if terms or opened else at
        if end > at:
            held = "\n".join(lines[at:end]).strip("\n")
            heads = [lines[at][opened.end() :]] if opened else lines[at : at + terms]
            found.append(Entry(frozenset(chain.from_iterable(map(_names_in, heads))), held))
        # What a description lists are entries, too.
        at += terms or 1
    return found


_AFTER_NAMES = re.compile(r" : | -|[ ]?[(\[<:=]|\s(?=\S+\.\.\.)")


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _terms(lines: Sequence[str]) -> int:
    """How many lines from the first on are terms of one description, which follows them."""
    first = _depth(lines[0])
    for count, (line, after) in enumerate(pairwise(lines), start=1):
        if not _TERM.fullmatch(line.strip()) or _depth(line) != first:
            return 0
        if after.strip() and _depth(after) > first:
            return count
    return 0


def _end_of_entry(lines: Sequence[str], at: int, terms: int) -> int:
    """Where an entry ends: before what stands no further in than its term."""
    end = at + terms
    while end < len(lines) and (not lines[end].strip() or _depth(lines[end]) > _depth(lines[at])):
        end += 1
    if not terms:  # its description may go on below its name
        end = at + 1
        while end < len(lines) and lines[end].strip() and not _OPENED.match(lines[end]):
            end += 1
    return end


def _names_in(term: str) -> list[str]:
    """What a term is the entry of: its options, or the names that it begins with."""
    term = term.strip()
    if options := OPTION.findall(term):
        return options if term.startswith("-") else []
    head = _AFTER_NAMES.split(term.removeprefix(":param "), maxsplit=1)[0]
    parts = [part.strip(" *`\"'") for part in head.split(", ")]
    return parts if all(map(_HEADS.fullmatch, parts)) else []


_AS_TYPED = re.compile(r"[`'\"](\w+)[`'\"=]|\b(\w+)=(?=\w)|\b([a-z]+[A-Z]\w+)")
"""a name as it is typed: between backticks or quotes, with a value, or in camel case"""


def entries_named(source: Source, text: str) -> list[Entry]:
    """The entries of a source that a text names: by an option, or by a name as it is typed.

    On the page of a command those that the text names with the command ("git branch -d"), also by
    a plain word ("apt-get clean").
    """
    command = _COMMAND.fullmatch(source.title)
    if command and not any(stands(n, text) for n in (command[1], command[1].replace("-", " "))):
        return []
    told = {*OPTION.findall(text), *IDENTIFIER.findall(text)}
    told |= {name for match in _AS_TYPED.findall(text) for name in match if name}
    told |= {*_PLAIN.findall(text)} if command else set()
    return [entry for entry in entries(source.text) if not told.isdisjoint(entry.names)]


def _in_lines(text: str) -> list[str]:
    """The `quotable_sentences` of a text, each on one line."""
    return [" ".join(said.split()) for said in quotable_sentences(text)]


def entry_around(said: str, text: str) -> str:
    """The smallest entry of a text that has a sentence, which is on one line; else the text."""
    around = (e.text for e in entries(text) if e.names and said in " ".join(e.text.split()))
    return min(around, key=len, default=text)


def _is_called(text: str) -> bool:
    """Whether a text is how something is called: its signature."""
    return bool(SIGNATURE.fullmatch(text.strip(" .")))


NEIGHBOURS = 60
"""words of a sentence with those on both sides of it"""


def with_neighbours(said: str, text: str) -> str:
    """A quotable sentence of a text with those beside it, of `NEIGHBOURS` words at most.

    On one line. The next one comes before the one before it, as it tells on. Within an entry
    those of it alone, behind its terms. No signature, which takes much room and tells little.
    """
    plain = " ".join(said.split())
    entry = entry_around(plain, text)
    told = _in_lines(entry)
    if plain not in told:
        entry, told = text, _in_lines(text)
    first = last = told.index(plain)
    while True:
        left = NEIGHBOURS - length(" ".join(told[first : last + 1]))
        if last + 1 < len(told) and length(told[last + 1]) <= left:
            last += 1
        elif first and length(told[first - 1]) <= left and not _is_called(told[first - 1]):
            first -= 1
        else:
            break
    # What an option does is told by its name.
    within = first > 0 and any(each.text == entry for each in entries(text))
    lines = entry.splitlines() if within else [""]
    terms = " ".join(" ".join(lines[: _terms(lines)]).split())
    return " ... ".join(filter(None, (terms, " ".join(told[first : last + 1]))))


LONGEST_PIECE = 110
"""words of an entry that is read whole"""


def piece_around(said: str, text: str) -> str:
    """What is read of a text for a quotable sentence of it: its entry, or it and its neighbours.

    On one line.
    """
    entry = entry_around(" ".join(said.split()), text)
    if entry != text and length(entry) <= LONGEST_PIECE:
        return " ".join(entry.split())
    return with_neighbours(said, text)


def excerpts(
    told: Sequence[tuple[Source, str]], words: int
) -> Iterator[list[tuple[Source, list[str]]]]:
    """Pieces of sources in batches of so many words, one at least in each.

    The pieces come best first; of a batch those of a source stand together, in its order. What a
    batch has already, or cannot hold any more, is not in the next ones either.
    """
    left = [*told]
    while left:
        by, total, passed = dict[str, tuple[Source, list[str]]](), 0, list[tuple[Source, str]]()
        for at, (source, piece) in enumerate(left):
            if by and total + length(piece) > words:
                passed = left[at:]
                break
            pieces = by.setdefault(source.id, (source, []))[1]
            if not any(piece in other for other in pieces):
                pieces.append(piece)
                total += length(piece)
        for source, pieces in by.values():
            text = " ".join(source.text.split())
            pieces.sort(key=text.find)
        yield [*by.values()]
        left = passed


def with_subject(said: str, source: Source) -> str:
    """A sentence after the name of what its page is of, where it does not say it.

    An entry of a docstring ("divide : {'ignore', 'warn'}") is of whatever it stands under, and what
    a command does ("Apply the change") tells nobody how to do it. A title in capitals is the name
    of a statement: VACUUM.
    """
    title = source.title
    names = [title.rpartition(".")[2]]
    if command := _COMMAND.fullmatch(title):
        names = [command[1], command[1].replace("-", " ")]
    elif dotted_names(title) != [title]:
        names = [title] if title.isupper() else []
    return f"{title}: {said}" if names and not any(stands(n, said) for n in names) else said


MOST_LISTED, LONGEST_HEAD = 12, 5
"""items of a list that are told, and words of what each begins with"""


def whole_list(said: str, text: str) -> str:
    """A sentence that leads to a list and its first item, with what the other items begin with."""
    lead, colon, item = said.rpartition(": ")
    if not colon or length(item) > LONGEST_HEAD:
        return said
    behind = re.split(r":\s*\n", text)
    following = next((b for a, b in pairwise(behind) if " ".join(a.split()).endswith(lead)), "")
    heads = list[str]()
    for paragraph in re.split(r"\n\s*\n|\n\s*[-*\u2022]\s", following.strip()):
        head = next(iter(sentences(paragraph)), "").strip(" .-*\u2022")
        if not head or length(head) > LONGEST_HEAD:
            break
        heads.append(head)
    told = f"{lead}: {', '.join(heads[:MOST_LISTED])}"
    return told if len(heads) > 1 and heads[0] == item.strip(" .") else said


def in_context(said: str, source: Source) -> str:
    """A sentence of a source with all that it cannot be understood without.

    Of an entry that is short enough that is the whole entry.
    """
    entry = " ".join(entry_around(said, source.text).split())
    whole = len(entry) <= MOST_TOGETHER and said in entry and bool(entries(source.text))
    told = entry if whole and entry != " ".join(source.text.split()) else ""
    told = told or whole_list(with_lead(said, source.text), source.text)
    return neutralise(with_subject(told, source))


def heading_of(source: Source) -> str:
    """A source's title, and the heading that its text stands under where that says more."""
    heading = source.place.rpartition(" > ")[2]
    more = content_words(heading) - content_words(source.title)
    return f"{source.title} > {heading}" if more else source.title


def fuller(claim: str, source: Source) -> str:
    """The sentence that a claim rests on, where it says more than twice as much, else "".

    Of a difference a small model says "copy.copy creates a shallow copy", under a sentence that
    tells what that is. A claim with a number tells enough.
    """
    if re.search(r"\d", claim):
        return ""
    said = " ".join(closest_sentence(claim, source.text).split())
    words = content_words(said, language_of(claim))
    much = len(words) > MUCH_MORE * len(content_words(claim))
    return neutralise(said) if much and is_prose(said) and len(said) < QUOTE_CHARACTERS else ""


def holds(source: Source, claim: str) -> bool:
    """Whether a source has most words of a claim, and every name and number in it."""
    text = f"{source.title}\n{source.text}"
    # Whole: 12 is not in 128.
    exact_stand = all(stands(word, text) for word in _exact_words(claim))
    return exact_stand and names_stand(claim, text) and overlap(claim, text) >= SUPPORT


def _exact_words(claim: str) -> list[str]:
    return [word.strip(".") for word in WORD.findall(claim) if _EXACT.search(word)]


_PLAIN = re.compile(r"[a-z][a-z-]*")


def options_stand(claim: str, *passages: str) -> bool:
    """Whether the options of a claim stand in the passages, letters also together: `-fd`."""
    known = {option for passage in passages for option in OPTION.findall(passage)}
    asked = OPTION.findall(claim)
    each = ([o] if o[1] == "-" else [f"-{letter}" for letter in o[1:]] for o in asked)
    return all(o in known or known.issuperset(parts) for o, parts in zip(asked, each, strict=True))


def is_made_up(claim: str, passage: str) -> bool:
    """Whether a command in the claim is put together of what stands apart in the passage, or not.

    An option that is not there, or a word behind another one that it never follows there, although
    it is there: `git remote delete`, where `git push --delete` is told. What stands nowhere is the
    reader's own: a branch, a file. A command is what stands between backticks.
    """
    there = passage.replace("`", " ")
    known = {*_PLAIN.findall(there)}
    if not options_stand(claim, there):
        return True
    for command in TYPED.findall(claim):
        for before, word in pairwise(takewhile(_PLAIN.fullmatch, command.split())):
            follows = rf"(?<!\w){re.escape(before)}[\s-]+{re.escape(word)}(?!\w)"
            if word in known and not re.search(follows, there):
                return True
    return False


_ANSWERING = (
    "yes no use uses used using run command option function method statement parameter argument"
)
"""words of answers, whatever is asked: in "use the command `git checkout`" two say something"""
_LINK = re.compile(r"\bhttps?://\S+")
_COUNT = re.compile(
    r"\d|\b(?:no|none|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|"
    r"thousand|single|both|twice|once|unlimited|unbounded|any number)\b",
    re.I,
)
_MEASURE = re.compile(r"\bhow (?:long|much|often|old|large|big|similar)\b", re.I)
_THING = r"(?:function|method|class|exception|decorator|context manager)"
_NAMED_KIND = re.compile(rf"\W*(?:which|what) {_THING}\b", re.I)
_ASKS_MEANS = re.compile(
    r"(?:^|[.?!:;,]\s+(?:(?:and|but|or|so) )?)\W*(?:how (?:do|can|could|would|should|to)\b|"
    rf"(?:which|what) (?:{_THING}|module|command|option|statement|pragma|tool)\b|"
    r"what (?:do|can|should) I (?:run|use|call|type|write)\b|is there (?:a|an|any)\b)",
    re.I,
)
"""what asks for a thing by what it does: its page says that in the first sentence"""
_CALLABLE = re.compile(r"\b\w+(?=\()|\b\w*[a-z][A-Z]\w*")
_ASKS_FACT = re.compile(r"\W*(?:what happens|why|is|are|does|do|did|will|must|may)\b", re.I)
_CODE_LINE = re.compile(
    r"\s*(?:>>>|\.\.\. |```|import |from \S+ import |def |class |@\w|#|\w[\w.\[\]: ]*=\s|"
    r"[\w.]+\(.*\)\W*$)"
)
_LEANING = re.compile(
    r"\W*(?:(?:in|to|with|by|for) (?:such|this|that|these|those)|this|these|those|it|such|or,|thus|"
    r"hence|so|also|then|otherwise|therefore|they|he|she)\b|[^.]*\bthe above\b",
    re.I,
)
_OF_SIGNATURE = re.compile(r"\b(?:what|which) (?:is|are) (?:the )?|\bsignature\b", re.I)
_GIVEN = re.compile(r"\b(\w+)(?:: [^=()]+)?=(?!=|None\b)")
"""a parameter of a signature that has a default; what None stands for is said elsewhere"""
_NONE = re.compile(r"\bdefaults?\b\W*(?:is|to|=)?\W*None\b", re.I)
_AMOUNT = re.compile(r"\b(?:number|many|much|size|limit|length|long|times|seconds)\b", re.I)
_COUNTS_WHAT = re.compile(r"\b(?:how many|number of) (\w{4,})", re.I)
_COUNTED = re.compile(r"\b(\w+)(?:: [^=()]+)?=-?\d")
"""what asks how much something is by default, and a parameter of which a number is the default"""
_SET = re.compile(r"\b([a-z_]\w*)=\S")
"""a parameter that a question gives a value: "with err=True\""""
_WHAT_DOES = re.compile(r"\W*what does \S+ (?:\S+ )*?(\S+) do\W*", re.I)
"""the last word of what a look-up asks about: `remove` of `apt-get remove`"""


def _leans(said: str) -> bool:
    """Whether a sentence says little without the one before it, or is the end of one."""
    first = next(iter(said.split()), "")
    goes_on = first.islower() and not content_words(first, "en")
    return goes_on or bool(_LEANING.match(said)) or said.count(")") > said.count("(")


def _parameter_of(said: str) -> str:
    """The last parameter that an entry of a docstring is of; "" of what is no entry."""
    if not ENTRY.match(f"\n{said}"):
        return ""
    head = re.split(r":| \(", said.strip().removeprefix(":param"), maxsplit=1)[0]
    return head.split()[-1].strip("*")


@dataclass(frozen=True)
class Inquiry:
    """A question, and what the model expected of its answer."""

    question: str
    guess: str = ""
    """"" where nothing was expected"""

    @cached_property
    def _language(self) -> str:
        return language_of(self.question)

    @cached_property
    def _clause(self) -> str:
        return main_clause(self.question)

    def _words(self, text: str) -> frozenset[str]:
        return content_words(text, self._language)

    def of_named_libraries(self, sources: Sequence[Source]) -> list[Source]:
        """The sources without the pages of other libraries, where one of theirs is named.

        `abs_tol` of `cmath.isclose` is no answer on numpy's.
        """
        library = {
            s.id: s.title.partition(".")[0] for s in sources if [s.title] == dotted_names(s.title)
        }
        text = f"{self.question}\n{self.guess}"
        named = {name for name in library.values() if stands(name, text)}
        return [s for s in sources if not named or library.get(s.id, "") in {"", *named}]

    def shares_of(self, texts: Sequence[str]) -> list[float]:
        """How many of the words of question and expectation each of some texts has, 0 to 1.

        A word weighs by how few of the texts have it, one that is expected alone half of that.
        """
        asked = content_words(self.question)
        held = [self._words(text) for text in texts]
        among = Counter(word for words in held for word in words)
        weight = {
            word: math.log1p(len(texts) / among[word]) * (1 if word in asked else EXPECTED_ALONE)
            for word in asked | self._words(self.guess)
            if word in among
        }
        total = sum(weight.values()) or 1.0
        return [sum(weight.get(word, 0.0) for word in words) / total for words in held]

    def new_words(self, text: str) -> frozenset[str]:
        """What an answer says that its question does not."""
        return self._words(text) - content_words(f"{self.question} {_ANSWERING}")

    def is_stated_by(self, source: Source, text: str) -> bool:
        """Whether a source holds what an answer says beside the question, and every name of it.

        A person asks for "which commit broke my program" where the manual has no word of programs.
        """
        there, new = f"{heading_of(source)}\n{source.text}", self.new_words(text)
        stand = all(stands(w, there) or stands(w, self.question) for w in _exact_words(text))
        stand = stand and options_stand(text, there, self.question)
        # To drop duplicates `drop_duplicates` says something, though no word of it is new.
        says = bool(new or exact_names(text, self.question))
        return says and stand and len(new & self._words(there)) >= STATED * len(new)

    def basis(self, ranked: Sequence[tuple[Source, str]], drafted: str) -> tuple[Source, str]:
        """The sentence that an answer rests on, of those in order of their nearness to it.

        It has most of what the answer says beside the question, where words weigh by how few of
        the sentences have them: "option" and "command" tell on nothing. A link has words, and
        says nothing; nor does a signature, where the entry of its parameter has the name, too.
        """
        new = self.new_words(drafted)
        told = [each for each in ranked if not _is_called(each[1])]
        ranked = [each for each in told if new & self._words(each[1])] or ranked
        held = [new & self._words(_LINK.sub("", said)) for _, said in ranked]
        among = Counter(word for words in held for word in words)
        weight = {word: math.log1p(len(ranked) / count) for word, count in among.items()}
        worth = [sum(weight[w] for w in words) - LATER * at for at, words in enumerate(held)]
        return ranked[worth.index(max(worth))]

    def share_expected(self, source: Source, said: str) -> float:
        """Share of what was expected, beside the question's words, in a sentence, 0 to 1.

        None of it counts in a source that does not speak of what is asked.
        """
        hoped = self._words(self.guess) - content_words(self.question) - self._words(source.title)
        asked = content_words(self.question) - self._words(self.guess)
        there = self._words(f"{source.title} {source.text}") if hoped else frozenset()
        if not hoped or len(asked & there) < RELATED * len(asked):
            return 0.0
        return len(hoped & self._words(said)) / len(hoped)

    def may_count(self, said: str) -> bool:
        """Whether a sentence has a number, where it is asked how many, or how long by default."""
        counts = re.search(r"\bhow many\b", self._clause, re.I)
        measures = _MEASURE.search(self.question) and ASKS_DEFAULT.search(self.question)
        return not (counts or measures) or bool(_COUNT.search(said))

    def summary(self, source: Source) -> str:
        """What a page says first of the thing that it is of, where a question asks for such one.

        "" of another part of the page: an entry of an index begins with its own name, a manual's
        page has a section for it.
        """
        begins = source.text.lstrip().startswith(f"{source.title}(")
        begins = begins or bool(re.search(r"(?:^|> )NAME$", source.place))
        if not begins or not _ASKS_MEANS.search(self.question):
            return ""
        return next(quotable_sentences(source.text), "")

    def _may_name(self, source: Source, said: str) -> bool:
        """Whether a sentence or its page names another thing, where a question asks which it is.

        "Which function tests what str.isidentifier lets pass?" is not answered by what that does.
        """
        if not _NAMED_KIND.match(self._clause):
            return True
        text = f"{source.title} {said}"
        there = [*IDENTIFIER.findall(text), *_CALLABLE.findall(text)]
        return any(not stands(name.strip("."), self.question) for name in there)

    def _may_explain(self, source: Source, said: str) -> bool:
        """Whether a sentence has a word of what is to be explained, beside its page's title.

        Why something is so that is not so ("Why does pydantic refuse unknown fields by default?")
        is nowhere said, and any sentence of the right page seems to a small model to say it.
        """
        if not re.match(r"\W*why\b", self._clause, re.I):
            return True
        wanted = self._words(f"{self.question} {self.guess}") - self._words(source.title)
        return not wanted or bool(wanted & self._words(said))

    def _may_show(self, said: str) -> bool:
        """Whether a text is no code, where a question asks what happens and not how it is done."""
        # Only what is shown of it: in a line without end the pattern would be sought for long.
        lines = said.strip()[:QUOTE_CHARACTERS].splitlines()
        code = 2 * sum(bool(_CODE_LINE.match(line)) for line in lines) > len(lines)
        return not (code and _ASKS_FACT.match(self._clause))

    def may_answer(self, source: Source, said: str) -> bool:
        """Whether a sentence is of the kind that is asked for, so that the model is asked."""
        tells = self._may_explain(source, said) and self._may_name(source, said)
        return tells and self.may_count(said) and self._may_show(said)

    def prior_of(self, source: Source, said: str) -> float:
        """What code knows of whether a sentence answers, to be added to what the model says of it.

        Of a sentence that `may_answer`: where a name is asked for it has one.
        """
        known = EXPECTED * self.share_expected(source, said) - LEANING * _leans(said)
        known += ENTERED * self.is_entry(said) + FORESEEN * self._foreseen(source)
        known += MEANS * (said == self.summary(source))
        return known + NAMING * bool(_NAMED_KIND.match(self._clause))

    def _foreseen(self, source: Source) -> bool:
        """Whether a page is of what was expected by its dotted name, and was not asked about."""
        title, names = source.title.casefold(), dotted_names(self.guess)
        foreseen = title in {name.casefold() for name in names}
        return foreseen and title not in self.question.casefold()

    def says_more(self, said: str, shown: str) -> bool:
        """Whether a sentence has something to say to it that what is shown does not."""
        new = self.new_words(said)
        more = new - self._words(shown)
        tells = length(said) >= LEAST_WHOLE and len(new) >= LEAST_SAID
        tells = tells and neutralise(" ".join(said.split())) not in " ".join(shown.split())
        return tells and (len(more) > (1 - REPEATED) * len(new) or bool(exact_names(said, shown)))

    def repeats(self, drafted: str, said: str) -> bool:
        """Whether an answer in all the question's words is what one sentence says with them."""
        words, asked = self._words(drafted), content_words(self.question)
        if not asked or not asked <= words:
            return False
        new = words - asked
        return len(new & self._words(said)) >= REPEATED * len(new)

    def is_aside(self, drafted: str) -> bool:
        """Whether an answer has no word of its question, and names nothing that one could use."""
        named = OPTION.search(drafted) or IDENTIFIER.search(drafted)
        return not named and not content_words(self.question) & self._words(drafted)

    def only_signature(self, text: str) -> bool:
        """Whether a text is how something is called, and that is not what is asked."""
        return _is_called(text) and not _OF_SIGNATURE.search(self.question)

    def may_say(self, claim: str, found: str, source: Source) -> bool:
        """Whether a claim says what was found for what was asked, and its source holds it."""
        words, basis = self._words(claim), f"{found} {self.question} {source.title}"
        turned = "not" in words and "not" not in self._words(basis)
        turned = turned or bool(contradiction(claim, closest_sentence(claim, source.text)))
        least = self._words(found)
        whole = len(least & words) >= WHOLE * len(least)
        said = len(words) >= LEAST_SAID and overlap(claim, basis) >= FAITHFUL
        if not (said and whole) or turned or self.only_signature(claim):
            return False
        return holds(source, claim) and (is_prose(claim) or asks_for(self.question) != "words")

    def is_entry(self, said: str) -> bool:
        """Whether a text is the entry of what a question sets to a value, or asks what it does."""
        if asked := _WHAT_DOES.fullmatch(self.question):
            return said.casefold().split()[:1] == [asked[1].casefold()]
        return _parameter_of(said) in _SET.findall(self.question)

    def default_in(self, source: Source) -> str:
        """The words of a source on the default of the one parameter that is asked for.

        On its own page the parameter's entry, else the whole signature; of another page of a
        library that the question names the signature, where the question has the parameter in
        other words. "" where no default is asked for, or that of several.
        """
        if not ASKS_DEFAULT.search(self.question):
            return ""
        asked = [word.casefold().rpartition(".")[2] for word in WORD.findall(self.question)]
        head = source.text.strip().partition("\n")[0]
        head = head if head.startswith(f"{source.title}(") and len(head) < QUOTE_CHARACTERS else ""
        worded = worded_defaults(self.question, head)
        if source.title.casefold().rpartition(".")[2] not in asked:
            of_it = source.title.casefold().partition(".")[0] in asked
            return head if of_it and len(worded) == 1 else ""
        told = dict.fromkeys(_GIVEN.findall(head), head)
        for entry in ENTRY.split(f"\n{source.text}")[1:]:
            said = (
                s for s in quotable_sentences(entry) if DEFAULT.search(s) and not _NONE.search(s)
            )
            if (text := next(said, "")) and (name := _parameter_of(entry)):
                told[name] = text
        meant = [name for name in told if name.casefold() in asked]
        # `num`, where the number of samples is asked for.
        short = (n for n in told if len(n) > 2 and any(w.startswith(n.casefold()) for w in asked))
        meant = meant or [name for name in worded if name in told] or [*short]
        if counted := _COUNTS_WHAT.search(self.question):
            number = re.compile(rf"\bnumber of {re.escape(counted[1])}", re.I)
            meant = meant or [name for name in told if number.search(told[name])]
        if not meant and head and _AMOUNT.search(self.question):
            meant = [name for name in _COUNTED.findall(head) if told.get(name)]
        return " ".join(told[meant[0]].split()) if len(meant) == 1 else ""
