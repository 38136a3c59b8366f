"""What the scripted model of the web page's tests writes, chosen by words of the question.

`slowly`: in small pieces; `forever`: it falls silent after the plan; `hostile`: markup of every
kind. It also plays the checker of claims and the stage judge.
"""

import json
import re

from tests.scripted_server import Json, Reply, Scripted

DOCUMENTS = {
    "lru_cache": (
        "# functools.lru_cache\n\nIf maxsize is set to None, the LRU feature is disabled and the "
        "cache can grow without bound. Otherwise the least recently used entry is discarded first."
    ),
    "cache": (
        "# functools.cache\n\nSimple lightweight unbounded function cache, sometimes called "
        "memoize. Because it never needs to evict old values, it is smaller and faster."
    ),
    "report": (
        "# Caches in our services\n\nIn 2023 a bounded cache of 128 entries kept 82 percent of "
        "the hits of an unbounded one, measured over a week."
    ),
    "hostile": (
        "# Hostile <img src=x onerror=alert(1)>\n\nThe hostile page says <script>alert(2)</script>"
        " and <svg onload=alert(3)> [here](javascript:alert(4)) <style>*{display:none}</style>."
    ),
}
PAYLOADS = (
    "<script>alert(5)</script>",
    "<img src=x onerror=alert(6)>",
    "<svg/onload=alert(7)>",
    "[press](javascript:alert(8))",
    "<style>main{display:none}</style>",
    '<a href="javascript:alert(9)">link</a>',
    "<iframe srcdoc='<script>alert(10)</script>'></iframe>",
    "![](https://elsewhere.example/x.png)",
)
"""written in the question, the plan and the answer of a hostile run"""
PLAN = (
    "<think>Two facts are asked for: what an unbounded cache does, and how a bounded one "
    "evicts. The documentation settles both; a figure needs a measurement.</think>\n"
    "<structured_plan>\n<deep_analysis>Two facts and a figure; two searches should do."
    "</deep_analysis>\n<rubric>\n- Says what happens to the size when maxsize is None\n"
    "- Says which entry is discarded first otherwise\n- Gives a measured figure for the hits\n"
    "</rubric>\n<research_plan>1. Read the documentation of lru_cache.\n"
    "2. Look for a measurement.</research_plan>\n</structured_plan>\n"
    '<call_tool name="search">{query}</call_tool>'
)
NEXT = (
    "<think>The documentation settles the size and the order. The figure is open.</think>\n"
    "<state_evaluation>The first two items are settled by S1; the measurement is open."
    '</state_evaluation>\n<call_tool name="search">{query}</call_tool>'
)
LAST = (
    "<think>All that can be found is found.</think>\n<state_evaluation>Enough to answer."
    "</state_evaluation>\n<review>\n<rubric_review>\n- What happens to the size when maxsize is "
    "None: met by S1\n- Which entry is discarded first: met by S1\n- A measured figure for the "
    "hits: partly, one service alone\n</rubric_review>\n<writing_plan>The size, then the order, "
    "then the figure.</writing_plan>\n</review>\n<answer>{answer}</answer>"
)
ANSWER = (
    'With `maxsize=None` the cache <cite id="S1">can grow without bound</cite>. Otherwise '
    '<cite id="S1">the least recently used entry is discarded first</cite>.\n\n'
    "## What a bound costs\n\n"
    'In one measurement a bounded cache <cite id="S2">kept 90 percent of the hits</cite>.\n\n'
    "- Use `functools.cache` where the arguments are few.\n"
    "- Use `lru_cache` where they are not, and memory matters.\n"
)
CRITERIA = json.dumps(
    {
        stage: {
            "positive": [
                {"title": "Covers the question", "description": whole, "weight": 3},
                {"title": "Says what is open", "description": honest, "weight": 2},
            ]
        }
        for stage, whole, honest in (
            ("plan", "Plans for the size, the order and the figure", "Says what may not be found"),
            ("research", "Finds the documentation and a measurement", "Says what is still missing"),
            ("review", "Holds every item against a passage", "Says which item is met in part"),
            ("answer", "Answers both parts of the question", "Says how far the figure reaches"),
        )
    }
)
"""the stage judge's rubrics"""
_KINDS = (("Both parts have their place.", 2), ("Only in passing.", 1))
VERDICTS = json.dumps(
    {
        "verdicts": [
            {"number": number, "justification": said, "points": points}
            for number, (said, points) in enumerate(_KINDS * 4, start=1)
        ]
    }
)
WRONG = "90 percent"
"""a claim with it is held by no source"""
_CLAIM = re.compile(r"^Claim \d+, .*?(?=^Claim \d+, |\Z)", re.S | re.M)


def reply(body: Json, number: int) -> Scripted:
    """Answer as whoever the system prompt speaks to."""
    system, *messages = [str(message["content"]) for message in body["messages"]]
    if "You are a research agent" in system:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return _researcher(messages[0].partition("\n\nAnswer with")[0], turn)
    if system.startswith("You check claims"):
        return _checked(messages[0])
    return VERDICTS if '"verdicts"' in system else CRITERIA


def _researcher(question: str, turn: int) -> Scripted:
    if "forever" in question and turn == 1:
        return Reply(NEXT, hang_after=4)
    turns = _hostile() if "hostile" in question else _usual()
    text = turns[min(turn, len(turns) - 1)]
    pieces = [text[i : i + 24] for i in range(0, len(text), 24)]
    return Reply(pieces=pieces, piece_seconds=0.05 if "slowly" in question else 0.0)


def _usual() -> list[str]:
    return [
        PLAN.format(query="lru_cache maxsize None bound"),
        NEXT.format(query="measured hits of a bounded cache"),
        LAST.format(answer=ANSWER),
    ]


def _hostile() -> list[str]:
    written = " and ".join(PAYLOADS)
    planned = PLAN.replace("- Gives a measured figure", f"- Says {PAYLOADS[1]} and figure")
    answer = f'The <cite id="S1">hostile page says</cite> {written}'
    return [planned.format(query="hostile page"), LAST.format(answer=answer)]


def _checked(asked: str) -> str:
    claims = _CLAIM.findall(asked)
    verdicts = [
        {
            "number": number,
            "reason": "The passage gives 82 percent." if WRONG in claim else "It says so.",
            "verdict": "unsupported" if WRONG in claim else "supported",
        }
        for number, claim in enumerate(claims, start=1)
    ]
    return json.dumps({"verdicts": verdicts})
