"""The forms in which a pairwise judge can be asked to reason before its verdict.

`full` is the chain of rubrics: the kind of request, then a rubric or a solution of its own, then
the comparison. The other two are the ablations of RM-R1 (arXiv:2505.02387): `no-types` leaves
out the kind and always writes a rubric, `no-rubric` compares at once. A judge is trained to
write one of them, and is asked in that one.
"""

import re
from collections.abc import Mapping
from typing import Literal

from judge.pairwise_chat import shown_pair
from judge.pairwise_parsing import verdict_of
from judge.prompting import prompt
from memory.interfaces import Message

ChainForm = Literal["full", "no-types", "no-rubric"]

_PROMPTS: Mapping[ChainForm, str] = {
    "full": "pairwise",
    "no-types": "pairwise_no_types",
    "no-rubric": "pairwise_no_rubric",
}
_END = r"\s*<eval>.+</eval>\s*<answer>\[\[[AB]\]\]</answer>\s*"
_RUBRIC = r"\s*<rubric>.+</rubric>"
_WHOLE: Mapping[ChainForm, re.Pattern[str]] = {
    "full": re.compile(
        rf"\s*<type>(?:Chat</type>{_RUBRIC}|Reasoning</type>\s*<solution>.+</solution>){_END}", re.S
    ),
    "no-types": re.compile(_RUBRIC + _END, re.S),
    "no-rubric": re.compile(_END, re.S),
}


def chain_messages(
    form: ChainForm, question: str, first: str, second: str, characters: int
) -> list[Message]:
    """What a judge of that form is asked; replies are cut to so many characters together."""
    shown = shown_pair(question, first, second, characters)
    return [Message("system", prompt(_PROMPTS[form])), Message("user", shown)]


def well_formed(text: str, form: ChainForm) -> bool:
    """Whether the text is the form's parts in their order, and nothing beside them."""
    return _WHOLE[form].fullmatch(text) is not None


def verdict_end(text: str) -> int | None:
    """Where a judge's text ends, once it names a winner; None while it does not."""
    end = text.lower().rfind("</answer>")
    if end < 0 or verdict_of(text) is None:
        return None
    return end + len("</answer>")
