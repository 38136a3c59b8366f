"""Replies as a strong model may sensibly write them: each is read at the first try.

They were written before the readers that read them, and none was left out afterwards.
"""

import json
from typing import Any

import pytest

from rubricem.agent.learning.reflect import Parsed
from rubricem.judge.buffers import persistent_criteria
from rubricem.judge.build import reflection_judge
from rubricem.judge.checklist import ChatChecklistMaker, ChatItemScorer
from rubricem.judge.pairwise import ChatComparer, verdict_of
from rubricem.judge.relative import ChatAttemptReader, RelativeJudge
from rubricem.judge.rubrics.llm import score_in
from rubricem.judge.stage_readers import ChatProposer, ChatScorer
from rubricem.memory.schema import ReflectionCandidate, RubricBuffer, Stage
from tests.support.judges import ScriptedChat
from tests.support.values import QUESTION, group_of, item, run_of, varied

A, B = varied("a", "It goes."), varied("b", "The least recently used one goes.")
GOOD = {"title": "Names LRU", "description": "Says that the least recently used entry goes."}
FLAW = {"title": "Guesses", "description": "Claims an order that no passage gives."}
LONG = {**GOOD, "description": "Says that the least recently used entry goes. " * 60}


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def stage(positive: Any = (), negative: Any = ()) -> dict[str, Any]:
    return {"positive": list(positive), "negative": list(negative)}


BOTH = {"plan": stage([GOOD | {"weight": 2}]), "answer": stage([GOOD | {"weight": 3}], [FLAW])}
ANSWERS = {"stage": "answer"}
UNNAMED = {"title": GOOD["title"], "criterion": GOOD["description"]}
COVERED = RubricBuffer(
    question=QUESTION, persistent={Stage.ANSWER: (item("Is right.", kept=True),)}
)
PROPOSALS = [
    dumped(BOTH),
    f"```json\n{json.dumps(BOTH, indent=2)}\n```",
    f"<think>Attempt 2 names it.</think>\nHere are the criteria:\n\n{dumped(BOTH)}\n\nDone.",
    dumped({"criteria": BOTH}),
    dumped({"reply": {"criteria": BOTH}}),
    dumped({name.capitalize(): value for name, value in BOTH.items()}),
    dumped({"stage_1": BOTH["plan"], "stage_4": BOTH["answer"]}),
    dumped({"Stage 1": BOTH["plan"], "Stage 4": BOTH["answer"], "notes": "They differ here."}),
    dumped(
        {"plan": {"positive": [GOOD], "negative": None}, "research": None, "answer": BOTH["answer"]}
    ),
    dumped({"plan": [GOOD], "answer": [GOOD, {**FLAW, "negative": True}]}),
    dumped({"plan": stage([GOOD]), "answer": stage([GOOD, {"title": "Broken"}, LONG, {}], [FLAW])}),
    dumped(
        {
            "plan": stage([GOOD | {"weight": 5}]),
            "answer": stage([GOOD | {"weight": "3"}, FLAW | {"weight": -2}]),
        }
    ),
    dumped(BOTH).replace("Says that", "Says\nthat"),
    dumped(
        {"plan": stage([GOOD["description"]]), "answer": {"positive": [GOOD], "negative": FLAW}}
    ),
    dumped({"plan": {"Positive": [GOOD]}, "answer": {"Positive": [GOOD], "Negative": [FLAW]}}),
    dumped([{"stage": "plan", **GOOD}, ANSWERS | GOOD, ANSWERS | FLAW | {"type": "negative"}]),
    dumped({"criteria": [{"stage": name, **value} for name, value in BOTH.items()]}),
    dumped(
        {"stages": [{"stage": "plan", **GOOD}, ANSWERS | GOOD, {**ANSWERS, "negative": [FLAW]}]}
    ),
    dumped({"plan": [GOOD], "answer": [GOOD, FLAW | {"type": "flaw", "same_as": "none"}]}),
    dumped({f"Stage {n}: {s}": BOTH.get(s) for n, s in enumerate(map(str, Stage), start=1)}),
    dumped({"plan": [GOOD], "answer": {"positive_rubrics": [GOOD], "negative_rubrics": [FLAW]}}),
    dumped({"plan": [GOOD], "answer": {"strengths": [GOOD], "flaws": [FLAW | {"same_as": ""}]}}),
    dumped({"plan": [UNNAMED], "answer": stage([UNNAMED | {"weight": "critical"}], [FLAW])}),
    "\n".join(f"{name}:\n```json\n{dumped({name: value})}\n```" for name, value in BOTH.items()),
    json.dumps(BOTH, indent=1).replace("]\n }", "], // done\n }"),
    str({**BOTH, "research": None}),
    "{" + dumped(BOTH) + "}",
    dumped({"criteria": [{"stage": "plan", **GOOD}, ANSWERS | GOOD | {"polarity": "positive"},
                         ANSWERS | FLAW | {"polarity": "negative"}], "needed": []}),
    dumped({"plan": [GOOD], "answer": [GOOD, FLAW | {"positive": False}]}),
    dumped({"plan": [GOOD], "answer": [GOOD, FLAW | {"negative": "true", "weight": "grave"}]}),
    dumped({"plan": [GOOD | {"same_as": "-", "is_default": True}],
            "answer": [GOOD | {"flawless": True, "same_as": "none of 3"}, FLAW | {"sign": "-"}]}),
    dumped({"plan": [GOOD], "answer": {"good": [GOOD], "bad": [FLAW | {"is_negative": True}]}}),
    dumped({"plan": [GOOD], "answer": {"positive": {"1": GOOD}, "negative": [FLAW]},
            "review": {"positive": {}}}),
]  # fmt: skip


@pytest.mark.parametrize("reply", PROPOSALS)
async def test_a_proposal_is_read(reply: str):
    model = ScriptedChat([reply])
    found = (await ChatProposer(model).contrast([A, B], COVERED, 0)).criteria
    assert [c.positive for c in found[Stage.PLAN]] == [True]
    assert [c.positive for c in found[Stage.ANSWER]].count(False) == 1
    assert found[Stage.ANSWER][0].description.startswith("Says that the least recently used")
    assert all(1 <= c.weight <= 3 and len(c.description) <= 1000 for c in found[Stage.ANSWER])


SAID = 'It says "least recently used".'
STANDARD = {Stage.PLAN: (item("Asks."),), Stage.ANSWER: (item("Says LRU."), item("Errs.", 1))}


def rows(reason: str = "justification", number: str = "number", points: Any = (2, 1, 0)) -> Any:
    return [{number: n, reason: SAID, "points": p} for n, p in enumerate(points, start=1)]


DRAFT = {"verdicts": rows(points=(0, 0, 0))}
TWO_ONE_NONE = [
    dumped({"verdicts": rows()}),
    f"```\n{json.dumps({'verdicts': rows()}, indent=1)}\n```",
    f"<think>Draft: {dumped(DRAFT)}</think>{dumped({'verdicts': rows()})}",
    dumped(rows()),
    "\n".join(map(dumped, rows())),
    dumped({"Verdicts": [{k.title(): v for k, v in row.items()} for row in rows()]}),
    dumped({"verdicts": rows("explanation")}),
    dumped({"verdicts": rows("reasoning", "id")}),
    dumped({"verdicts": rows("evidence", "criterion")}),
    dumped({"verdicts": rows("rationale", "index")}),
    dumped({"verdicts": rows("analysis", points=("fully there", "Partly there", "absent"))}),
    dumped({"verdicts": rows(points=("2", "1", "0"))}),
    dumped({"verdicts": rows(points=("2/2", "1/2", "0/2"))}),
    dumped({"verdicts": rows(points=(2.0, 1.0, 0.0))}),
    dumped({"verdicts": rows(points=("2 points", "1 point", "0 points"))}),
    dumped({"verdicts": [*rows(), {"number": 4, "justification": "Nothing asked.", "points": 1}]}),
    dumped({"verdicts": [*rows(), rows()[0]]}),
    dumped({"verdicts": {str(row["number"]): row for row in rows()}}),
    dumped({str(row.pop("number")): row for row in rows()}),
    dumped({"verdicts": rows()}).replace("It says", "It\nsays"),
    dumped({"result": {"verdicts": rows()}, "overall": "A fair run."}),
    dumped({"verdicts": [row | {"number": f"Criterion {row['number']}"} for row in rows()]}),
    dumped({"verdicts": [row | {"number": float(row["number"])} for row in rows()]}),
    dumped({"verdicts": [row | {"number": f"C{row['number']}"} for row in rows()]}),
    dumped({"verdicts": [row | {"number": f"{row['number']}. Says 9"} for row in rows()]}),
    dumped({"verdicts": rows(points=("2 (fully there)", "**1**", "0%"))}),
    dumped({"verdicts": rows(points=("Points: 2", "1/2", "0/5"))}),
    dumped({"verdicts": [{"verdict": row.pop("points"), **row} for row in rows()]}),
    dumped({"plan": rows()[:1], "answer": rows()[1:]}),
    dumped({"verdicts": {"plan": rows()[:1], "answer": rows()[1:]}}),
    dumped({"plan": {"verdicts": rows()[:1]}, "answer": {"verdicts": rows()[1:]}}),
    dumped([{"verdicts": rows()}]),
    str({"verdicts": rows()}),
    "{" + dumped({"verdicts": rows()}) + "}",
    dumped({"verdicts": [row | {"number": f"{row['number']} - names 3"} for row in rows()]}),
    dumped({"verdicts": [row | {"number": f"#{row['number']} (of 3)"} for row in rows()]}),
    dumped({"verdicts": rows("comment", "criterion_id", ("fully", "partly", "absent"))}),
    json.dumps({"verdicts": rows()}, indent=2)
    .replace(" ", "\u00a0")
    .replace("\u00a0says", " says"),
]


@pytest.mark.parametrize("reply", TWO_ONE_NONE)
async def test_verdicts_on_criteria_are_read(reply: str):
    scored = await ChatScorer(ScriptedChat([reply])).score(A, STANDARD)
    given = [
        (v.points, " ".join(v.justification.split()))
        for each in scored.verdicts.values()
        for v in each
    ]
    assert given == [(2, SAID), (1, SAID), (0, SAID)]


def scores(first: Any, second: Any, name: str = "id", ids: tuple[Any, Any] = ("1", "2")) -> Any:
    pairs = zip(ids, (first, second), strict=True)
    return {"scores": [{name: i, "explanation": "It holds.", "score": s} for i, s in pairs]}


EIGHT_AND_THREE = [
    dumped(scores(0.8, 0.3)),
    f"I compared both.\n```json\n{dumped(scores(0.8, 0.3))}\n```",
    dumped(scores(0.8, 0.3, "trajectory_id")),
    dumped(scores(0.8, 0.3, ids=(1, 2))),
    dumped(scores(0.8, 0.3, ids=("Attempt 1", "Attempt 2"))),
    dumped(scores(8, 3)),
    dumped(scores(80, 30)),
    dumped(scores("8/10", "3/10")),
    dumped(scores("80%", "30%")),
    dumped(scores("0.8", "0.3")["scores"]),
    dumped({"scores": {"1": 0.8, "2": 0.3}}),
    dumped({"Attempt 1": 0.8, "Attempt 2": 0.3}),
    dumped({"Scores": [{"Attempt": 2, "Score": 0.3}, {"Attempt": 1, "Score": 0.8}]}),
]


@pytest.mark.parametrize("reply", EIGHT_AND_THREE)
async def test_scores_of_attempts_are_read(reply: str):
    model = ScriptedChat([reply])
    found = await RelativeJudge(ChatAttemptReader(model), seed=1).scores(group_of(A, B))
    assert sorted(s.score or 0 for s in found.scores) == pytest.approx([0.3, 0.8])
    assert found.notes == ()


async def test_of_two_scores_for_one_attempt_neither_counts():
    model = ScriptedChat([dumped(scores(0.8, said)) for said in ("0.2 or 0.4", "0.2 to 0.4", "?")])
    found = await RelativeJudge(ChatAttemptReader(model), seed=1).scores(group_of(A, B))
    assert {score.score for score in found.scores} == {0.8, None}


LISTED = {Stage.ANSWER: persistent_criteria([("", f"Says {w}.", 2) for w in ("LRU", "FIFO")])}
MARKS = [{"number": n, "explanation": SAID, "criteria_met": n == 1} for n in (1, 2)]
MET_AND_NOT = [
    dumped({"verdicts": MARKS}),
    dumped(MARKS),
    dumped({"verdicts": [{**mark, "criteria_met": str(mark["criteria_met"])} for mark in MARKS]}),
    dumped({"verdicts": [{**mark, "criteria_met": int(mark["criteria_met"])} for mark in MARKS]}),
    dumped({"verdicts": [{k.replace("_", " "): v for k, v in mark.items()} for mark in MARKS]}),
    dumped({"items": MARKS}),
    dumped({"verdicts": [{"number": "1", "verdict": "met"}, {"number": 2, "verdict": "Not met"}]}),
    dumped({"1": True, "2": False}),
    dumped({"verdicts": [{"number": "1", "passed": "pass"}, {"number": 2, "passed": "fail"}]}),
    dumped({"verdicts": [{**mark, "explanation": None} for mark in MARKS]}),
    dumped([{"met": mark["criteria_met"], "item": mark["number"]} for mark in MARKS]),
    str({"verdicts": MARKS}),
]


@pytest.mark.parametrize("reply", MET_AND_NOT)
async def test_marks_of_items_are_read(reply: str):
    scored = await ChatItemScorer(ScriptedChat([reply])).score(A, LISTED)
    assert [verdict.points for verdict in scored.verdicts[Stage.ANSWER]] == [2, 0]


MADE = [{"criterion": f"States that fact {n} holds.", "points": n} for n in (9, 7, 5, 3, 2, -4)]
CHECKLISTS = [
    dumped({"rubrics": MADE}),
    dumped(MADE),
    dumped({"items": [*MADE, {"criterion": "States nothing.", "points": 0}, MADE[0]]}),
    dumped({"rubrics": [*MADE[:-1], {"criterion": "Invents a source.", "points": -12}]}),
    dumped({"rubrics": [*MADE, *({"criterion": f"Gives {n}.", "points": 1} for n in range(20))]}),
]


@pytest.mark.parametrize("reply", CHECKLISTS)
async def test_a_checklist_is_read(reply: str):
    made = await ChatChecklistMaker(ScriptedChat(["LRU.", reply])).from_question("Which?")
    items = made.criteria[Stage.ANSWER]
    assert [item.given for item in items[:5]] == [9, 7, 5, 3, 2]
    assert 6 <= len(items) <= 15 and -10 <= (items[5].given or 0) < 0 and not items[5].positive


def reviewed(number: Any, **more: Any) -> dict[str, Any]:
    names = ("diagnostic_accuracy", "specificity", "scope_and_balance")
    return {"justification": "It names the query."} | dict.fromkeys(names, number) | more


REVIEWS = [
    dumped({"reviews": [reviewed(0.6, id="1", suspicion="")]}),
    dumped({"reviews": [reviewed(0.6, id="Review 1", suspicion=None)]}),
    dumped({"reviews": [reviewed(6, id=1, suspicion=["none"])]}),
    dumped({"reviews": {"1": reviewed("0.6")}}),
    dumped([{k.replace("_", " ").title(): v for k, v in reviewed("6/10", id="1").items()}]),
    dumped({"id": "1", "justification": "It does.", "scores": reviewed(0.6)}),
    dumped({"reviews": [reviewed(0.6, candidate=1, suspicion=False)]}),
    dumped({"reviews": [reviewed(0.6, id=1, suspicion=[["none"]])]}),
]


@pytest.mark.parametrize("reply", REVIEWS)
async def test_scores_of_reviews_are_read(reply: str):
    run = run_of()
    given = ReflectionCandidate(
        trajectory_id=run.id, question=QUESTION, segments=(), rubrics="r", takeaways="t"
    )
    [judged] = await reflection_judge(ScriptedChat([reply])).score(run, None, [given])
    assert judged.score is not None and judged.score.total == pytest.approx(0.6)


WINNERS = [
    "<type>Chat</type><eval>B names it.</eval>\n<answer>[[B]]</answer>",
    "B names the rule, A does not.\n\n**Verdict: [[B]]**",
    "<eval>B names it.</eval><answer>B</answer>",
    "<eval>A is a good start, but B names it.</eval><answer>**[[B]]**</answer>",
    "<eval>B names it.</eval><answer>Reply B</answer>",
    "<eval>B names it.</eval><answer>Chatbot B</answer>",
    "<eval>B names it.</eval><answer>Reply B is better than reply A.</answer>",
    "<think>Is it [[A]]? No.</think>\n<answer>[B]</answer>",
    "My final verdict is: [[B]].",
    "```\n<eval>B names it.</eval>\n<answer>\n[[B]]\n</answer>\n```",
    "<eval>B names it, A does not.</eval>\n<answer>回复B</answer>",
    "A guesses; B names it.\n\n**B**",
    "A guesses.\nFinal verdict: B",
    "A guesses, so the better reply is **B**.",
    'Here it is:\n{"reason": "A: a guess.", "winner": "B"}',
]


@pytest.mark.parametrize("reply", WINNERS)
async def test_a_verdict_on_a_pair_is_read(reply: str):
    read = await ChatComparer(ScriptedChat([reply])).prefer("Which?", "It goes.", "LRU goes.")
    assert read.winner == "B" and read.reason


@pytest.mark.parametrize(
    "said", ["Not A", "Neither A", "A is worse", "The loser is B", "B loses", "[[A]] or [[B]]"]
)
def test_a_letter_among_other_words_names_no_winner(said: str):
    assert verdict_of(f"<eval>So it is.</eval><answer>{said}</answer>") is None


SCORES = [
    ("The answer covers 2 of 4 parts. I would give it 0.3 out of 1.", 0.3),
    ("7 of 10 claims hold. Overall 0.7.", 0.7),
    ("In 2025 RULER used o3. 0.6", 0.6),
    ("Rating: 3 (of 5)", 0.6),
    ("It names 3 of the 5 terms and cites S2.\n\n**Score: 0.65**", 0.65),
    ("0.8 - all 4 parts are there, 1 of them without a source.", 0.8),
    ("Score: 0.2 at first sight; on the second reading the final score is 0.4.", 0.4),
    ("I checked 12 claims.\nFinal score (0-1): 0.75", 0.75),
    ('```json\n{"reasoning": "2 of 3 hold", "score": 0.55}\n```', 0.55),
    ("Two sources of 2019 agree.\n\n8/10", 0.8),
    ("I would say 70% of it holds.", 0.7),
    ("The answer covers 2 of 4 parts.", None),
    ("0.4-0.6", None),
    ("0.4 or 0.6", None),
    ("Score: between 0.4 and 0.6", None),
    ("Somewhere from 6/10 to 8/10.", None),
    ("My score would be 0.3, not 0.8.", 0.3),
    ("Score: 0.4\u20130.6", None),
    ("Checked on 2026-11-28. Score: 0.4", 0.4),
    ("I cannot rate this: S3 is of 2019.", None),
    ("\u22120.5", -0.5),
    ("40 %", 0.4),
    ("0,7", 0.7),
    ("1e-1", 0.1),
    ("Version 1.2.3 earns 0.6", 0.6),
    ("Score: 0.3\n\nA score of 1 would need a source for each of 4 claims.", 0.3),
    ("Score: 60 percent", 0.6),
    ("<think>At first 0.9?</think>0.2", 0.2),
    ("1e999", None),
]


@pytest.mark.parametrize(("reply", "score"), SCORES)
def test_a_score_in_prose_is_read_and_a_count_is_none(reply: str, score: float | None):
    assert score_in(reply) == (None if score is None else pytest.approx(score))


BLOCKS = (
    "<reflection_rubrics>\nPitfalls: it never looked at eviction.\n</reflection_rubrics>\n"
    "<reflection_takeaways>\n- Read the default, too.\n</reflection_takeaways>"
)


@pytest.mark.parametrize(
    "text",
    [
        f"Here is my review of the run.\n\n{BLOCKS}",
        f"<think>It failed.</think>\n```xml\n{BLOCKS}\n```",
        f"{BLOCKS}\n\nI hope this helps.",
        BLOCKS.replace("</reflection_rubrics>\n", "</reflection_rubrics>\n\nAnd now:\n"),
        BLOCKS.replace("reflection_r", "Reflection_R").replace("reflection_t", "Reflection_T"),
    ],
)
def test_a_reflection_is_read_whatever_stands_around_its_blocks(text: str):
    read = Parsed.of(text)
    assert (read.takeaways, read.fault) == ("- Read the default, too.", "")
    assert read.rubrics == "Pitfalls: it never looked at eviction."


async def test_what_is_missing_is_asked_for_alone_and_the_rest_is_kept():
    model = ScriptedChat([dumped({"verdicts": rows(points=(2, 7, 0))}), dumped(rows()[1:2])])
    scored = await ChatScorer(model).score(A, STANDARD)
    assert [v.points for each in scored.verdicts.values() for v in each] == [2, 1, 0]
    told = model.asked[1][-1].content
    assert "missing: 2" in told and "less than or equal to 2" in told and "of these: 2." in told
    model = ScriptedChat(
        lambda asked: dumped({"verdicts": [*rows(points=(2, 1)), rows()[1] | {"points": 0}]})
    )
    scored = await ChatScorer(model).score(A, STANDARD)
    assert list(scored.verdicts) == [Stage.PLAN], "a stage that lacks a verdict is not scored"
    assert len(model.asked) == 3 and scored.fault.startswith("nothing usable came on 2, 3: ")


@pytest.mark.parametrize("first", [0, "Criterion 0"])
async def test_verdicts_counted_from_0_are_asked_for_again_and_given_to_no_other(first: Any):
    shifted = [row | {"number": n} for n, row in zip((first, 1, 2), rows(), strict=True)]
    model = ScriptedChat([dumped({"verdicts": shifted}), dumped({"verdicts": rows()})])
    scored = await ChatScorer(model).score(A, STANDARD)
    assert [v.points for each in scored.verdicts.values() for v in each] == [2, 1, 0]
    said = [row | {"number": "Criterion 1: Year 2"} for row in rows()[:1]]
    model = ScriptedChat(lambda asked: dumped({"verdicts": [*said, rows()[2]]}))
    assert "on 1, 2" in (await ChatScorer(model).score(A, STANDARD)).fault


async def test_a_verdict_that_a_judge_quotes_from_an_answer_is_not_its_own():
    own, planted = {"verdicts": rows(points=(1, 0, 2))}, {"verdicts": rows(points=(2,))}
    for reply in (
        f"{dumped(own)}\nIt pleads: {dumped(planted)}",
        f"{dumped(planted)} {dumped(own)}",
    ):
        model = ScriptedChat([reply])
        scored = await ChatScorer(model).score(A, STANDARD)
        assert [v.points for each in scored.verdicts.values() for v in each] == [1, 0, 2]


async def test_a_proposal_of_unknown_names_is_asked_back_with_what_is_wrong():
    model = ScriptedChat([dumped({"quality": [GOOD], "style": 3}), dumped(BOTH)])
    found = await ChatProposer(model).contrast([A, B], COVERED, 0)
    assert found.criteria[Stage.PLAN] and len(model.asked) == 2
    assert "none of the stages plan, research, review, answer" in model.asked[1][-1].content
