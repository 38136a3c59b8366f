"""What a reflection must be before it may enter the bank: short, plain, and nobody's mouthpiece.

A model wrote it after reading pages that anybody may have written, and it will precede the
questions of later runs. So its text is stripped to plain lines and capped; what looks like somebody
else's words is flagged, and a flagged reflection waits for a person. This is a second line: it can
only reduce the danger, and readers of the bank still treat its contents as untrusted text.

Flagged is what does not depend on wording: text copied from what the run read, addresses, markers
of chat templates, hidden parts and characters, encoded text, secrets. Of wording only the commonest
orders are known, in English (`orders.toml`); a paraphrase that the rules have no words for gets
through. What counts there is not the mood, since a reflection is full of advice, but the subject:
dropping one's instructions, another role, hiding, leaving out citations, an answer or a name
decided beforehand, an action other than research, being passed on.

A text has copied from what the run read if `SHINGLE` consecutive words occur there in the same
order, however they were formatted: both are compared as words without case, punctuation, markup and
invisible characters. Naming the same facts copies short sequences; longer ones count. A whole
sentence also counts when it is shorter, if it speaks of answering, citing or readers: pages of the
world speak of the world, and one that speaks of its reader's work is addressing an agent.
"""

import html
import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from rubricem.memory.errors import SettingsError
from rubricem.memory.language import SENTENCE_END, sentences
from rubricem.memory.schema import Reflection
from rubricem.memory.text import printable

ROUNDS = 4
"""removing a tag may join the halves of another; what still looks like one is then no tag"""

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,30});")
_UNSEEN = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180e\u3164\uffa0\U000e0080-\U000e01ef]"
)
_MARKERS = re.compile(
    r"<[|\uff5c][^<>|\uff5c\n]{1,64}[|\uff5c]>"
    r"|</?(?:start_of_turn|end_of_turn|bos|eos|s)>|<</?SYS>>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\]",
    re.I | re.A,
)
_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<\s*(script|style|template)\b[^>]*>.*?(?:<\s*/\s*\1\s*>|\Z)", re.I | re.S
)
_CALLS = re.compile(
    r"<\s*(call_tool|tool_call|tool_output|tool_response|function_call|invoke)\b[^>]*>"
    r"(?:[\s\S]{0,2000}?<\s*/\s*\1\s*>|[^\n]*)"
    r'|\{\s*"(?:name|tool|function|action|tool_calls?)"\s*:'
    r"(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\}"
    r"|^[ \t]*(?:[-*+][ \t]*)?(?:search|tool(?: call)?|action input|open[_ ]page)[ \t]*:[^\n]*$"
    r"|(?<![\w.])(?:search|open_page|call_tool)\(\s*[\"'][^()\n]*\)",
    re.I | re.M,
)
_QUERY = re.compile(
    r"<\s*call_tool\s+name=[\"']?search[\"']?[^<>]*>([^<>{}\"]{1,300})<\s*/\s*call_tool\s*>"
    r"|^([ \t]*(?:[-*+][ \t]*)?)search[ \t]*:[ \t]*([^<>{}\"\n]+)$",
    re.I | re.M,
)
"""a call that searches: its words are often the lesson, and stay as a quotation"""
_LINK = re.compile(
    r"!?\[([^\[\]\n]{0,300})\](?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)?\)|\[[^\[\]\n]*\])"
)
_REFERENCE = re.compile(r"^[ \t]*\[[^\]\n]+\]:[ \t]*\S[^\n]*$", re.M)
_GENERIC = re.compile(
    r"(?<=\w)<(?!(?:[abipqsu]|em|tt|h[1-6]|hr|kbd|sub|sup|del|ins|code|span|font|mark|strong)>)"
    r"([A-Za-z][\w. ]{0,60})>"
)
"""written in programs but not in HTML: it is no tag, and must not look like one"""
_BREAK = re.compile(r"</?(?:br|p|li|ul|ol|div|tr|td|h[1-6])\b[^<>]*>", re.I)
_TAG = re.compile(
    r"<\s*+/?+\s*+[A-Za-z_][\w:.-]*+\s*+/?+\s*+>"
    r"|</?[A-Za-z_][\w:.-]*+\s[^<>]*>"
    r"|<\s*+/?+\s*+[A-Za-z_][\w:.-]*+\s++[\w:-]++\s*+=[^<>]*>"
    r"|<[!?][^<>]*>"
)

_PORT_AND_PATH = r"(?::\d+)?(?:[/?#][^\s<>\"']*)?"
_LABELS = r"(?<![\w.@/-])(?:[a-z0-9][a-z0-9-]{0,62}\.){1,6}"
_ADDRESS = re.compile(
    r"\b(?:[a-z][a-z0-9+.-]{1,15}://|(?:mailto|javascript):|data:[a-z]+/|www\.)[^\s<>\"']+"
    r"|\b[\w.+-]{1,64}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){0,5}\.[a-z]{2,}\b"
    rf"|{_LABELS}(?:com|org|(?-i:net)|edu|gov|mil|onion|xyz|biz|ru|cn|tk|club|online|shop|example"
    rf"|invalid)\b(?!\.?\w|\(){_PORT_AND_PATH}"
    # Endings that are also names in programs: only what goes on like an address is one.
    rf"|{_LABELS}[a-z]{{2,10}}(?::\d+)?/[^\s<>\"']*"
    r"|(?:(?<=\bvisit )|(?<=\bsite )|(?<=\bdomain ))[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,6}"
    rf"|\b(?!127\.|0\.|255\.)\d{{1,3}}(?:\.\d{{1,3}}){{3}}\b(?!\.){_PORT_AND_PATH}"
    r"|\blocalhost:\d+[^\s<>\"']*"
    r"|\b[\w-]{1,63}(?:\s?[\[({]\s?(?:\.|dot)\s?[\])}]\s?|\sdot\s)(?:com|org|net|io|dev|ai|ru)\b",
    re.I | re.A,
)
_PATH = re.compile(
    r"(?<![\w./<~])(?:~|\.{1,2})?/(?:[\w.@+-]+/)+[\w.@+-]*|(?<!\w)(?:~|\.\.)/[\w.@+-]+"
    r"|\b[A-Za-z]:\\[^\s\"']+|\\\\\w+\\[^\s\"']+"
)
_LEFT_ALONE = re.compile(
    r"(?<=\s)[(\[{<\"'\u2039] ?[)\]}>\"'\u203a](?=[\s.,;:!?]|$)| (?=[.,;:!?](?:\s|$))", re.M
)
_TWICE = re.compile(r"([,;:]) ?(?=[,;:.!?])")
_NO_WORD = re.compile(r"^[^\w\n]+$", re.M)


@dataclass(frozen=True, slots=True)
class Stripped:
    """The text as it may be stored, and what was removed from it."""

    text: str
    addresses: tuple[str, ...]
    unseen: int
    """invisible characters"""
    markers: tuple[str, ...]
    """of chat templates"""
    hidden: bool
    """whether it had a part that a page would not show"""


def strip_markup(text: str) -> Stripped:
    """The plain text in lines; never longer than it was."""
    shown = visible(text)
    unseen = len(re.sub("[\r\n]", "", text)) - len(re.sub("[\r\n]", "", shown))
    markers = tuple(_MARKERS.findall(entities_read(shown)))
    hidden = _HIDDEN.search(entities_read(shown)) is not None
    plain = shown
    for _ in range(ROUNDS):
        before = plain
        plain = _HIDDEN.sub(" ", _MARKERS.sub("", entities_read(plain)))
        plain = _QUERY.sub(lambda at: f'{at[2] or ""}"{(at[1] or at[3]).strip()}" ', plain)
        plain = _LINK.sub(r"\1", _REFERENCE.sub("", _CALLS.sub(" ", plain)))
        plain = _TAG.sub("", _GENERIC.sub(r"[\1]", _BREAK.sub("\n", plain)))
        if plain == before:
            break
    addresses = tuple(match.group().rstrip(".,;:!?)]}'\"") for match in _ADDRESS.finditer(plain))
    left = _PATH.sub("", _ADDRESS.sub("", plain)).split("\n")
    tidy = "\n".join(" ".join(line.split()) for line in left)
    for pattern in (_LEFT_ALONE, _TWICE, _NO_WORD):
        tidy = pattern.sub("", tidy)
    tidy = re.sub(r"\n{3,}", "\n\n", re.sub(" +$", "", tidy, flags=re.M)).strip()
    return Stripped(tidy, addresses, unseen, markers, hidden)


def visible(text: str) -> str:
    """The text without characters that are invisible on a page."""
    return unicodedata.normalize("NFC", _UNSEEN.sub("", printable(text)))


def entities_read(text: str) -> str:
    """The text with its HTML character references decoded."""
    return _ENTITY.sub(lambda match: html.unescape(match.group()), text)


QUOTED = 80
"""characters of the offending words in a flag"""
BOND = "claims a past or a bond with its reader"
_WORD_PLACE = re.compile(r"\{([A-Z_]+)\}")


@cache
def _rules() -> dict[str, Any]:
    text = (files("rubricem.memory.screening") / "orders.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _pattern(text: str) -> str:
    """A pattern of the rules with the word lists inserted."""
    return _WORD_PLACE.sub(lambda at: _pattern(_rules()["words"][at[1]]), text.replace("\n", ""))


@cache
def _orders() -> Mapping[str, re.Pattern[str]]:
    """What a reflection does -> the pattern of words that do it.

    Compiled when something is first screened: it takes a tenth of a second.
    """
    return {
        what: re.compile("|".join(f"(?:{_pattern(one)})" for one in patterns), re.I)
        for what, patterns in _rules()["orders"].items()
    }


def orders(text: str, *, asked: bool = False) -> Iterator[str]:
    """A sentence for each thing that the text does to its reader, with the words that do it.

    `asked`: it is a question, which may speak of itself and to its reader.
    """
    plain = fold(text)
    for what, pattern in _orders().items():
        if (match := pattern.search(plain)) and not (asked and what == BOND):
            yield f'It {what}: "{match.group().strip(" .,:;!?-")[:QUOTED]}".'


_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u03bf\u03b1\u03bd\u0131"
    "\u04bb\u051b\u051d\u0261\u03c1\u03c4\u03ba"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0405\u0391\u039f"
    "\u0392\u0395\u0397\u0399\u039a\u039c\u039d\u03a1\u03a4\u03a5\u03a7",
    "aeopcyxijsdoavihqwgptkABEKMHOPCTXISAOBEHIKMNPTYX",
)
"""Cyrillic and Greek letters that look like Latin ones"""
_EMPHASIS = re.compile(r"[*`~]+|\b_+|_+\b")
_ITEM = re.compile(r"\n\s*(?:[-+\u2022]|\d{1,2}[.)])\s+|\n\s*\n\s*")


def fold(text: str) -> str:
    """The text as it reads: letters by their look, one clause after another, no emphasis."""
    plain = unicodedata.normalize("NFKD", visible(entities_read(text)).translate(_LOOKALIKES))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return " ".join(_EMPHASIS.sub("", _ITEM.sub(". ", plain.replace("\u2019", "'"))).split())


SHINGLE = 8
"""words"""
COPIED_WORDS, COPIED_LETTERS = 12, 36
"""length of one copied passage from which it counts; letters, for scripts without spaces"""
COPIED_SHARE = 0.3
"""share of a text's shingles from which it counts as compiled from sources"""
LEAST_SHINGLES = 8
"""fewest shingles of a text for which a share is computed: 15 words"""
SENTENCE_WORDS = 6
"""least length of a whole copied sentence about the reader's work"""

_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_COMPARED = re.compile(rf"[{_WIDE}]|[^\W_{_WIDE}]+")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]{0,200}>")
_WORK_WORDS = (
    "agent answer answers assistant citation citations cite cited cites citing instructions note"
    " query queries question questions reader recommend recommends reflection report reports"
    " rubric rubrics search source sources user"
)
_WORK = frozenset(_WORK_WORDS.split())
"""words for what a research agent does and for whom"""


@dataclass(frozen=True, slots=True)
class Copied:
    """How much of a text occurs in its sources."""

    passage: str
    """its longest copied passage, as words"""
    words: int
    letters: int
    share: float
    """of the text's shingles, 0 to 1; 0 for a text too short to say"""
    order: str
    """a whole copied sentence about the reader's work, as words, or "" """

    @property
    def counts(self) -> bool:
        """Whether it is more than naming the same things."""
        long = self.words >= COPIED_WORDS and self.letters >= COPIED_LETTERS
        return long or self.share >= COPIED_SHARE or bool(self.order)


def find_copied(text: str, sources: Sequence[str]) -> Copied:
    words = words_of(text)
    said = [words_of(sentence) for sentence in sentences(text)]
    orders = [" ".join(s) for s in said if len(s) >= SENTENCE_WORDS and not _WORK.isdisjoint(s)]
    shingles = list(runs_of(words))
    wanted, known, order = frozenset(shingles), set[tuple[str, ...]](), ""
    for source in sources if words else ():
        read = words_of(source)
        known |= wanted.intersection(runs_of(read))
        whole = f" {' '.join(read)} "
        order = order or next((said for said in orders if f" {said} " in whole), "")
    start, end = _longest([shingle in known for shingle in shingles])
    passage = words[start : end + SHINGLE - 1] if end > start else []
    share = sum(s in known for s in shingles) / len(shingles) if shingles else 0.0
    return Copied(
        " ".join(passage),
        len(passage),
        sum(map(len, passage)),
        share if len(shingles) >= LEAST_SHINGLES else 0.0,
        order,
    )


def words_of(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", visible(_MARKUP.sub(" ", text)))
    return _COMPARED.findall(plain.casefold())


def runs_of(words: Sequence[str], length: int = SHINGLE) -> Iterator[tuple[str, ...]]:
    """Each so many words in a row."""
    return zip(*(words[i:] for i in range(length)), strict=False)


def _longest(hits: Sequence[bool]) -> tuple[int, int]:
    """Start and end of the longest run of hits; (0, 0) if there is none."""
    best, start = (0, 0), 0
    for at, hit in enumerate((*hits, False)):
        if not hit:
            best = max(best, (start, at), key=lambda span: span[1] - span[0])
            start = at + 1
    return best


RUBRICS_CHARACTERS, TAKEAWAYS_CHARACTERS = 1500, 1000
"""the 700 tokens that a policy may write are some 2,500 characters of English in all"""
LONGEST = 20_000
"""characters that are screened; the rest is dropped unread"""

_ENCODED = re.compile(
    r"\b(?=[A-Za-z0-9+/]{0,40}[a-z])(?=[A-Za-z0-9+/]{0,40}[A-Z])(?=[A-Za-z0-9+/]{0,40}\d)"
    r"[A-Za-z0-9+/]{24,400}={0,2}|\b[A-Za-z0-9+/]{20,400}={1,2}(?![\w=])"
    r"|\b(?=\d*[A-Fa-f])(?=[A-Fa-f]*\d)[0-9A-Fa-f]{32,}\b"
    r"|(?:\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}){6,}"
    r"|\b(?:(?:0x)?[0-9A-Fa-f]{2}[ ,:]+){11,}[0-9A-Fa-f]{2}\b|\b[01]{8}(?: [01]{8}){5,}"
)
_BROKEN = re.compile(r"(?:[()\[\]{},.;:\\/] ?){40,}")
"""what a small model produces after losing its thread"""
_SECRET = re.compile(
    r"\b(?:sk|pk|rk)-[\w-]{16,}|\bgh[opsur]_\w{20,}|\bgithub_pat_\w{20,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bxox[abpr]-[\w-]{10,}|\bAIza[\w-]{30,}|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}|-----BEGIN [A-Z ]+KEY"
    r"|\b(?i:password|passwd|passphrase|api[ _-]?key|secret|token)\s*(?:is|=|:)\s*"
    r"(?=(?:[^\s\d]*\d){3})(?=[^\s]*[A-Za-z])[^\s\"']{8,}"
    r"|/etc/(?:passwd|shadow)\b|\.ssh/|\bid_(?:rsa|ed25519)\b|\.aws/|(?<!\w)\.env\b"
)


@dataclass(frozen=True, slots=True)
class Screened:
    """The two texts as they may be stored; each flag is a sentence that says what is wrong."""

    rubrics: str
    takeaways: str
    flags: tuple[str, ...]


def screen(rubrics: str, takeaways: str, source_texts: Sequence[str]) -> Screened:
    """Both texts stripped and capped; with any flag they are to be quarantined.

    `source_texts` are what the run read, as it was fetched: copying from them is flagged. Text that
    was screened before passes unchanged. Raises nothing, whatever the texts contain.
    """
    written = [rubrics[:LONGEST], takeaways[:LONGEST]]
    parts = [strip_markup(text) for text in written]
    whole = "\n\n".join(written)
    kept = "\n\n".join(part.text for part in parts)
    flags = (
        # What was taken out speaks as well as what is left, and taking it out may join words.
        *dict.fromkeys([*orders(kept), *orders(whole)]),
        *_flags_of_parts(parts),
        *_flag_of(_ENCODED, whole, "It contains encoded text"),
        *_flag_of(_BROKEN, kept, "It turns into meaningless characters"),
        *_flag_of(_SECRET, whole, "It has what looks like a password, a key or the way to one"),
    )
    found = find_copied(kept, source_texts)
    if found.counts:
        what = _quote(found.order or found.passage)
        flags += (f"It is copied from what the run read: {what}.",)
    return Screened(
        cap_length(parts[0].text, RUBRICS_CHARACTERS),
        cap_length(parts[1].text, TAKEAWAYS_CHARACTERS),
        flags,
    )


def screen_edit(old: Reflection, rubrics: str, takeaways: str) -> tuple[Screened | None, list[str]]:
    """What a person wrote in the place of a reflection, and what to tell them of it.

    None: it says what the reflection says. Raises SettingsError where nothing is left of it.
    """
    clean = screen(rubrics, takeaways, ())
    if not (clean.rubrics.strip() and clean.takeaways.strip()):
        raise SettingsError(
            "Nothing is left of it once tags, addresses and hidden characters are taken out.",
            "Say in words what is to be learnt.",
        )
    if (clean.rubrics, clean.takeaways) == (old.rubrics, old.takeaways):
        return None, []
    whole = (clean.rubrics, clean.takeaways) == (rubrics.strip(), takeaways.strip())
    cut = [] if whole else ["Some of it was taken out or cut; see what is kept."]
    return clean, [*cut, *clean.flags]


def cap_length(text: str, characters: int) -> str:
    """The text in at most this many characters, cut after a sentence if that keeps half of it."""
    if len(text) <= characters:
        return text
    ends = [match.end() for match in SENTENCE_END.finditer(text[: characters + 1])]
    at = max([text.rfind("\n", 0, characters + 1), *(end for end in ends if end <= characters)])
    space = text.rfind(" ", 0, characters + 1)
    cut_at = at if at > characters // 2 else space if space > 0 else characters
    return text[:cut_at].rstrip()


def _flags_of_parts(parts: Sequence[Stripped]) -> Iterator[str]:
    if addresses := [_quote(address) for part in parts for address in part.addresses]:
        yield f"It names an address: {', '.join(dict.fromkeys(addresses))}."
    if markers := [_quote(marker) for part in parts for marker in part.markers]:
        yield f"It contains markers of a chat template: {', '.join(dict.fromkeys(markers))}."
    if any(part.hidden for part in parts):
        yield "It had a part that a page would not show."
    if unseen := sum(part.unseen for part in parts):
        yield f"It held {unseen} invisible characters."


def _flag_of(pattern: re.Pattern[str], text: str, what: str) -> Iterator[str]:
    if match := pattern.search(text):
        yield f"{what}: {_quote(match.group())}."


def _quote(words: str) -> str:
    return f'"{words}"' if len(words) <= QUOTED else f'"{words[:QUOTED].rstrip()}..."'
