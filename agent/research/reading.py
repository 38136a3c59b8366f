"""How a question is answered from the passages that were found for it, or is not.

An answer is drafted from all the passages at once, beside the transcript, and is as likely as the
model says, shown the passage that it rests on; a draft that is not borne out gives way to the
sentences that are nearest, which are never certain.

An exact answer is a span of such a draft. A model that writes freely answers in sentences, or from
memory; held to a grammar of what the draft contains it can only point, and always points at
something. What tells a right span from a guess is the null:
a logistic of the model's own probability that the passage answers the question, of that of the span
being right, and of the span's log-probability. Its coefficients were fitted on labelled pairs
(`tuned`).
"""

import asyncio
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rubricem.agent.reports.rules import statements_of
from rubricem.agent.research.lookups import Finding
from rubricem.agent.research.run import Run
from rubricem.agent.research.tuned import TUNED
from rubricem.agent.sources.choice import by_meaning
from rubricem.agent.transcript.scaffold import neutralise, template
from rubricem.agent.transcript.words import (
    ADDRESS,
    SIGNATURE,
    exact_names,
    overlap,
    part_about,
)
from rubricem.memory.language import (
    NAMES,
    PAIRED,
    is_foreign,
    language_of,
    sentences,
    stands,
    stop_words,
)
from rubricem.memory.schema import (
    Completion,
    Embedder,
    Message,
    Sampling,
    Source,
    Stage,
)

ANSWERS = "Does the passage answer the question? Say Yes or No."
_RIGHT = "Is this answer right, by what the passage says? Say Yes or No."
SPAN = Sampling(temperature=0.0, max_tokens=32)
SENTENCE = Sampling(temperature=0.0, max_tokens=72)
QUERY = Sampling(temperature=0.0, max_tokens=24)
QUOTE_CHARACTERS = 400


def logit(chance: float) -> float:
    """Of a probability, which is kept from 0 and 1."""
    kept = min(max(chance, 1e-4), 1 - 1e-4)
    return math.log(kept / (1 - kept))


def chance_right(answers: float, right: float, mean_logprob: float) -> float:
    """That a passage says what was read from it, 0 to 1, by the fitted null.

    `answers`, `right`: the model's probability that the passage answers, and that the span is
    right; `mean_logprob` of the span's tokens in nats.
    """
    null = TUNED.null
    score = null.bias + null.answers * logit(answers) + null.right * logit(right)
    score += null.mean_logprob * mean_logprob
    return 1 / (1 + math.exp(-score))


def passage_of(source: Source, question: str, words: int = TUNED.words) -> str:
    """A source as the reader is shown it: its title, and its part about the question."""
    part = part_about(statements_of(source).text, words, question)
    return neutralise(f"{source.title}\n{part}")


def heading(passage: str, question: str) -> str:
    """What a reading begins with, whatever is then asked: the model reads it once."""
    return f"Passage: {passage}\n\nQuestion: {neutralise(question)}\n"


def checking(answer: str) -> str:
    return f"Answer: {answer}\n{_RIGHT}"


def language_note(question: str) -> str:
    """What a small model is told of the language to write in, where it is not English."""
    name = NAMES[language_of(question)] if is_foreign(question) else ""
    return f"\nWrite in {name}, the language of the question." if name else ""


@dataclass
class PassageReader:
    """Reads what answers a question; with an embedder also by the meaning of sentences."""

    embedder: Embedder | None = None

    async def reword(self, run: Run, question: str) -> str:
        """A query for a question in other words; "" where the model has none."""
        asked = f"Library: {run.search_tool.name}\nQuestion: {question}"
        messages = [Message("system", template("reword")), Message("user", neutralise(asked))]
        written = await run.aside(Stage.RESEARCH, messages, QUERY, "query")
        lines = written.text.strip().splitlines()
        return neutralise(lines[0].strip(" \"'")) if lines else ""

    async def read_whole(
        self, run: Run, sources: Sequence[Source], question: str
    ) -> Finding | None:
        """The bare answer to a question: a span of what is drafted from its passages.

        As likely as the passage that it rests on says it, by the null.
        """
        drafted, source = await self._draft(run, sources, question, run.passage_words)
        written = await conclude(run, drafted) if source else None
        if source is None or written is None:
            return None
        text, head = written.text.strip(), heading(passage_of(source, question), question)
        answers = await _chance(run, "read", head + ANSWERS)
        right = await _chance(run, "read", head + checking(text))
        chance = chance_right(answers, right, mean_logprob(written))
        quote = await self._quote(source, drafted, text)
        return Finding(text, source.id, quote, chance)

    async def _draft(
        self, run: Run, sources: Sequence[Source], question: str, words: int
    ) -> tuple[str, Source | None]:
        """A sentence written from all the passages, and the source that it rests on most.

        None where it names exactly what that does not.
        """
        if not sources:
            return "", None
        passages = [passage_of(source, question, words) for source in sources]
        told = "\n\n".join(f"[{at}] {passage}" for at, passage in enumerate(passages, start=1))
        head = f"{told}\n\nQuestion: {neutralise(question)}\n"
        head += language_note(question)
        shown = [Message("system", template("draft")), Message("user", head)]
        written = await run.aside(Stage.RESEARCH, shown, SENTENCE, "draft")
        drafted = _first_sentence(written)
        at = max(range(len(sources)), key=lambda i: overlap(drafted, passages[i]))
        whole = f"{sources[at].title}\n{sources[at].text}"
        stand = all(stands(name, whole) for name in exact_names(drafted, question))
        return drafted, sources[at] if drafted and stand else None

    async def read(self, run: Run, sources: Sequence[Source], question: str) -> Finding | None:
        """An answer in a sentence that the model and what checks the answer confirm; in the words
        of its source where they are nearly the same.
        """
        drafted, source = await self._draft(run, sources, question, TUNED.words)
        if source is None:
            return None
        head = heading(passage_of(source, question), question)
        chance = await _chance(run, "read", head + checking(drafted))
        if chance < TUNED.drafted:
            return None
        quote = await self._quote(source, drafted)
        if overlap(drafted, quote) < TUNED.same:
            if not await run.bears_out(source, drafted):
                return None
        elif chance < TUNED.supported:
            drafted, chance = quote, await _chance(run, "read", head + checking(quote))
        return Finding(drafted, source.id, quote, chance)

    async def nearest(self, run: Run, sources: Sequence[Source], question: str) -> Finding | None:
        """The sentences nearest to a question, if the model sees an answer in them."""
        told = await self.nearest_in(sources, question, most=TUNED.quoted)
        if not told:
            return None
        shown = "\n".join(quote for _, quote in told)
        chance = await _chance(run, "read", heading(shown, question) + ANSWERS)
        if chance < TUNED.found:
            return None
        [(first, quote), *more] = told
        chance = min(chance, TUNED.drafted)
        return Finding(quote, first, quote, chance, tuple(more))

    async def _quote(self, source: Source, about: str, span: str = "") -> str:
        """The sentence of a source that has a span and is nearest to a text; "" without one."""
        [*told] = await self.nearest_in([source], about, span)
        return told[0][1] if told else ""

    async def nearest_in(
        self, sources: Sequence[Source], about: str, span: str = "", most: int = 1
    ) -> list[tuple[str, str]]:
        """The sentences of sources, with their ids, that are nearest to a text, in words and, with
        an embedder, in meaning; those that have a span, and a bare signature only for want of
        others.
        """
        told = [
            (source, neutralise(" ".join(said.split())))
            for source in sources
            for said in sentences(statements_of(source).text)
        ]
        told = [each for each in told if span in each[1]] or told
        told = [each for each in told if not SIGNATURE.fullmatch(each[1])] or told
        plain = [ADDRESS.sub(" ", said) for _, said in told]
        worth = [TUNED.worded * overlap(about, said) for said in plain]
        if self.embedder is not None and told:
            titled = [f"{told[at][0].title}: {said}" for at, said in enumerate(plain)]
            for at, near in await asyncio.to_thread(by_meaning, self.embedder, [about], titled):
                worth[at] += near
        best = sorted(range(len(told)), key=lambda at: (-worth[at], len(told[at][1])))
        return [(told[at][0].id, told[at][1][:QUOTE_CHARACTERS]) for at in best[:most]]


def mean_logprob(written: Completion) -> float:
    """Of a text's tokens, in nats; 0 where the model gives none."""
    known = written.logprobs or (0.0,)
    return sum(known) / len(known)


def _first_sentence(written: Completion) -> str:
    return next(iter(sentences(" ".join(neutralise(written.text).split()))), "")


async def _chance(run: Run, prompt: str, asked: str) -> float:
    messages = [Message("system", template(prompt)), Message("user", asked)]
    chance = await run.chance(Stage.RESEARCH, messages, "reading")
    return 0.0 if chance is None else chance


async def conclude(run: Run, told: str) -> Completion | None:
    """The bare answer to the run's question: a span of what is told, or yes or no."""
    asked = f"{told}\n\nQuestion: {neutralise(run.alone)}"
    messages = [Message("system", template("conclude")), Message("user", asked)]
    pointed = replace(SPAN, grammar=span_grammar(told))
    written = await run.aside(Stage.RESEARCH, messages, pointed, "reading")
    return written if written.text.strip() else None


_BRACKETS = frozenset("()[]{};")
_WORD = re.compile(rf"[{PAIRED}]|[$\u00a3\u20ac]?[^\W_{PAIRED}](?:[^\s{PAIRED}]*[^\W_{PAIRED}])?%?")


def _words_of(text: str) -> list[tuple[str, str, bool]]:
    """Each word, what stands behind it on one line, and whether no span goes on there."""
    found = list(_WORD.finditer(text))
    words = []
    for at, match in enumerate(found):
        gap = text[match.end() : found[at + 1].start()] if at + 1 < len(found) else "\n"
        stops = len(match[0]) > TUNED.abbreviation and gap.strip()[:1] in (*".!?\u3002",)
        ends = stops or "\n" in gap or not _BRACKETS.isdisjoint(gap)
        words.append((match[0], re.sub(r"\s+", " ", gap), ends))
    return words


def _spans_of(text: str) -> Iterator[str]:
    """The grammar of the spans that begin at each word of a text."""
    words, binding = _words_of(text), stop_words(language_of(text))
    for start, (first, _, _) in enumerate(words):
        if first.casefold() in binding:
            continue
        pieces, said = list[str](), ""
        for word, gap, ends in words[start : start + TUNED.span]:
            said += word
            if word.casefold() not in binding:
                pieces.append(json.dumps(said, ensure_ascii=False))
                said = ""
            said += gap
            if ends:
                break
        if pieces:
            yield " (".join(pieces) + ")?" * (len(pieces) - 1)


def span_grammar(text: str) -> str:
    """A grammar (GBNF) of the spans of a text, and of yes and no.

    A span is at most so many words long, stays within a sentence, and neither begins nor ends with
    a function word.
    """
    choices = dict.fromkeys(['"yes"', '"no"', *_spans_of(text)])
    return f"root ::= {' | '.join(choices)}\n"
