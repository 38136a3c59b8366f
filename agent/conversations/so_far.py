"""The thread as its next question is shown it: earlier reports, and the passages they cite.

Everything in it is quoted as tool output is, since a report can repeat what a page said. Blocks
are taken whole, those of the latest report first, each with the passages that it cites and that
are not shown yet, until the tokens are used up: so no id is shown without its passage.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.conversations.background import Background, Turn
from agent.policy import Policy
from agent.prompting import template
from agent.run import Run
from agent.scaffold import neutralise
from agent.toolout import excerpt
from memory.text import cut

SHARE = 1 / 8
"""of the context, where it is known"""
MOST_TOKENS = 6000
CHARACTERS_A_TOKEN = 3
"""where nobody counts them; a token of English has about four"""
FIRST_BLOCK = 0.4
"""share of the tokens that the first block of the latest report is cut to, if it is longer"""

_ID = re.compile(r"\[(S\d+)(?::[^\]\n]*)?\]")
_MORE = "[...]"


@dataclass
class _Shown:
    """What fits: the blocks of each turn, and the passages."""

    left: int
    blocks: dict[int, list[str]] = field(default_factory=dict)
    passages: dict[str, str] = field(default_factory=dict)


async def thread_so_far(run: Run) -> str:
    """What stands before the question of a run in a thread; "" for one that is asked alone.

    The passages shown are at hand from now on: they can be cited without being found again.
    """
    background = run.evidence.background
    if not background.turns:
        return ""
    shown = await _chosen(background, run.policy, run.ask.passage_words)
    run.evidence.take_up(sorted(shown.passages, key=lambda each: (len(each), each)))
    turns = (_turn(at, turn, shown.blocks.get(at)) for at, turn in enumerate(background.turns))
    passages = [shown.passages[source.id] for source in run.sources.values()]
    quoted = "".join([*filter(None, turns), *passages])
    return f"{template('thread')}\n<tool_output>\n{quoted}</tool_output>\n\n"


async def _chosen(background: Background, policy: Policy, words: int) -> _Shown:
    context = policy.context_tokens
    most = MOST_TOKENS if context is None else min(MOST_TOKENS, int(context * SHARE))
    shown = _Shown(most)
    for at in reversed(range(len(background.turns))):
        # The question is shown even where nothing of its report is.
        for number, block in enumerate(["", *_blocks(background.turns[at])]):
            first = number == 1 and at == len(background.turns) - 1
            block = cut(block, int(most * FIRST_BLOCK * CHARACTERS_A_TOKEN)) if first else block
            new = {
                i: _snippet(background, i, words)
                for i in dict.fromkeys(_ID.findall(block))
                if i in background.by_id and i not in shown.passages
            }
            text = block or _asked(background.turns[at])
            cost = await _tokens(policy, "".join([text, *new.values()]))
            if cost > shown.left:
                return shown
            shown.left -= cost
            shown.passages |= new
            shown.blocks.setdefault(at, []).extend([block] if block else [])
    return shown


def _blocks(turn: Turn) -> Iterator[str]:
    """The paragraphs of a report, or its lines where it has but one."""
    blocks = re.split(r"\n[ \t]*\n", turn.report)
    blocks = blocks if len(blocks) > 1 else turn.report.splitlines()
    return (neutralise(block.strip("\n")) for block in blocks if block.strip())


def _turn(at: int, turn: Turn, blocks: list[str] | None) -> str:
    if blocks is None:
        return ""
    whole = len(blocks) == len(list(_blocks(turn)))
    report = "\n\n".join([*blocks, *([] if whole else [_MORE])]) or "No report was written."
    return f"Question {at + 1}: {_asked(turn)}\nReport {at + 1}:\n{report}\n\n"


def _asked(turn: Turn) -> str:
    return neutralise(" ".join(turn.question.split())[:1000])


def _snippet(background: Background, identifier: str, words: int) -> str:
    source = background.by_id[identifier]
    body = neutralise("\n".join(filter(None, (source.title, excerpt(source.text, words)))))
    return f'<snippet id="{identifier}">\n{body}\n</snippet>\n'


async def _tokens(policy: Policy, text: str) -> int:
    ids = await policy.encode(text)
    return math.ceil(len(text) / CHARACTERS_A_TOKEN) if ids is None else len(ids)
