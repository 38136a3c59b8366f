"""The words by which texts meet: a claim and a passage, a question and a page.

Words are lower-cased and brought to a light stem (plural, -ing, -ed and a last -e go, which makes
"caching", "cached" and "caches" one word); of content words identifiers count by their parts
(`lru_cache` is "lru" and "cache"), and negations count, since they turn a claim round. The overlap
of a claim and a passage is cheap and blind to meaning: it says where to look, never that a claim
holds.

What narrows a query (`year:2019-2021`, `field:"Computer Science"`) travels inside its text, so that
the journal, a resume and the report show it as asked; sources that cannot narrow leave it out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from rubricem.memory.schema import Passage

_VOWEL = re.compile("[aeiouy]")
_KEEP_DOUBLE = frozenset("lsz")

_STOP_WORDS = """
    a about after all also an and any are as at be because been before being between both
    but by can could did do does doing done each for from had has have having he her here
    him his how i if in into is it its itself just may me might more most must my no nor not
    now of off on once only or other our out over own same shall she should so some such
    than that the their them then there these they this those through to too under until up
    upon us very was we were what when where whether which while who whom whose why will
    with would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def stem(word: str) -> str:
    """A light English stem of a lower-case word."""
    word = _singular(word)
    for ending, shortest in (("ing", 6), ("ed", 6)):
        if word.endswith(ending) and len(word) >= shortest:
            rest = word[: -len(ending)]
            if _VOWEL.search(rest):
                doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in _KEEP_DOUBLE
                word = rest[:-1] if doubled else rest
            break
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def _singular(word: str) -> str:
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    return word[:-1]


_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""scripts that are written without spaces: each character is a word"""
_WORD = re.compile(
    rf"\d+(?:[.,]\d+)*+(?![^\W_])|[{_WIDE}]|[^\W_{_WIDE}]+(?:['\u2019][^\W_{_WIDE}]+)?+"
)
_STOP = STOP_WORDS - {"no", "nor", "not"}
NAME = re.compile(r"\w[._]\w|[a-z][A-Z]")
"""inside a word: it is an identifier"""
_ADDRESS = re.compile(r"https?://\S+")
SIGNATURE = re.compile(r"[\w.]+\([^\n]*\)(?:[ ]->[^\n]*)?|[\w.]+")
_BLANK_LINE = re.compile(r"\n[ \t]*\n\s*")
_LINE_ITEM = re.compile(r"\n(?=[^\S\n]*(?:[-*•]|\d+[.)])\s)|(?<=[):])\n(?=[^\S\n]*[^\sa-z])")
_FULL_STOP = re.compile(r"[.!?]['\")\]\u201d\u2019`*]*+\s+(?=[^\sa-z])|[\u3002\uff01\uff1f]")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|cf|vs|dr|mr|mrs|ms|prof|fig|no|st)|\b[A-Z])\.$", re.I
)


MOST_KEPT = 8000
"""characters of a text whose words are kept to be met again: each claim meets each passage"""


def content_words(text: str) -> frozenset[str]:
    """The distinct words that carry the text's content, reduced to a common form."""
    return _met_again(text) if len(text) <= MOST_KEPT else _words_in(text)


def _words_in(text: str) -> frozenset[str]:
    # Each distinct word once: prose says most of its words again.
    return frozenset(map(_form, {*_WORD.findall(text)})) - {""}


_met_again = lru_cache(1024)(_words_in)


@lru_cache(128)
def _parts(passage: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """The sentences of a passage, each with its content words but for those of addresses."""
    return tuple((part, content_words(_ADDRESS.sub(" ", part))) for part in sentences(passage))


def overlap(claim: str, passage: str) -> float:
    """Share of the claim's content words found in the passage; 0 if the claim has none."""
    words = content_words(claim)
    return len(words & content_words(passage)) / len(words) if words else 0.0


def closest_sentence(claim: str, passage: str) -> str:
    """The sentence of the passage that shares most words with the claim, as it stands there.

    Addresses do not count, and a signature counts half: it shares names with any claim about
    what it names. Of equals the shortest in words, then the first. "" if none shares a word.
    """
    words = content_words(claim)
    best, best_rank = "", (0.0, 0)
    for sentence, found in _parts(passage):
        weight = 0.5 if SIGNATURE.fullmatch(sentence) else 1.0
        rank = (weight * len(words & found), -len(found))
        if rank[0] and rank > best_rank:
            best, best_rank = sentence, rank
    return best


MOST_RESTED = 3
"""sentences that a claim is taken to rest on"""
ENOUGH_HELD = 0.6
"""of a claim's content words, below which its sentences are read with those beside them"""


def rested_on(claim: str, passage: str, *, beside: bool = False) -> tuple[str, ...]:
    """What of the passage the claim rests on, verbatim and in its order; () if nothing.

    The closest sentence, and others that have a number of the claim, or two of its words, which
    those before lack. Where the claim's words are still mostly not there, `beside` adds the
    sentences on both sides of the closest. Sentences that stand side by side are one piece.
    """
    closest = closest_sentence(claim, passage)
    if not closest:
        return ()
    parts = [part for part, _ in _parts(passage)]
    words = content_words(claim)
    held = [words & found for _, found in _parts(passage)]
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


def sentences(text: str) -> Iterator[str]:
    """The sentences, list items and paragraphs of a text, without the space around them."""
    for paragraph in _BLANK_LINE.split(text):
        for item in _LINE_ITEM.split(paragraph):
            start = 0
            for stop in _FULL_STOP.finditer(item):
                if not _ABBREVIATION.search(item[max(start, stop.start() - 6) : stop.start() + 1]):
                    yield item[start : stop.end()].strip()
                    start = stop.end()
            if rest := item[start:].strip():
                yield rest


def folded(query: str) -> str:
    """A query as it is compared with others."""
    return " ".join(query.casefold().split())


def phrase(text: str) -> str:
    """The words of a text alone, case folded: what stands in another whole stands there as such."""
    return " ".join(re.findall(r"\w+", text.casefold()))


_PARTICLES = frozenset(
    """of the de la le du da di del der den des von van zu al el bin ibn ben mac y e""".split()  # noqa: SIM905
)
_TOKEN = re.compile(r"[^\s,;:()\[\]{}\"\u201c\u201d/|]+|[,;:()\[\]{}\"\u201c\u201d/|]")


def names(text: str) -> list[str]:
    """The runs of capitalised words of a text, joined over particles, in order."""
    return [span for span, _ in name_spans(text)]


def name_spans(text: str) -> list[tuple[str, tuple[int, int]]]:
    """The same, each with its first and last offset in characters."""
    spans: list[tuple[int, int]] = []
    held: list[re.Match[str]] = []

    def close() -> None:
        while held and not _proper(held[-1][0]):
            held.pop()
        while held and held[0][0].casefold().strip(".'") in STOP_WORDS:
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
        if _proper(word) or (held and word in _PARTICLES):
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


@lru_cache(2**16)
def _form(written: str) -> str:
    """The common form of a word as it is written; "" for one without content."""
    word = written.lower().replace("\u2019", "'")
    if word in _STOP:
        return ""
    if word.endswith("n't"):
        return "not"
    if word[0].isdigit():
        return word.replace(",", "")
    return stem(word.removesuffix("'s"))


def nearest(passages: Sequence[Passage], sought: str, question: str, most: int) -> list[Passage]:
    """The passages with most of the words sought, then of the question's, in the page's order."""
    wanted = content_words(sought), content_words(question)
    words = [content_words(f"{passage.place} {passage.text}") for passage in passages]

    def rank(i: int) -> tuple[int, int, int]:
        first, second = (len(each & words[i]) for each in wanted)
        return -first, -second, i

    return [passages[i] for i in sorted(sorted(range(len(passages)), key=rank)[:most])]


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


def narrowed(query: str, attributes: Mapping[str, str]) -> str:
    """The query of a tool call with what its attributes narrow written into it."""
    years = attributes.get("year") or attributes.get("years") or ""
    fields = known_fields(attributes.get("field") or attributes.get("fields") or "")
    if re.fullmatch(_YEARS, years):
        query += f" year:{years}"
    return f'{query} field:"{",".join(fields)}"' if fields else query
