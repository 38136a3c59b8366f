"""A plan: numbered look-ups, what kind of answer each has, and what is done with the answers.

A look-up may refer to what an earlier one finds: `2. Where did [1] die? | place` (Self-Ask,
arXiv:2210.03350; ReWOO, arXiv:2305.18323). The model writes the plan by a grammar, so that its
lines are data; a person may edit it, and then it is read more tolerantly. Code adds no look-up,
and takes nothing away but references to look-ups that do not come before.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from rubricem.agent.research.tuned import TUNED
from rubricem.memory.schema import AnswerKind

REFERENCE = re.compile(r"\[(\d{1,3})\]")
_ITEM = re.compile(r"^[ \t]*(\d{1,3})[.)][ \t]*(\S[^|\n]*)(?:\|[ \t]*([\w/]+))?", re.MULTILINE)
_THEN = re.compile(r"^[ \t]*Then:[ \t]*(\w+)([^\n]*)", re.MULTILINE | re.IGNORECASE)


class PlanOperation(StrEnum):
    """What is done with the answers of several look-ups."""

    NONE = "none"
    EARLIER = "earlier"
    LATER = "later"
    SAME = "same"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Lookup:
    number: int
    text: str
    kind: AnswerKind = AnswerKind.WORDS

    @property
    def refers(self) -> tuple[int, ...]:
        """Numbers of the look-ups whose answers it names."""
        return tuple(dict.fromkeys(map(int, REFERENCE.findall(self.text))))


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Lookup, ...]
    operation: PlanOperation = PlanOperation.NONE
    of: tuple[int, ...] = ()
    """numbers of the look-ups that the operation is on"""

    @property
    def leaves(self) -> tuple[int, ...]:
        """Numbers of those that no other rests on."""
        referred = {n for step in self.steps for n in step.refers}
        return tuple(step.number for step in self.steps if step.number not in referred)

    @property
    def ends(self) -> tuple[int, ...]:
        """Numbers of those whose answers make the answer.

        Of a plan that does nothing with two of them that is the last where it ends a chain, else
        all that no other rests on.
        """
        if self.operation is not PlanOperation.NONE:
            return self.of
        last = self.steps[-1]
        return (last.number,) if last.refers else self.leaves

    @property
    def needed(self) -> frozenset[int]:
        """The ends and all that they rest on."""
        held = set[int]()
        todo = [*self.ends]
        while todo:
            number = todo.pop()
            held.add(number)
            todo += self.step(number).refers
        return frozenset(held)

    @property
    def apart(self) -> bool:
        """Whether the question's own passages may answer each look-up: one, or parts in words."""
        words = all(step.kind is AnswerKind.WORDS and not step.refers for step in self.steps)
        return len(self.steps) == 1 or (words and self.operation is PlanOperation.NONE)

    def step(self, number: int) -> Lookup:
        return next(step for step in self.steps if step.number == number)

    def text(self) -> str:
        """The plan as `read_plan` reads it."""
        lines = [f"{step.number}. {step.text} | {step.kind}" for step in self.steps]
        of = " and ".join(f"[{number}]" for number in self.of)
        return "\n".join([*lines, f"Then: {self.operation} {of}".rstrip()])


def read_plan(text: str, question: str) -> Plan:
    """The plan in a text, of at most `TUNED.lookups` look-ups; without any the question itself.

    They are numbered anew in their order; one that repeats another is that one. A reference to a
    later or missing one is removed; an operation on fewer than two is on the plan's last two.
    """
    numbers, steps = dict[str, int](), list[Lookup]()
    for written, said, kind in _ITEM.findall(text)[: TUNED.lookups]:
        asked = REFERENCE.sub(lambda r: f"[{numbers[r[1]]}]" if r[1] in numbers else "", said)
        asked = " ".join(asked.split())
        known = (step.number for step in steps if step.text.casefold() == asked.casefold())
        numbers[written] = number = next(known, len(steps) + 1)
        if number > len(steps):
            steps.append(Lookup(number, asked, _kind_of(kind)))
    if not steps:
        return Plan((Lookup(1, " ".join(question.split())),))
    plan = Plan(tuple(steps))
    told = _THEN.search(text)
    name = told[1].casefold() if told else ""
    if told is None or name not in {*PlanOperation} - {PlanOperation.NONE} or len(steps) < 2:
        return plan
    of = tuple(dict.fromkeys(numbers[n] for n in REFERENCE.findall(told[2]) if n in numbers))
    pair = of if len(of) > 1 else (plan.leaves if len(plan.leaves) > 1 else (1, 2))[-2:]
    return Plan(plan.steps, PlanOperation(name), pair)


def _kind_of(written: str) -> AnswerKind:
    name = written.casefold()
    return AnswerKind(name) if name in {*AnswerKind} else AnswerKind.WORDS


def plan_grammar(most: int) -> str:
    """A grammar (GBNF) of plans with up to so many look-ups, behind "1."."""
    lines, nested = list[str](), ""
    for number in range(most, 0, -1):
        before = "".join(f' | "[{n}]"' for n in range(1, number))
        lines.append(f"t{number} ::= ([^\\n|\\[\\]]{before})+")
        head = '" "' if number == 1 else f'"{number}. "'
        line = f'{head} t{number} "| " kind "\\n"'
        nested = f"{line} ({nested})?" if nested else line
    kinds = " | ".join(f'"{kind}"' for kind in AnswerKind)
    refs = " | ".join(f'"[{n}]"' for n in range(1, most + 1))
    names = " | ".join(f'"{each}"' for each in PlanOperation if each is not PlanOperation.NONE)
    return "\n".join([
        f'root ::= {nested} "Then: " then',
        f"kind ::= {kinds}",
        f'then ::= "none" | ({names}) " " ref " and " ref',
        f"ref ::= {refs}",
        *lines,
    ]) + "\n"  # fmt: skip
