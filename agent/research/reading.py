"""What a small model fills in, and what answers a look-up, read out of the passages found for it.

A slot ends at the first thing that looks like a tag, at its own end mark or at its cap, and is
trimmed to whole sentences. Of a name, a place or a date the passages give the candidates: code
takes the one that a thing's own page tells in so many words, the model chooses by a grammar among
others. What is told in words it drafts beside the transcript, and that stands where a passage holds
it; where none does, the sentences nearest in meaning are asked about one by one, and quoted.
"""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rubricem.agent.reports.rules import Pair, bids, contradiction, stated, stated_in
from rubricem.agent.reports.verifier import SUPPORTED, held_by
from rubricem.agent.research.candidates import (
    asks_for,
    candidates,
    is_always_told,
    may_tell,
    names_stand,
    own_pages,
)
from rubricem.agent.research.lookups import Finding
from rubricem.agent.research.run import Run
from rubricem.agent.sources.choice import by_meaning
from rubricem.agent.transcript.question import part_about
from rubricem.agent.transcript.scaffold import neutralise, template
from rubricem.agent.transcript.words import (
    ASKS_DEFAULT,
    DEFAULT,
    ENTRY,
    IDENTIFIER,
    LEAST_WHOLE,
    NAME,
    SIGNATURE,
    closest_sentence,
    content_words,
    dotted_names,
    is_made_up,
    led_to,
    main_clause,
    named,
    options_stand,
    overlap,
    told_sentences,
    whole_list,
    with_neighbours,
    with_subject,
    worded_defaults,
)
from rubricem.memory.language import (
    LETTER,
    beginning,
    is_foreign,
    is_prose,
    language_of,
    length,
    sentences,
    stands,
)
from rubricem.memory.schema import (
    AnswerFormat,
    Completion,
    Embedder,
    Message,
    Sampling,
    Source,
    Stage,
)

PROSE = Sampling(temperature=0.2, top_p=0.9, min_p=0.05)
GREEDY = Sampling(temperature=0.0)

_TAG = re.compile(r"</?[A-Za-z_]|<\|")
_SENTENCE = re.compile(r"[.!?\u061f\u0964](?=\s|$)|[\u3002\uff01\uff1f]")


@dataclass(frozen=True, slots=True)
class Slot:
    """One place the model fills: where, how long in tokens, and how sampled."""

    name: str
    stage: Stage
    cap: int
    sampling: Sampling = PROSE
    end: str = "\n"
    """text at which the slot ends, beside anything like a tag"""


READING = Slot("reading", Stage.RESEARCH, 56, GREEDY)
DRAFT = Slot("draft", Stage.RESEARCH, 72, GREEDY)

OnSlot = Callable[[Slot, str, Completion], None]
"""Told what a slot holds after trimming, and what the model wrote for it."""


def slot_end(text: str, mark: str) -> int | None:
    """Where a slot's text ends; an end mark before the first word does not count."""
    lead = len(text) - len(text.lstrip())
    tag = _TAG.search(text)
    marked = text.find(mark, lead)
    return min([at for at in (tag.start() if tag else -1, marked) if at >= 0], default=None)


def trim(text: str, *, capped: bool) -> str:
    """The text without loose ends: up to its last whole sentence or line where it was cut."""
    text = text.strip()
    if not capped:
        return text
    ends = [match.end() for match in _SENTENCE.finditer(text)]
    end = max([*ends, text.rfind("\n")])
    return text[:end].rstrip() if end > 0 else text


class Slots:
    """Has a model fill slots of a run's transcript."""

    def __init__(self, on_slot: OnSlot | None = None) -> None:
        self._on_slot = on_slot

    async def write(self, run: Run, slot: Slot) -> tuple[str, Completion]:
        """What the model writes into a slot, without loose ends; the transcript is as it was."""
        sampling = replace(slot.sampling, max_tokens=slot.cap)
        written = await run.write(
            slot.stage,
            sampling,
            lambda text: slot_end(text, slot.end),
            live=False,
            slot=slot.name,
        )
        text = trim(written.text, capped=written.stop_reason in ("length", "repetition"))
        if self._on_slot:
            self._on_slot(slot, text, written)
        return text, written

    async def choose(self, run: Run, slot: Slot, texts: Sequence[str]) -> str:
        """One of a few texts; the longest prefix that was written where it was cut."""
        return (await self.weighed(run, slot, any_of(texts))).text

    async def weighed(self, run: Run, slot: Slot, grammar: str) -> Completion:
        """What the model writes by a grammar; the transcript is as it was."""
        sampling = replace(slot.sampling, max_tokens=slot.cap, grammar=grammar)
        written = await run.write(slot.stage, sampling, live=False, slot=slot.name)
        if self._on_slot:
            self._on_slot(slot, written.text, written)
        return written

    async def fill(
        self, run: Run, slot: Slot, edit: Callable[[str], str] = lambda text: text
    ) -> str:
        """Put what the model writes into the transcript, as it is after `edit`."""
        text, written = await self.write(run, slot)
        if text := edit(text):
            # The space that parts it from the words the runner put before it.
            lead = " " if written.text[:1] in (" ", "") else ""
            await run.keep_edited(slot.stage, lead + text)
        return text


SUPPORT = 0.5
"""share of a claim's words that its source must hold"""

WORD = re.compile(rf"(?:{LETTER}|\.)+")
_EXACT = re.compile(rf"{NAME.pattern}|\d")
"""in a word of a claim: it must stand in the source as it is"""
NOT_FOUND = "not found"
DOUBT = 2.5
"""nats by which "not found" must be likelier than the best of what a passage offers: one that was
not found makes a small model say so of the next"""
QUOTE_CHARACTERS = 400
NEARLY = 0.75
"""share of a look-up's words beside the title's, from which a sentence is what was asked for"""
LEAST_TOLD, TOLD = 3, 0.4
"""words and share of a look-up's words beside the title's, from which a sentence may answer it"""
LEAD = 6
"""words of a sentence by which it is chosen"""
OFFERED = 6
"""sentences, the nearest in meaning, of which the model is asked: of 35 everyday look-ups the best
two of these answer as many as the best two of nine, 28"""
OFFERED_AGAIN = 3
"""of them, where an answer was drafted from the same passages in vain"""
MOST_FIRST = 2
"""of these what pages say first, where a thing is asked for by what it does"""
LEAST_CHANCE, LIKELY, SURE = 0.3, 0.45, 0.7
"""that a sentence answers: for it to be shown where nothing else is found, to be taken for the
answer, and to look no further"""
SURE_ALONE = 0.8
"""the second of these where an answer was drafted in vain: of seven sentences with 0.7 to 0.8 one
answered"""
RATHER = 0.55
"""the least for the last of these that the model itself has to say, whatever code adds"""
LIKELY_ABROAD = 0.25
"""the second of these for a bare answer in another language, to which a small model says Yes less
readily: of `benchmarks.languages` sentences that answer had 0.29 to 0.73; of 12 questions that
nothing answers the nearest had 0.11 to 0.37, three of them above this. Where an answer was drafted
it is never needed: what answers is drafted. A second one is quoted by the bar of English"""
EXPECTED, ENTERED, LEANING = 0.25, 0.25, 0.15
"""added to that where all that was expected is there, and where it is the entry of a parameter that
the question sets or of a command that it asks about; taken off where it leans on another"""
FORESEEN = 0.15
"""added where its page is what the model expected by its full name: of `os.walk` no sentence says
that it is how to walk through all files of a directory tree"""
MEANS = 0.15
"""added to what a page says first of its thing, where one is asked for by what it does"""
NAMING = 0.1
"""added where another thing is named, and the question asks which one it is"""
MOST_QUOTED = 2
"""sentences for one look-up"""
FAITHFUL = 0.7
"""share of a claim's words that its look-up, what was found and the source's title must hold"""
WHOLE = 0.4
"""share of what was found that its claim must say"""
RELATED = 0.5
"""share of a look-up's words that a passage holds which is taken for what the model expected"""
MUCH_MORE = 2
"""times the content words of a claim, from which the sentence that it rests on stands for it"""
FIRST_DRAFTED, DRAFTED_FROM, DRAFTED_WORDS = 2, 4, 110
"""passages that an answer is drafted from at first, and where that finds none, with the words of
each: others distract a small model, and are read in vain"""
BORNE_OUT = 0.7
"""that a passage says what was drafted from it, as the model says: right drafts had 0.77 to 0.91
beside the sentence that they rest on, some 0.47 to 0.74, wrong ones 0.23 to 0.74, and one 0.78; by
0.75 what maxsize=None does to `lru_cache`, which is drafted rightly, is not found"""
HELD = 0.77
"""how likely the verifier must hold a draft to be shown as certain: of 12 drafts below it ten were
wrong, of 29 above it four were, or told too little"""
UNSURE, UNSURE_QUOTE = 0.5, 0.4
"""the same for a draft to be shown as not certain, and that a sentence answers: of 11 drafts with
0.5 to 0.7 seven were right, of six below one; of eight sentences from 0.4 up five"""
STATED = 0.6
"""share of what an answer says beside its question that its source must hold"""
LATER = 0.1
"""what the next nearer sentence must hold less of an answer, in the weight of its words, for a
farther one to be what it rests on: one that a single sentence has weighs 3 to 4"""
REPEATED = 0.75
"""share of a sentence's words, from which an answer says it again"""
LEAST_SAID = 3
"""content words of a claim; what says less ("git reset") helps nobody"""
BESIDE_ANSWER, BESIDE_NONE = 1, 2
"""what is quoted beside an answer, and beside none or one that is not certain: of 32 everyday
answers that were of no use the two sentences nearest in meaning, with their neighbours, had the
key fact for 20, in whatever passage it stood"""
LEAST_NEAR, NEAR = 0.4, 0.8
"""the least cosine of such a sentence, and its share of the nearest one's: those that have the key
fact and are among the first two have 0.46 to 0.86, and 0.86 of it or more"""


def cut_quote(said: str) -> str:
    """A sentence in one line that can stand in a transcript."""
    return neutralise(" ".join(said.split())[:QUOTE_CHARACTERS])


def any_of(texts: Sequence[str]) -> str:
    """A grammar of one of several texts."""
    return "root ::= " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts) + "\n"


def holds(source: Source, claim: str) -> bool:
    """Whether a source has most words of a claim, and every name and number in it."""
    text = f"{source.title}\n{source.text}"
    exact = [word.strip(".") for word in WORD.findall(claim) if _EXACT.search(word)]
    # Whole: 12 is not in 128.
    exact_stand = all(stands(word, text) for word in exact)
    return exact_stand and names_stand(claim, text) and overlap(claim, text) >= SUPPORT


_ANSWERING = (
    "yes no use uses used using run command option function method statement parameter argument"
)
"""words of answers, whatever is asked: in "use the command `git checkout`" two say something"""


def new_words(text: str, question: str) -> frozenset[str]:
    """What an answer says that its question does not."""
    language = language_of(question)
    return content_words(text, language) - content_words(f"{question} {_ANSWERING}")


def headed(source: Source) -> str:
    """A source's title, and the heading that its text stands under where that says more."""
    heading = source.place.rpartition(" > ")[2]
    more = content_words(heading) - content_words(source.title)
    return f"{source.title} > {heading}" if more else source.title


def states(source: Source, text: str, question: str) -> bool:
    """Whether a source holds what an answer says beside its question's words, and every name of it.

    A person asks for "which commit broke my program" where the manual has no word of programs.
    """
    there, new = f"{headed(source)}\n{source.text}", new_words(text, question)
    exact = [word.strip(".") for word in WORD.findall(text) if _EXACT.search(word)]
    stand = all(stands(word, there) or stands(word, question) for word in exact)
    held = new & content_words(there, language_of(question))
    stand = stand and options_stand(text, there, question)
    # To drop duplicates `drop_duplicates` says something, though no word of it is new.
    says = bool(new or named(text, question))
    return says and stand and len(held) >= STATED * len(new)


_LINK = re.compile(r"\bhttps?://\S+")
_NUMBERED = re.compile(r" \[\d+\](?=[\s.,;]|$)")
"""a passage by its place in the prompt, which a reader would take for a citation; no `heap[0]`"""


def _basis(ranked: Sequence[tuple[Source, str]], drafted: str, question: str) -> tuple[Source, str]:
    """The sentence that an answer rests on, of those in order of their nearness to it.

    It has most of what the answer says beside the question, where words weigh by how few of the
    sentences have them: "option" and "command" tell on nothing. A link has words, and says nothing.
    """
    language, new = language_of(question), new_words(drafted, question)
    held = [new & content_words(_LINK.sub("", said), language) for _, said in ranked]
    among = Counter(word for words in held for word in words)
    weight = {word: math.log1p(len(ranked) / count) for word, count in among.items()}
    worth = [sum(weight[w] for w in words) - LATER * at for at, words in enumerate(held)]
    return ranked[worth.index(max(worth))]


def _relates(source: Source, question: str, guess: str) -> bool:
    """Whether a source speaks of what is asked, whatever it has of what was expected."""
    language = language_of(question)
    asked = content_words(question) - content_words(guess, language)
    there = content_words(f"{source.title} {source.text}", language)
    return len(asked & there) >= RELATED * len(asked)


def _hoped(source: Source, said: str, question: str, guess: str) -> float:
    """Share of what was expected of the answer, beside the question's words, in a sentence, 0 to 1.

    None of it counts in a source that does not speak of what is asked.
    """
    language = language_of(question)
    known = content_words(question) | content_words(source.title, language)
    hoped = content_words(guess, language) - known
    if not hoped or not _relates(source, question, guess):
        return 0.0
    return len(hoped & content_words(said, language)) / len(hoped)


def _foreseen(source: Source, question: str, guess: str) -> bool:
    """Whether a page is of what the model expected by its dotted name, and was not asked about."""
    names = {name.casefold() for name in dotted_names(guess)}
    return source.title.casefold() in names and source.title.casefold() not in question.casefold()


_COUNT = re.compile(
    r"\d|\b(?:no|none|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|"
    r"thousand|single|both|twice|once|unlimited|unbounded|any number)\b",
    re.I,
)


_MEASURE = re.compile(r"\bhow (?:long|much|often|old|large|big|similar)\b", re.I)


def _may_count(said: str, question: str) -> bool:
    """Whether a sentence has a number, where a question asks how many, or how long by default."""
    counts = re.search(r"\bhow many\b", main_clause(question), re.I)
    measures = _MEASURE.search(question) and ASKS_DEFAULT.search(question)
    return not (counts or measures) or bool(_COUNT.search(said))


_THING = r"(?:function|method|class|exception|decorator|context manager)"
_NAMED_KIND = re.compile(rf"\W*(?:which|what) {_THING}\b", re.I)
_ASKS_MEANS = re.compile(
    r"(?:^|[.?!:;,]\s+(?:(?:and|but|or|so) )?)\W*(?:how (?:do|can|could|would|should|to)\b|"
    rf"(?:which|what) (?:{_THING}|module|command|option|statement|pragma|tool)\b|"
    r"what (?:do|can|should) I (?:run|use|call|type|write)\b|is there (?:a|an|any)\b)",
    re.I,
)
"""what asks for a thing by what it does: its page says that in the first sentence"""


def summary_for(question: str, source: Source) -> str:
    """What a page says first of the thing that it is of, where a question asks for such a thing.

    "" of another part of the page: an entry of an index begins with its own name, a manual's page
    has a section for it.
    """
    begins = source.text.lstrip().startswith(f"{source.title}(")
    begins = begins or bool(re.search(r"(?:^|> )NAME$", source.place))
    if not begins or not _ASKS_MEANS.search(question):
        return ""
    return next(told_sentences(source.text), "")


_CALLABLE = re.compile(r"\b\w+(?=\()|\b\w*[a-z][A-Z]\w*")


def _may_name(source: Source, said: str, question: str) -> bool:
    """Whether a sentence or its page names another thing, where a question asks which it is.

    "Which function tests what str.isidentifier lets pass?" is not answered by what that one does.
    """
    if not _NAMED_KIND.match(main_clause(question)):
        return True
    text = f"{source.title} {said}"
    there = [*IDENTIFIER.findall(text), *_CALLABLE.findall(text)]
    return any(not stands(name.strip("."), question) for name in there)


def _may_explain(source: Source, said: str, question: str, guess: str) -> bool:
    """Whether a sentence has a word of what is to be explained, beside its page's title.

    Why something is so that is not so ("Why does pydantic refuse unknown fields by default?") is
    nowhere said, and any sentence of the right page seems to a small model to say it.
    """
    asked, language = f"{question} {guess}", language_of(question)
    if not re.match(r"\W*why\b", main_clause(question), re.I):
        return True
    wanted = content_words(asked, language) - content_words(source.title, language)
    return not wanted or bool(wanted & content_words(said, language))


_ASKS_FACT = re.compile(r"\W*(?:what happens|why|is|are|does|do|did|will|must|may)\b", re.I)
_CODE_LINE = re.compile(
    r"\s*(?:>>>|\.\.\. |```|import |from \S+ import |def |class |@\w|#|\w[\w.\[\]: ]*=\s|"
    r"[\w.]+\(.*\)\W*$)"
)


def _may_show(said: str, question: str) -> bool:
    """Whether a text is no code, where a question asks what happens and not how it is done."""
    # Only what is shown of it: in a line without end the pattern would be sought for long.
    lines = said.strip()[:QUOTE_CHARACTERS].splitlines()
    code = 2 * sum(bool(_CODE_LINE.match(line)) for line in lines) > len(lines)
    return not (code and _ASKS_FACT.match(main_clause(question)))


def _may_answer(source: Source, said: str, question: str, guess: str) -> bool:
    """Whether a sentence is of the kind that a question asks for, so that the model is asked."""
    tells = _may_explain(source, said, question, guess) and _may_name(source, said, question)
    return tells and _may_count(said, question) and _may_show(said, question)


def _beside(source: Source, said: str, question: str, guess: str) -> float:
    """What code knows of whether a sentence answers, to be added to what the model says of it.

    Of a sentence that `_may_answer`: where a name is asked for it has one.
    """
    known = EXPECTED * _hoped(source, said, question, guess) - LEANING * _leans(said)
    known += ENTERED * _is_entry(said, question) + FORESEEN * _foreseen(source, question, guess)
    known += MEANS * (said == summary_for(question, source))
    return known + NAMING * bool(_NAMED_KIND.match(main_clause(question)))


_LEANING = re.compile(
    r"\W*(?:(?:in|to|with|by|for) (?:such|this|that|these|those)|this|these|those|it|such|or,|thus|"
    r"hence|so|also|then|otherwise|therefore|they|he|she)\b|[^.]*\bthe above\b",
    re.I,
)


def _leans(said: str) -> bool:
    """Whether a sentence says little without the one before it, or is the end of one."""
    first = next(iter(said.split()), "")
    goes_on = first.islower() and not content_words(first, "en")
    return goes_on or bool(_LEANING.match(said)) or said.count(")") > said.count("(")


def adds(claim: str, said: list[str]) -> bool:
    """Whether a claim has a content word that was not said yet."""
    known = " ".join(said)
    return bool(content_words(claim, language_of(known)) - content_words(known))


def says_more(said: str, shown: str, question: str) -> bool:
    """Whether a sentence has something to say to a question that what is shown does not."""
    new = new_words(said, question)
    more = new - content_words(shown, language_of(question))
    tells = length(said) >= LEAST_WHOLE and len(new) >= LEAST_SAID
    tells = tells and neutralise(" ".join(said.split())) not in " ".join(shown.split())
    return tells and (len(more) > (1 - REPEATED) * len(new) or bool(named(said, shown)))


_OF_SIGNATURE = re.compile(r"\b(?:what|which) (?:is|are) (?:the )?|\bsignature\b", re.I)


def _only_signature(text: str, question: str) -> bool:
    """Whether a text is how something is called, and that is not what is asked."""
    return bool(SIGNATURE.fullmatch(text.strip(" ."))) and not _OF_SIGNATURE.search(question)


def may_say(claim: str, found: str, asked: str, source: Source) -> bool:
    """Whether a claim says what was found for what was asked, and its source holds it."""
    language, basis = language_of(asked), f"{found} {asked} {source.title}"
    words = content_words(claim, language)
    turned = "not" in words and "not" not in content_words(basis, language)
    turned = turned or bool(contradiction(claim, closest_sentence(claim, source.text)))
    least = content_words(found, language)
    whole = len(least & words) >= WHOLE * len(least)
    said = len(words) >= LEAST_SAID and overlap(claim, basis) >= FAITHFUL
    if not (said and whole) or turned or _only_signature(claim, asked) or not holds(source, claim):
        return False
    return is_prose(claim) or asks_for(asked) != "words"


def _as_they_stand(found: list[Finding], sources: Mapping[str, Source]) -> list[Finding]:
    """Findings in the order in which their one source has them; of several sources as they are."""
    if len({each.source for each in found}) > 1:
        return found
    text = neutralise(" ".join(sources[found[0].source].text.split()))
    return sorted(found, key=lambda each: text.find(each.text))


_GIVEN = re.compile(r"\b(\w+)(?:: [^=()]+)?=(?!=|None\b)")
"""a parameter of a signature that has a default; what None stands for is said elsewhere"""


_NONE = re.compile(r"\bdefaults?\b\W*(?:is|to|=)?\W*None\b", re.I)


def _entered(said: str) -> str:
    """The last parameter that an entry of a docstring is of; "" of what is no entry."""
    if not ENTRY.match(f"\n{said}"):
        return ""
    head = re.split(r":| \(", said.strip().removeprefix(":param"), maxsplit=1)[0]
    return head.split()[-1].strip("*")


_AMOUNT = re.compile(r"\b(?:number|many|much|size|limit|length|long|times|seconds)\b", re.I)
_COUNTED = re.compile(r"\b(\w+)(?:: [^=()]+)?=-?\d")
"""what asks how much something is by default, and a parameter of which a number is the default"""
_SET = re.compile(r"\b([a-z_]\w*)=\S")
"""a parameter that a question gives a value: "with err=True\""""


_WHAT_DOES = re.compile(r"\W*what does \S+ (?:\S+ )*?(\S+) do\W*", re.I)
"""the last word of what a look-up asks about: `remove` of `apt-get remove`"""


def _is_entry(said: str, question: str) -> bool:
    """Whether a text is the entry of what a question sets to a value, or asks what it does."""
    if asked := _WHAT_DOES.fullmatch(question):
        return said.casefold().split()[:1] == [asked[1].casefold()]
    return _entered(said) in _SET.findall(question)


def default_in(source: Source, question: str) -> str:
    """The words of a source on the default of the one parameter that is asked for.

    On its own page the parameter's entry, else the whole signature; of another page of a library
    that the question names the signature, where the question has the parameter in other words. ""
    where no default is asked for, or that of several.
    """
    if not ASKS_DEFAULT.search(question):
        return ""
    asked = [word.casefold().rpartition(".")[2] for word in WORD.findall(question)]
    head = source.text.strip().partition("\n")[0]
    head = head if head.startswith(f"{source.title}(") and len(head) < QUOTE_CHARACTERS else ""
    worded = worded_defaults(question, head)
    if source.title.casefold().rpartition(".")[2] not in asked:
        of_it = source.title.casefold().partition(".")[0] in asked
        return head if of_it and len(worded) == 1 else ""
    told = dict.fromkeys(_GIVEN.findall(head), head)
    for entry in ENTRY.split(f"\n{source.text}")[1:]:
        said = (s for s in told_sentences(entry) if DEFAULT.search(s) and not _NONE.search(s))
        if (text := next(said, "")) and (name := _entered(entry)):
            told[name] = text
    named = [name for name in told if name.casefold() in asked]
    # `num`, where the number of samples is asked for.
    short = (n for n in told if len(n) > 2 and any(w.startswith(n.casefold()) for w in asked))
    named = named or [name for name in worded if name in told] or [*short]
    if not named and head and _AMOUNT.search(question):
        named = [name for name in _COUNTED.findall(head) if told.get(name)]
    return " ".join(told[named[0]].split()) if len(named) == 1 else ""


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


def the_one(texts: Collection[str]) -> str:
    """The only one of these texts, or the whole of "New York" and "New York, New York"; or ""."""
    whole = max(texts, key=len, default="")
    return whole if all(whole.startswith(each) for each in texts) else ""


class AnswerReader:
    """Reads what answers a look-up; with an embedder also by the meaning of sentences."""

    def __init__(self, slots: Slots, embedder: Embedder | None = None) -> None:
        self._slots = slots
        self._embedder = embedder

    async def read(self, run: Run, about: Sequence[Source], question: str) -> Finding | None:
        """What of these sources answers a question, put into the transcript; None: nothing.

        What tells its reader to say something is no answer, and the model is not shown it here.
        """
        about, asked = [stated(source) for source in about], asks_for(question)
        begun = run.lookups.begun
        if about and asked == "words":
            guess = run.lookups.guesses.get(run.lookups.at, "")
            return await self._read_words(run, about, question, guess)
        read = {s.id: f"{s.title}. {stated_in(begun.get(s.id, s.text))}" for s in about}
        read = {i: text for i, text in read.items() if may_tell(text, question)}
        fit = {i: candidates(text, asked, question) for i, text in read.items()}
        sure = run.lookups.told
        if not sure and (not read or (own_pages(about, question) and is_always_told(question))):
            return None
        return await self._read_candidate(run, sure or fit, sure=bool(sure))

    async def nearest(
        self, run: Run, sources: Sequence[Source], question: str, guess: str
    ) -> list[tuple[Source, str]]:
        """The sentences of the sources and where they stand, best first; [] with no embedder."""
        return [told[:2] for told in await self._ranked(run, sources, question, guess)]

    async def _ranked(
        self, run: Run, sources: Sequence[Source], question: str, guess: str
    ) -> list[tuple[Source, str, float]]:
        """The same, each with its mean cosine to the question and to what was expected."""
        key = (question, guess, *(source.id for source in sources))
        if (ranked := run.lookups.ranked.get(key)) is not None:
            return ranked
        told = [(s, said) for s in sources for said in told_sentences(s.text) if not bids(said)]
        if self._embedder is None or not told:
            return []
        texts = [f"{headed(source)}: {said}" for source, said in told]
        hoped = [question, f"{question} {guess}"]
        order = await asyncio.to_thread(by_meaning, self._embedder, hoped, texts)
        return run.lookups.ranked.setdefault(key, [(*told[at], near) for at, near in order])

    async def see_also(self, run: Run, number: int, shown: str) -> list[tuple[Source, str]]:
        """What was read for a look-up and is nearest to it in meaning, beside what is `shown`.

        In the sources' own words, each with its neighbours; [] where no words are asked for.
        """
        lookups, step = run.lookups, run.lookups.step(number)
        asked, guess = lookups.resolved(step) or "", lookups.guesses.get(number, "")
        found, quotes = lookups.found.get(number), list[tuple[Source, str]]()
        told = found and found.text == neutralise(default_in(run.sources[found.source], asked))
        if step.compares or told or asks_for(asked) != "words":
            return []
        read = lookups.read.get(number, set()) - lookups.untold
        about = [stated(source) for i, source in run.sources.items() if i in read]
        ranked = await self._ranked(run, about, asked, guess)
        least = max(LEAST_NEAR, NEAR * max((near for _, _, near in ranked), default=0.0))
        for source, said in ((source, said) for source, said, near in ranked if near >= least):
            if _may_answer(source, said, asked, guess) and says_more(said, shown, asked):
                quotes.append((source, neutralise(with_neighbours(said, source.text))))
                shown = f"{shown} {quotes[-1][1]}"
            if len(quotes) == (BESIDE_ANSWER if found else BESIDE_NONE):
                break
        return quotes

    async def _read_candidate(
        self, run: Run, fit: dict[str, list[str]], *, sure: bool
    ) -> Finding | None:
        """One of the names or dates; `sure`: its own page says of each that it is what is asked."""
        offered = [
            f" {neutralise(s)}" for s in dict.fromkeys(s for each in fit.values() for s in each)
        ]
        if sure and (whole := the_one(offered)):
            await run.prompt(Stage.RESEARCH, whole)
            return Finding(whole.strip(), next(iter(fit)))
        text = await self._found_of(run, offered, sure=sure)
        source = next((i for i, spans in fit.items() if text.strip() in map(neutralise, spans)), "")
        if not source:
            return None
        await run.keep_edited(READING.stage, text)
        return Finding(text.strip(), source)

    async def _read_words(
        self, run: Run, about: Sequence[Source], question: str, guess: str
    ) -> Finding | None:
        for source in about:
            if said := default_in(source, question):
                await run.prompt(Stage.RESEARCH, f" {neutralise(said)}")
                return Finding(neutralise(said), source.id, quoted=True)
        # A bare answer is what the transcript says, and no sentence.
        exact = run.ask.answer_format is AnswerFormat.EXACT
        drafted = None if exact else ""
        nearest = await self.nearest(run, about, question, guess)
        ranked = [*dict.fromkeys(source for source, _ in nearest)] or [*about]
        for few in (ranked[:FIRST_DRAFTED], ranked[FIRST_DRAFTED:DRAFTED_FROM]):
            if few and drafted is not None:
                drafted = await self._draft(run, few, question, nearest)
            finding = await self._resting(run, few, question, drafted) if drafted else None
            if finding or run.lookups.at in run.lookups.settled:
                return finding
        if drafted is None or self._embedder is None:
            return await self._read_on(run, about, question, guess)
        return await self._nearest_of(run, about, question, guess, drafted=True)

    async def _read_on(
        self, run: Run, about: Sequence[Source], question: str, guess: str
    ) -> Finding | None:
        """What a model that can only go on with the transcript writes, if a source holds it."""
        text, _ = await self._slots.write(run, READING)
        text = text.partition(" (S")[0]
        standing = [s for s in about if holds(s, text)]
        if not adds(text, [question, guess]):
            standing = []  # it says again what it expected, which is no evidence
        bare = not adds(text, [question, "yes no"]) or _only_signature(text, question)
        bare = bare or not _may_count(text, question)
        if NOT_FOUND in text.casefold() or not standing or bare:
            if self._embedder is not None:
                return await self._nearest_of(run, about, question, guess)
            quote = await self._quote_of(run, about, question)
            return quote or await self._sentence_of(run, about, question, guess)
        await run.keep_edited(READING.stage, f" {text}")
        best = max(standing, key=lambda s: overlap(text, f"{s.title} {s.text}"))
        return Finding(text, best.id)

    async def _draft(
        self,
        run: Run,
        sources: Sequence[Source],
        question: str,
        nearest: Sequence[tuple[Source, str]],
    ) -> str | None:
        """What the model answers from a few passages alone; None where it cannot be asked so.

        It is asked beside the transcript, where its own expectation does not stand: with that in
        sight a small model says it again.
        """
        best = {source.id: said for source, said in reversed(nearest)}
        passages = [
            f"[{at}] {headed(s)}\n{part_about(s.text, DRAFTED_WORDS, best.get(s.id, question))}"
            for at, s in enumerate(sources, start=1)
        ]
        told = neutralise("\n\n".join([*passages, f"Question: {question}"]))
        messages = [Message("system", template("draft")), Message("user", told)]
        sampling = replace(DRAFT.sampling, max_tokens=DRAFT.cap)
        written = await run.aside(DRAFT.stage, messages, sampling, DRAFT.name)
        if written is None:
            return None
        text = trim(neutralise(written.text), capped=written.stop_reason == "length")
        return _NUMBERED.sub("", " ".join(text.split()))

    async def _resting(
        self, run: Run, about: Sequence[Source], question: str, drafted: str
    ) -> Finding | None:
        """What was drafted, with the sentence that it rests on.

        None where no source holds it, and where the model itself doubts that the passage says so.
        """
        found = NOT_FOUND not in drafted.casefold() and _may_count(drafted, question)
        standing = [s for s in about if found and states(s, drafted, question)]
        read = "\n".join(f"{headed(s)}\n{s.text}" for s in about)
        if not standing or is_made_up(drafted, read):
            if missing := [name for name in dotted_names(drafted) if not stands(name, read)]:
                run.lookups.named.setdefault(run.lookups.at, missing[0])
            return None
        source, basis = standing[0], ""
        if ranked := await self.nearest(run, standing, question, drafted):
            source, basis = _basis(ranked, drafted, question)
            if contradiction(drafted, basis):
                return None  # a false premise is said again over what denies it
        passage = (
            f"Passage: {headed(source)}\n{part_about(source.text, DRAFTED_WORDS, basis or drafted)}"
        )
        told = f"{passage}\n\nQuestion: {question}\nAnswer: {drafted}"
        messages = [
            Message("system", template("draft_check")),
            Message("user", f"{neutralise(told)}\nIs this answer right, by what the passage says?"),
        ]
        chance = await run.chance(DRAFT.stage, messages, DRAFT.name)
        quote = Finding(cut_quote(basis), source.id, quoted=True)
        needed = basis and overlap(basis, drafted) < REPEATED
        finding = Finding(drafted, source.id, worded=True, more=(quote,) if needed else ())
        if chance is not None:
            borne_out = run.lookups.weigh(finding, chance, question) >= BORNE_OUT
            # One that is doubted already is held against it last, if it is to be shown.
            held = await self._held(run, Pair(drafted, source)) if borne_out else SUPPORTED
            if not borne_out or held < HELD:
                if basis:  # a reader may see in it what the model doubts: it can be the nearest
                    known = run.lookups.likely.setdefault(run.lookups.at, {})
                    known[quote] = min(chance, SURE)
                if chance >= UNSURE and held >= SUPPORTED:
                    run.lookups.doubt(finding, chance)
                    run.lookups.settled |= {run.lookups.at} if borne_out else set()
                return None
        await run.keep_edited(DRAFT.stage, f" {drafted}")
        return finding

    async def withdraw(self, run: Run) -> None:
        """Take back what was drafted and is doubted where the verifier holds that it is not said.

        The sentence that it rests on stands in its place, if there is one.
        """
        for number, finding in run.lookups.unsure().items():
            known = number in run.lookups.settled or not finding.worded
            pair = Pair(finding.text, stated(run.sources[finding.source]))
            if known or await self._held(run, pair) >= SUPPORTED:
                continue
            _, chance = run.lookups.doubted.pop(number)
            for instead in finding.more:
                run.lookups.doubt(instead, chance)

    @staticmethod
    async def _held(run: Run, pair: Pair) -> float:
        """How likely the verifier holds a draft for what its source says, 0 to 1."""

        async def ask(messages: Sequence[Message]) -> float:
            chance = await run.chance(DRAFT.stage, messages, DRAFT.name)
            assert chance is not None, "the same model weighed the draft before"
            return chance

        if pair.fault():
            return 0.0
        return 1.0 if pair.verbatim() else await held_by(pair, ask)

    async def _nearest_of(
        self,
        run: Run,
        about: Sequence[Source],
        question: str,
        guess: str,
        *,
        drafted: bool = False,
    ) -> Finding | None:
        """Of the sentences nearest in meaning the one of which the model says that it answers.

        It is asked of each by itself: to choose among several it takes what it has just read.
        Where it was `drafted` from their passages in vain fewer are asked about, and one has to
        be sure.
        """
        chances, sure = dict[Finding, float](), False
        nearest = await self.nearest(run, about, question, guess)
        hopeful = self._hopeful(nearest, question, guess)
        first = [(s, said) for s in about if (said := summary_for(question, s))][:MOST_FIRST]
        for source, said in [*dict.fromkeys([*hopeful, *first, *nearest])]:
            text = cut_quote(said)
            if not _may_answer(source, said, question, guess):
                continue
            bare = _only_signature(said, question) or len(content_words(said)) < LEAST_SAID
            if bare or any(text == other.text for other in chances):
                continue
            own = await self._chance(run, source, said, question)
            chance = own + _beside(source, said, question, guess)
            chances[Finding(text, source.id, quoted=True)] = chance
            left = (source, said) in hopeful[:-1]  # another has as much of what was expected
            sure = sure or (chance >= SURE and own >= RATHER)
            if len(chances) == (OFFERED_AGAIN if drafted else OFFERED) or (sure and not left):
                break
        # What the search before brought may still be the best.
        known = run.lookups.likely.setdefault(run.lookups.at, {})
        known |= {f: max(chance, known.get(f, 0.0)) for f, chance in chances.items()}
        order = sorted(known, key=lambda finding: -known[finding])[:MOST_QUOTED]
        likely = SURE_ALONE if drafted else LIKELY_ABROAD if is_foreign(question) else LIKELY
        best = [
            f
            for at, f in enumerate(order)
            if known[f] > (max(LIKELY, likely) if at else likely) and (not at or is_prose(f.text))
        ]
        if order and likely >= known[order[0]] > LEAST_CHANCE:
            run.lookups.near[run.lookups.at] = order[0]
            if known[order[0]] >= UNSURE_QUOTE:
                run.lookups.doubt(order[0], known[order[0]])
        if not best:
            return None
        # The entry of what is asked about says it; another is of another.
        entries = [finding for finding in best[:1] if _is_entry(finding.text, question)]
        best = entries or _as_they_stand(best, run.sources)
        await run.prompt(Stage.RESEARCH, f" {best[0].text}")
        return replace(best[0], more=tuple(best[1:]))

    @staticmethod
    async def _chance(run: Run, source: Source, said: str, question: str) -> float:
        """How likely the model holds it that a sentence answers; 1 where it cannot tell."""
        text = cut_quote(said)
        told = f"Question: {question}\nSentence: {neutralise(source.title)}: {text}"
        messages = [
            Message("system", template("answers")),
            Message("user", f"{told}\nDoes the sentence answer the question?"),
        ]
        chance = await run.chance(Stage.RESEARCH, messages, READING.name)
        return 1.0 if chance is None else chance  # of all the nearest is taken

    @staticmethod
    def _hopeful(
        nearest: Sequence[tuple[Source, str]], question: str, guess: str
    ) -> list[tuple[Source, str]]:
        """The two of them that have most of what was expected, if any has much."""
        hoped = {told: _hoped(*told, question, guess) for told in nearest}
        most = sorted((told for told in nearest if hoped[told] >= WHOLE), key=lambda t: -hoped[t])
        return most[:2]

    async def _found_of(self, run: Run, offered: Sequence[str], *, sure: bool) -> str:
        """What of these the model takes for the answer; "" if it finds none."""
        if not offered:
            return ""
        others = [] if sure else [f" {NOT_FOUND}"]
        written = await self._slots.weighed(run, READING, any_of([*offered, *others]))
        if written.text.strip() == NOT_FOUND:
            instead = await self._slots.weighed(run, READING, any_of(offered))
            if written.logprobs and instead.logprobs:
                # Where there is more to read "not found" may be said more easily.
                doubt = 0 if run.lookups.begun else DOUBT
                doubtful = instead.logprobs[0] > written.logprobs[0] - doubt
                written = instead if doubtful else written
        return written.text if written.text in offered else ""

    async def _quote_of(self, run: Run, about: Sequence[Source], question: str) -> Finding | None:
        """The sentence that a look-up asks for nearly in its own words, where the model is lost."""
        for source in about:
            said = closest_sentence(question, source.text)
            # What the title has in common with the question tells of the page alone.
            language = language_of(question)
            asked = content_words(question) - content_words(source.title, language)
            near = len(asked & content_words(said, language)) >= NEARLY * len(asked)
            if asked and near and not _only_signature(said, question):
                quote = cut_quote(said)
                await run.prompt(Stage.RESEARCH, f" {quote}")
                return Finding(quote, source.id)
        return None

    async def _sentence_of(
        self, run: Run, about: Sequence[Source], question: str, guess: str
    ) -> Finding | None:
        """The sentence that the model takes for the answer, of those that are on what is asked.

        Asked to write, a small model says of many passages that nothing was found.
        """
        asked, offered = content_words(question), dict[str, tuple[str, str]]()
        language = language_of(question)
        for source in about:
            beside = asked - content_words(source.title, language)
            least = max(LEAST_TOLD, TOLD * len(beside))
            for said in sentences(source.text):
                words = content_words(said, language)
                near = len(beside & words) >= least or _hoped(source, said, question, guess) > 0.5
                if near and not _only_signature(said, question):
                    text = cut_quote(said)
                    offered.setdefault(f" {beginning(text, LEAD)}", (text, source.id))
        if not offered:
            return None
        lead = (await self._slots.weighed(run, READING, any_of(list(offered)))).text
        if lead not in offered:
            return None
        text, identifier = offered[lead]
        await run.prompt(Stage.RESEARCH, f" {text}")
        return Finding(text, identifier, quoted=True)

    async def quote(self, run: Run, number: int, finding: Finding) -> str:
        """What a source says of a look-up, where the model's own claim does not stand there."""
        source = run.sources[finding.source]
        asked = run.lookups.resolved(run.lookups.step(number)) or ""
        told = [" ".join(said.split()) for said in told_sentences(source.text)]
        holding = [said for said in told if finding.text in neutralise(said)]
        said = ""
        if holding and finding.quoted:
            said = holding[0]
        elif not holding and asks_for(asked) == "words":
            nearest = await self.nearest(run, [source], asked, finding.text)
            said = " ".join(nearest[0][1].split()) if nearest else ""
        said = said or closest_sentence(f"{asked} {finding.text}", "\n\n".join(holding or told))
        said = (said or finding.text)[:QUOTE_CHARACTERS]
        listed = whole_list(led_to(said, source.text), source.text)
        return neutralise(with_subject(listed, source))
