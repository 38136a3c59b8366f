"""The words by which texts are compared: a claim and a passage, a question and a page.

`memory.language` defines what a word is. Among content words identifiers count by their parts
(`lru_cache` is "lru" and "cache"), and negations count, since they reverse a claim. Two texts that
are compared are read in one language, that of the claim or question, so that a fragment without a
telling word (a name, a title) matches the words of the whole. The overlap of a claim and a passage
is cheap and blind to meaning: it says where to look, never that a claim holds.

Filters of a query (`year:2019-2021`, `field:"Computer Science"`) are part of its text, so that the
journal, a resume and the report show it as asked; sources that cannot filter leave them out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from rubricem.memory.language import (
    LETTER,
    beginning,
    language_of,
    language_with,
    length,
    sentences,
    stands,
    stop_words,
    words_in,
)
from rubricem.memory.schema import Passage

NAME = re.compile(r"\w[._]\w|[a-z][A-Z]")
"""inside a word: it is an identifier"""
IDENTIFIER = re.compile(
    rf"(?<!{LETTER})(?:(?!\d){LETTER}++(?:\.{LETTER}+)+|{LETTER}*[a-z]_{LETTER}+)"
)
"""`shutil.rmtree`, `max_depth`"""
_ADDRESS = re.compile(r"https?://\S+")
_DOTTED = rf"(?:{LETTER}|\.)+"
SIGNATURE = re.compile(rf"{_DOTTED}\([^\n]*\)(?:[ ]->[^\n]*)?|{_DOTTED}")

MOST_KEPT = 8000
"""characters of a text whose words are kept to be met again: each claim meets each passage"""


def dotted_names(text: str) -> list[str]:
    """The dotted identifiers of a text as they stand there: `shutil.rmtree`."""
    return [name for name in IDENTIFIER.findall(text) if "." in name]


_COMMAND_PAGE = re.compile(r"([a-z][\w.+]*-[\w.+-]*?)(?:\(\d\w*\)|\.\d)")
"""the title of a manual's page, of a command that no text has by chance: git-blame(1)"""
_ALIASES = {"numpy": "np", "pandas": "pd", "matplotlib": "plt"}
"""by what name people know a library"""


def names_page(text: str, title: str) -> bool:
    """Whether a text has what a page is of, as people write it: `git blame`, `pandas cut`."""
    if command := _COMMAND_PAGE.fullmatch(title):
        return stands(command[1], text) or stands(command[1].replace("-", " "), text)
    if dotted_names(title) != [title]:
        return False
    library, *_, last = title.split(".")
    # Two words may stand together by chance: "how to list".
    parts = [last.replace("_", " ")] if last.strip("_").count("_") > 1 else []
    known = (library, _ALIASES.get(library, library))
    named = (f"{name}{mark}{last}" for name in known for mark in " .")
    return any(stands(name, text) for name in (*parts, *named))


_LEADING = re.compile(
    r"\W*(?:after|before|when|whenever|once|if|while|given|with|without|in|on|inside|within|using|"
    r"for|from|as|during)\b[^,?;:]*,\s+(?=(?:how|what|which|where|who|why|when|is|are|can|could|"
    r"does|do|did|should|may|must|will)\b)",
    re.I,
)


def main_clause(question: str) -> str:
    """A question without what leads up to it ("After merging two tables, how can I tell")."""
    return _LEADING.sub("", question, count=1)


def content_words(text: str, language: str = "") -> frozenset[str]:
    """The distinct words that carry the text's content, reduced to a common form.

    `language`: of the whole that the text is a part of, or is held against; "": the text's own.
    """
    return _met_again(text, language) if len(text) <= MOST_KEPT else words_in(text, language)


_met_again = lru_cache(8192)(words_in)  # the sentences of the sources of 64 runs at once


@lru_cache(512)
def _parts(passage: str, language: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """The sentences of a passage, each with its content words but for those of addresses."""
    language = language or language_of(passage)
    return tuple(
        (part, content_words(_ADDRESS.sub(" ", part), language)) for part in sentences(passage)
    )


DEFAULT = re.compile(r"\bdefaults?\b", re.I)
ASKS_DEFAULT = re.compile(
    r"\bdefaults?\b|\bby (?:itself|themselves)\b"
    r"|\b(?:unless I|(?:if|when) I (?:don'?t|do not|did ?n'?t|only|just)) "
    r"(?:say|tell|give|pass|set|specify|name|choose)\b"
    r"|\bwithout (?:saying|telling|giving|passing|setting|specifying|naming|choosing)\b",
    re.I,
)
"""a question on a default, also in a person's words: "if I don't tell it\""""
LONGEST_SIGNATURE = 2_000
"""characters of a first line that are read as one; others' texts may have no end of it"""
_LITERAL = re.compile(r"\b(\w+)(?:: [^=(),]+)?=(?=True\b|False\b|[\d'\"])")


def worded_defaults(question: str, text: str) -> list[str]:
    """The parameters of a signature on whose default a question is, in words of its own.

    `follow_redirects`, where `follow_redirects=False` stands and it is asked whether redirects are
    followed by default. One word is too little to tell that it is meant.
    """
    if not ASKS_DEFAULT.search(question):
        return []
    asked = content_words(question)
    head = text[:LONGEST_SIGNATURE].partition("\n")[0]
    parts = {name: content_words(name) for name in _LITERAL.findall(head)}
    return [name for name, words in parts.items() if len(words) > 1 and words <= asked]


def overlap(claim: str, passage: str) -> float:
    """Share of the claim's content words found in the passage; 0 if the claim has none."""
    language = language_with(claim, passage)
    words = content_words(claim, language)
    return len(words & content_words(passage, language)) / len(words) if words else 0.0


def closest_sentence(claim: str, passage: str) -> str:
    """The sentence of the passage that shares most words with the claim, as it stands there.

    Addresses do not count, and a signature counts half: it shares names with any claim about
    what it names. Of equals the shortest in words, then the first. "" if none shares a word.
    """
    language = language_with(claim, passage)
    words = content_words(claim, language)
    best, best_rank = "", (0.0, 0)
    for sentence, found in _parts(passage, language):
        weight = 0.5 if SIGNATURE.fullmatch(sentence) else 1.0
        rank = (weight * len(words & found), -len(found))
        if rank[0] and rank > best_rank:
            best, best_rank = sentence, rank
    return best


OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
"""of a command: `-f`, `--force`"""
TYPED = re.compile(r"`([^`\n]+)`")
"""what stands between backticks"""


def exact_names(text: str, question: str) -> frozenset[str]:
    """What a text names exactly, and the question does not.

    That is options, numbers, identifiers, and the words of what stands between backticks.
    """
    typed = re.findall(r"[A-Za-z][\w.-]*", " ".join(TYPED.findall(text)))
    exact = {*OPTION.findall(text), *IDENTIFIER.findall(text), *re.findall(r"\d+", text), *typed}
    return frozenset(word for word in exact if not stands(word, question))


MOST_RESTED = 3
"""sentences that a claim is taken to rest on"""
ENOUGH_HELD = 0.6
"""of a claim's content words, below which its sentences are read with those beside them"""


def find_support(claim: str, passage: str, *, beside: bool = False) -> tuple[str, ...]:
    """What of the passage the claim rests on, verbatim and in its order; () if nothing.

    The closest sentence, and others that have a number of the claim, or two of its words, which
    those before lack. Where the claim's words are still mostly not there, `beside` adds the
    sentences on both sides of the closest. Sentences that stand side by side are one piece.
    """
    closest = closest_sentence(claim, passage)
    if not closest:
        return ()
    language = language_with(claim, passage)
    parts = [part for part, _ in _parts(passage, language)]
    words = content_words(claim, language)
    held = [words & found for _, found in _parts(passage, language)]
    kept = {parts.index(closest)}
    covered = set(held[parts.index(closest)])
    while len(kept) < MOST_RESTED:
        gains = [_gain(each - covered) for each in held]
        best = max(range(len(parts)), key=lambda i: (gains[i], -len(parts[i])))
        if gains[best] < 2:
            break
        kept.add(best)
        covered |= held[best]
    if beside and len(covered) < ENOUGH_HELD * len(words):
        middle = parts.index(closest)
        kept |= {i for i in (middle - 1, middle + 1) if 0 <= i < len(parts)}
    return tuple(_pieces(passage, parts, sorted(kept)))


def _gain(words: set[str] | frozenset[str]) -> int:
    """How much it says to have these words; a number is worth two."""
    return sum(2 if word[0].isdigit() else 1 for word in words)


def _pieces(passage: str, parts: Sequence[str], kept: Sequence[int]) -> Iterator[str]:
    spans, at = [], 0
    for part in parts:
        start = passage.index(part, at)
        at = start + len(part)
        spans.append((start, at))
    begun = kept[0]
    for here, after in pairwise([*kept, len(parts) + 1]):
        if after != here + 1:
            yield passage[spans[begun][0] : spans[here][1]]
            begun = after


def fold(query: str) -> str:
    """A query as it is compared with others."""
    return " ".join(query.casefold().split())


def phrase(text: str) -> str:
    """The words of a text alone, case folded: what stands in another whole stands there as such."""
    return " ".join(re.findall(r"\w+", text.casefold()))


_PARTICLES = frozenset(
    """of the de la le du da di del der den des von van zu al el bin ibn ben mac y e""".split()  # noqa: SIM905
)
_ARTICLED = re.compile(r"(?:al|el|as|ar|ad|an|at|az)[-\u2011][A-Z\u02bb'\u2019]")
"""a later part of a name: "Harun al-Rashid\""""
_TOKEN = re.compile(r"[^\s,;:()\[\]{}\"\u201c\u201d/|]+|[,;:()\[\]{}\"\u201c\u201d/|]")


def names(text: str) -> list[str]:
    """The runs of capitalised words of a text, joined over particles, in order.

    German writes each noun so, and of it a noun counts.
    """
    return [span for span, _ in name_spans(text)]


def name_spans(text: str) -> list[tuple[str, tuple[int, int]]]:
    """The same, each with its first and last offset in characters."""
    binding = stop_words(language_of(text))
    spans: list[tuple[int, int]] = []
    held: list[re.Match[str]] = []

    def close() -> None:
        while held and not (_proper(held[-1][0]) or _ARTICLED.match(held[-1][0])):
            held.pop()
        while held and held[0][0].casefold().strip(".'¿¡«„") in binding:
            held.pop(0)
        if held:
            spans.append((held[0].start(), held[-1].end()))
        held.clear()

    end = 0
    for token in _TOKEN.finditer(text):
        word = token[0]
        if text.count("\n", end, token.start()) > 1:
            close()
        end = token.end()
        if _proper(word) or (held and (word in _PARTICLES or _ARTICLED.match(word))):
            held.append(token)
            if word[-1] in ".!?" and len(word) > 3:
                close()
        else:
            close()
    close()
    return [(_bare(" ".join(text[a:b].split())), (a, b)) for a, b in spans]


def _bare(span: str) -> str:
    """A name without the possessive and the marks behind it."""
    return re.sub(r"['\u2019]s$", "", span.rstrip(".!?-'\u2019"))


def _proper(word: str) -> bool:
    return word[0].isupper() or (word[0].isdigit() and len(word) < 5)


def nearest(passages: Sequence[Passage], sought: str, question: str, most: int) -> list[Passage]:
    """The passages with most of the words sought, then of the question's, in the page's order."""
    language = language_of(question)
    wanted = content_words(sought, language), content_words(question, language)
    words = [content_words(f"{passage.place} {passage.text}", language) for passage in passages]

    def rank(i: int) -> tuple[int, int, int]:
        first, second = (len(each & words[i]) for each in wanted)
        return -first, -second, i

    return [passages[i] for i in sorted(sorted(range(len(passages)), key=rank)[:most])]


CUT = " ..."
CHARACTERS_A_WORD = 10


def part_saying(text: str, words: int, said: str) -> str:
    """The part of a sentence up to where it has said something, and half the words beside it.

    From its beginning, where that is near: at most `words` words before the end of what is said.
    """
    at = text.find(said)
    if at < 0:
        return cut_words(text, words)
    sentence = max((match.end() for match in _SENTENCE_END.finditer(text, 0, at)), default=0)
    lead = text[sentence:at]
    before = lead.split()
    near = len(before) + len(said.split()) <= words
    lead = lead if near else f"{CUT.strip()} {' '.join(before[-words // 2 :])} "
    behind = cut_words(text[at + len(said) :], words // 4)
    return f"{lead.lstrip()}{said}{behind}"


_SENTENCE_END = re.compile(r"[.!?]\s+(?=[^\sa-z])")


def part_about(text: str, words: int, query: str) -> str:
    """The run of whole sentences, of at most `words` words, that has most words of a query.

    Of equals the first; the sentence itself, cut, where it is longer than that.
    """
    if length(text) <= words:
        return text
    spans, at = list[tuple[int, int, frozenset[str]]](), 0
    language = language_of(query)
    wanted = content_words(query, language)
    for said in sentences(text):
        at = text.index(said, at)
        spans.append((at, at + len(said), wanted & content_words(said, language)))
        at += len(said)
    best, best_rank = (0, 0), (-1, 0)
    for first in range(len(spans)):
        held, total = set[str](), 0
        for last in range(first, len(spans)):
            if last > first and length(text[spans[first][0] : spans[last][1]]) > words:
                break
            held |= spans[last][2]
            total += len(spans[last][2])
            if (len(held), total) > best_rank:
                best, best_rank = (first, last), (len(held), total)
    start = spans[best[0]][0]
    # What there is room for behind it tells on.
    shown = cut_words(text[start:], words)
    return f"... {shown}" if start else shown


def cut_words(text: str, words: int) -> str:
    """The first `words` words of a text, with CUT where it goes on.

    White space is kept and counts nothing, as code and tables are indented; what has no
    spaces is cut by length.
    """
    room = words * CHARACTERS_A_WORD
    shown = beginning(text, words)
    if len(shown) > room:
        # One pass, which nothing undoes.
        within = re.match(rf"(?:\s*+\S){{0,{room}}}+", text)
        shown = min(shown, within[0] if within else "", key=len)
    return shown + CUT if len(shown) < len(text.rstrip()) else text


_YEARS = r"\d{4}(?:-(?:\d{4})?)?|-\d{4}"
_NARROWING = re.compile(
    rf"(?<!\S)(?:years?:(?P<years>{_YEARS})|fields?:(?:\"(?P<quoted>[^\"]+)\"|(?P<bare>\S+)))(?!\S)",
    re.I,
)
_FIELD_NAMES = (
    "Agricultural and Food Sciences, Art, Biology, Business, Chemistry, Computer Science, "
    "Economics, Education, Engineering, Environmental Science, Geography, Geology, History, "
    "Law, Linguistics, Materials Science, Mathematics, Medicine, Philosophy, Physics, "
    "Political Science, Psychology, Sociology"
)
_FIELDS = {name.casefold(): name for name in _FIELD_NAMES.split(", ")}
"""fields of study as Semantic Scholar names them"""


@dataclass(frozen=True, slots=True)
class Query:
    """`years` is "2020", "2019-2021", "2019-", "-2021", or "" for any."""

    text: str
    years: str = ""
    fields: tuple[str, ...] = ()


def read_query(written: str) -> Query:
    """The words, the years and the fields of study of a query; the last named years count."""
    years, fields = "", dict[str, None]()

    def take(found: re.Match[str]) -> str:
        nonlocal years
        if found["years"]:
            years = found["years"]
            return ""
        named = known_fields(found["quoted"] or found["bare"])
        fields.update(dict.fromkeys(named))
        return "" if named else found[0]

    text = _NARROWING.sub(take, written)
    return Query(" ".join(text.split()), years, tuple(fields))


def known_fields(names: str) -> tuple[str, ...]:
    """The fields in a list with commas, spelt as they are known; () if any is unknown."""
    found = [_FIELDS.get(" ".join(name.split()).casefold()) for name in names.split(",")]
    return () if None in found else tuple(name for name in found if name)


def narrow_query(query: str, attributes: Mapping[str, str]) -> str:
    """The query of a tool call with what its attributes narrow written into it."""
    years = attributes.get("year") or attributes.get("years") or ""
    fields = known_fields(attributes.get("field") or attributes.get("fields") or "")
    if re.fullmatch(_YEARS, years):
        query += f" year:{years}"
    return f'{query} field:"{",".join(fields)}"' if fields else query
