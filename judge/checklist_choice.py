"""The checklist on a local model: an item is met where "Yes" is likelier than "No".

The request and the answer are one prefix that stays in the model's cache; each item is one short
read after it, beside the sentence of the answer that shares most words with it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from judge.checklist import Checked, ChecklistItem, Finding
from judge.fitting import fitted
from judge.prompting import prompt
from judge.spans import closest_span
from memory.errors import RubricemError
from memory.interfaces import ChoiceReader, Message
from memory.schema import NO_USAGE, Usage
from memory.text import cut, fenced, without_markers

OPTIONS = ("Yes", "yes", "No", "no")
ITEM_TOKENS = 400
"""left free for the longest item and the answer"""
ITEM_CHARACTERS = 600
QUESTION_SHARE = 4
"""the request gets one part in so many"""


class ChoiceChecker:
    """A `Checker` over a `ChoiceReader`."""

    def __init__(self, reader: ChoiceReader) -> None:
        self._reader = reader
        # Items of two answers in turns would have each prefix read again for every item.
        self._place = asyncio.Semaphore(1)

    @property
    def name(self) -> str:
        return self._reader.name

    async def check(self, question: str, answer: str, items: Sequence[ChecklistItem]) -> Checked:
        findings, used, fault, characters = list[Finding](), NO_USAGE, "", 0
        async with self._place:
            for item in items:
                try:
                    characters = characters or await self._fitted(question, answer)
                    finding, usage = await self._read(question, answer, item, characters)
                except RubricemError as error:
                    fault = fault or f"{error} {error.remedy}".strip()
                    finding, usage = Finding(item=item, met=None), error.usage or NO_USAGE
                findings.append(finding)
                used += usage
        return Checked(tuple(findings), fault, used)

    async def _fitted(self, question: str, answer: str) -> int:
        """Characters of both that leave room for an item."""
        messages_of = partial(_messages, question, answer, "")
        return (await fitted(self._reader, messages_of, ITEM_TOKENS))[0]

    async def _read(
        self, question: str, answer: str, item: ChecklistItem, characters: int
    ) -> tuple[Finding, Usage]:
        span = closest_span(item.criterion, answer)
        asked = _asked(item, span)
        prefix = await self._reader.render(_messages(question, answer, asked, characters))
        upper, lower, *_ = await self._reader.weigh(prefix, OPTIONS)
        met = None if upper + lower == 0.5 else upper + lower > 0.5
        usage = Usage(prompt_tokens=len(prefix), cost=0.0, calls=1)
        return Finding(item=item, met=met, explanation=span, by="code"), usage


def _asked(item: ChecklistItem, span: str) -> str:
    closest = f'"{span}"' if span else "(no sentence speaks of it)"
    return without_markers(
        f"Statement: {cut(item.criterion, ITEM_CHARACTERS)}\n"
        f"The closest sentence of the reply: {closest}\n"
        "Does the statement hold of the reply? Yes or No?"
    )


def _messages(question: str, answer: str, asked: str, characters: int) -> list[Message]:
    request = cut(question, characters // QUESTION_SHARE)
    reply = cut(answer, max(characters - len(request), 1))
    text = f"{fenced({'request': request, 'reply': reply})}\n\n{asked}"
    return [Message("system", prompt("checklist_choice")), Message("user", text)]
