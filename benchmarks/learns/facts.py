"""A teacher that is code: it knows a question's facts, and writes what a good run would write.

It plans the hops of the evidence, searches for those whose subject is known by now, two subjects
to a query, reads from the passages that are shown which hops are settled, marks the others as
missing, and quotes the words that say what it claims. So its traces show the shortest form of the
scaffold, in which nothing is said twice, cost no model's time, and are right; a policy that
imitates them still has to learn what to search for. It stands behind an OpenAI-compatible server on
loopback, and is collected like any other teacher.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.learns.recipe import Facts, plain_title
from rubricem.agent.evaluate.grades import normal_answer
from rubricem.agent.transcript.scaffold import parse
from rubricem.training.collect.questions import Question

Hop = tuple[str, str, str]
Shown = Mapping[str, Mapping[str, str]]
"""title -> the texts of its passages by their ids"""
AT_ONCE = 2
"""subjects of one query, as many as passages are shown"""
ITEM = "- all facts"
"""of the rubric; which of them are open is in the evaluation before the review"""
BEFORE = 5
"""words of a quotation before those of what is found"""
COMMON = {"country of citizenship": "nationality", "publication date": "release date"}
_SENTENCE = re.compile(r"(?<=[a-z0-9)][a-z0-9)][.!?])\s+(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class FactsTeacher:
    """Gives the next turn of each conversation about a question that it knows."""

    questions: Mapping[str, Facts]
    searches: int

    @classmethod
    def of(cls, questions: Iterable[Question], searches: int) -> "FactsTeacher":
        return cls({q.question: Facts.model_validate(q.facts) for q in questions}, searches)

    def __call__(self, request: Mapping[str, Any]) -> str:
        """The reply to a chat request. Raises KeyError for a question that it does not know."""
        said = [message["content"] for message in request["messages"] if message["role"] == "user"]
        question, outputs = said[0].partition("\n\n")[0], said[1:]
        facts = self.questions[question]
        state = _State(question, facts, _shown(outputs))
        if not outputs:
            return _plan(facts.evidence) + state.search()
        before = _State(question, facts, _shown(outputs[:-1])).settled()
        new = [hop for hop in state.settled() if hop not in before]
        found = "; ".join(f"[{n}] {hop[2]} ({name})" for n, hop, name, _ in new)
        evaluated = (
            f"<think>{found or 'Nothing new.'}</think>\n<state_evaluation>"
            f"{f'Open: {state.open_numbers()}.' if state.left() else 'All is found.'}"
            "</state_evaluation>\n"
        )
        if state.left() and len(outputs) < self.searches:
            return evaluated + state.search()
        return evaluated + state.ending()


@dataclass(frozen=True, slots=True)
class _State:
    """How much of the evidence is shown; a hop is settled by the passage about its subject."""

    question: str
    facts: Facts
    shown: Shown

    def settled(self) -> list[tuple[int, Hop, str, str]]:
        """Each settled hop: its number, itself, the id of its passage and what that says of it."""
        numbered = enumerate(self.facts.evidence, start=1)
        return [(n, hop, *_told(hop, self.shown[hop[0]])) for n, hop in numbered
                if hop[0] in self.shown]  # fmt: skip

    def left(self) -> list[Hop]:
        return [hop for hop in self.facts.evidence if hop[0] not in self.shown]

    def open_numbers(self) -> str:
        evidence = self.facts.evidence
        return ", ".join(f"[{n}]" for n, hop in enumerate(evidence, 1) if hop[0] not in self.shown)

    def search(self) -> str:
        """For subjects that the question names or a settled hop has found, the earliest first."""
        unknown = {plain_title(hop[2]) for hop in self.left()}
        ready = [hop for hop in self.left() if plain_title(hop[0]) not in unknown] or self.left()
        wanted = {hop[0]: _common(hop[1]) for hop in ready[:AT_ONCE]}
        query = " ".join([*wanted, *dict.fromkeys(wanted.values())])
        return f'<call_tool name="search">{query}</call_tool>'

    def ending(self) -> str:
        settled = self.settled()
        ids = ", ".join(dict.fromkeys(name for *_, name, _ in settled))
        cites = " ".join(f'<cite id="{name}">{said}</cite>' for *_, name, said in settled)
        answer = self.facts.answers[0]
        # Which of two it is can be guessed; anything else that was not found is said to be that.
        guessed = answer in ("yes", "no") or normal_answer(answer) in normal_answer(self.question)
        bare = answer if guessed or not self.left() else "not found"
        return (
            f"<review><rubric_review>\n{ITEM} [{'missing' if self.left() else f'met: {ids}'}]\n"
            "</rubric_review>\n<writing_plan>quote, then answer</writing_plan></review>\n"
            f"<answer>{cites or 'Nothing was found.'}\n{bare}</answer>"
        )


def _plan(evidence: Iterable[Hop]) -> str:
    found_by: dict[str, int] = {}
    lines = list[str]()
    for number, hop in enumerate(evidence, start=1):
        named = found_by.get(plain_title(hop[0]))
        lines.append(f"{number}. {_common(hop[1])} of {f'[{named}]' if named else hop[0]}")
        found_by.setdefault(plain_title(hop[2]), number)
    kind = "chain" if any("of [" in line for line in lines) else "side by side"
    return (
        f"<think>{len(lines)} facts</think>\n<structured_plan><deep_analysis>{kind}"
        f"</deep_analysis>\n<rubric>\n{ITEM}\n</rubric>\n"
        "<research_plan>\n" + "\n".join(lines) + "\n</research_plan></structured_plan>\n"
    )


def _common(relation: str) -> str:
    return COMMON.get(relation, relation)


def _told(hop: Hop, passages: Mapping[str, str]) -> tuple[str, str]:
    """The id and the words, of some passages, that say most of what the hop finds.

    They stand together in one sentence: what is found, and at most `BEFORE` words before it.
    """
    found = set(normal_answer(hop[2]).split())

    def hits(sentence: str) -> list[int]:
        words = enumerate(sentence.split())
        return [place for place, word in words if found & set(normal_answer(word).split())]

    said = [(name, one) for name, text in passages.items() for one in _SENTENCE.split(text.strip())]
    name, sentence = max(said, key=lambda one: len(found & set(normal_answer(one[1]).split())))
    first, *rest = hits(sentence) or [BEFORE]
    last = max((place for place in rest if place < first + 2 * len(found)), default=first)
    return name, " ".join(sentence.split()[max(first - BEFORE, 0) : last + 1])


def _shown(outputs: Iterable[str]) -> Shown:
    found: dict[str, dict[str, str]] = {}
    for document in map(parse, outputs):
        for block in document.find("snippet"):
            title, _, text = document.inner(block).strip().partition("\n")
            if text:
                found.setdefault(title, {}).setdefault(block.attributes.get("id", ""), text)
    return found
