"""Runs whose reports are read: checked, recalling, and with hostile text in every place."""

from rubricem.memory.schema import (
    CitationCheck,
    CitationSupport,
    Recollection,
    Repair,
    Status,
    Trajectory,
    Verification,
)
from tests.support.values import source, trajectory

CITED = '<cite id="S1">With maxsize None the cache grows.</cite>'

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "[x]: http://evil.example\n\n[x]",
    "![pixel](http://evil.example/p.png)",
    "<http://evil.example>",
    "`a` <b>`<script>`",
    "```\n````\n<script>alert(1)</script>",
    "- ```\n<script>alert(1)</script>",
    "~~~\n<script>\n~~~",
    "\\`<script>`",
    "`\n`<script>`",
    '"><script>',
    "\x1b[31mred\x1b[0m <style>*{}</style>",
)


def hostile(text: str) -> Trajectory:
    """A run with the text wherever a model, a page or a person may put one."""
    return trajectory(
        f'{text}\n\n<cite id="S1">{text} claim</cite>',
        question=text,
        sources=(source(1, f"{text} claim", text, text),),
        status=Status.PARTIAL,
        reason=text,
    )


OWN = Recollection(id="0a1b", question="How does it evict?", own=True, score=0.8)

SIMILAR = Recollection(
    id="2c3d", question="What <b>is</b> *kept*?\x1b[31m\nNow", similarity=0.876, score=0.5
)

RECALLING = trajectory("It is.").model_copy(
    update={"recalled": (OWN.id, SIMILAR.id), "recollections": (OWN, SIMILAR)}
)

SCRIPT = "<script>alert(1)</script>"


def check(verdict: CitationSupport, claim: str, source: str = "S1", why: str = "") -> CitationCheck:
    return CitationCheck(source=source, claim=claim, verdict=verdict, reason=why)


def checked(answer: str, *checks: CitationCheck, repairs: tuple[Repair, ...] = ()) -> Trajectory:
    found = Verification(
        mode="repair" if repairs else "mark",
        checker="lexical rules",
        checks=checks,
        repairs=repairs,
    )
    return trajectory(answer).model_copy(update={"verification": found})


DOUBTED = checked(
    '<cite id="S1">It grows.</cite> <cite id="S2">It evicts 3.</cite> '
    '<cite id="S1">It ends.</cite>',
    check("supported", "It grows."),
    check("unsupported", "It evicts 3.", "S2", f"no 3 in it, {SCRIPT}"),
    check("partial", "It ends.", why="only a part"),
)

MARKED = "It grows [1]. It evicts 3 [2: not supported]. It ends [1: in part]."
