"""The relative judge: scores as models write them, shuffled and put back."""

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rubricem.judge.buffers import json_rows
from rubricem.judge.relative import (
    ALONE,
    IDENTICAL,
    ChatAttemptReader,
    ChoiceAttemptReader,
    RelativeJudge,
    RelativeScores,
    check_conversations,
    conversation_groups,
)
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import Stage, Status, TrajectoryGroup
from tests.support.policies import chatting
from tests.support.values import ByCharacter, group_of, run_of, varied

Mark = Callable[[str], float]


def marks_in(said: str) -> dict[str, str]:
    """Attempt number -> its text, as the judge was shown them."""
    pieces = re.split(r"^Attempt (\d+):$", said, flags=re.M)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def by_text(score: Mark, **extra: Any) -> Callable[[dict[str, Any], int], str]:
    def answer(body: dict[str, Any], number: int) -> str:
        given = [
            {"id": name, "explanation": f"says {score(text)}", "score": score(text)}
            for name, text in marks_in(body["messages"][1]["content"]).items()
        ]
        return json.dumps({"scores": given[::-1], **extra})

    return answer


async def judged(
    script: Any, group: TrajectoryGroup, seed: int = 0
) -> tuple[RelativeScores, list[str]]:
    """What the judge makes of a group, and what each of its calls was shown."""
    async with chatting(script) as (chat, server):
        judge = RelativeJudge(ChatAttemptReader(chat))
        result = await judge.scores(group, seed)
    return result, [r.body["messages"][1]["content"] for r in server.requests]


def value(text: str) -> float:
    found = re.search(r"worth (\d)", text)
    return int(found.group(1)) / 10 if found else 0.0


def worth(*points: int) -> Any:
    return group_of(*(varied(str(i), f"It is worth {p}.") for i, p in enumerate(points)))


@pytest.mark.parametrize("seed", range(4))
async def test_scores_return_to_their_runs_whatever_the_order(seed: int):
    points = (3, 9, 1, 5)
    result, shown = await judged(by_text(value), worth(*points), seed)
    assert [score.score for score in result.scores] == [0.3, 0.9, 0.1, 0.5]
    assert result.scores[1].justification == "says 0.9"
    seen = [value(text) * 10 for text in marks_in(shown[0]).values()]
    order = random.Random(seed).sample(range(4), 4)
    assert seen == [points[place] for place in order]
    assert (len(shown), result.usage.calls, result.notes) == (1, 1, ())


NINE = group_of(*(varied(str(n), f"It is worth {n}.") for n in range(9)))


@pytest.mark.parametrize(
    ("group", "scores", "shown", "notes"),
    [
        (group_of(), [], 0, []),
        (worth(7), [0.7], 1, [ALONE]),
        (worth(7, 7, 7), [0.7] * 3, 1, [IDENTICAL]),
        (worth(7, 2, 7), [0.7, 0.2, 0.7], 2, []),
        (NINE, [n / 10 for n in range(9)], 9, []),
    ],
    ids=["nobody", "alone", "identical", "twins", "many"],
)
async def test_what_says_the_same_is_shown_once_and_what_limits_the_scores_is_noted(
    group: TrajectoryGroup, scores: list[float], shown: int, notes: list[str]
):
    result, asked = await judged(by_text(value), group)
    assert [score.score for score in result.scores] == scores
    assert list(result.notes) == notes
    assert [len(marks_in(said)) for said in asked] == ([shown] if shown else [])


async def test_runs_that_wrote_nothing_are_unscored_without_a_call():
    result, asked = await judged([], group_of(run_of({}, "a"), run_of({}, "b")))
    assert [s.unscored_reason for s in result.scores] == ["nothing was written"] * 2
    assert asked == []


async def test_a_run_that_a_server_cut_off_is_unscored_and_not_shown():
    failed = run_of({Stage.PLAN: "Half a"}, "x", status=Status.FAILED, reason="server gone")
    result, [said] = await judged(by_text(value), group_of(failed, *worth(3, 9).trajectories))
    assert [s.score for s in result.scores] == [None, 0.3, 0.9]
    assert "server gone" in result.scores[0].unscored_reason and "Half a" not in said


BAD = [
    '{"scores": [{"id": "1", "score": 0.5}]}',
    '{"scores": [{"id": "1", "score": 0.5}, {"id": "3", "score": 0.6}]}',
    '{"scores": [{"id": "1", "score": NaN}, {"id": "2", "score": 0.6}]}',
    '{"scores": [{"id": "1", "score": 0.9}, {"id": "2", "score": 8}]}',
    '{"scores": [{"id": "1", "score": 0.9}',
]


@pytest.mark.parametrize("bad", BAD)
async def test_a_reply_of_another_shape_is_asked_for_again(bad: str):
    good = '```json\n{"scores": [{"id": 1, "score": 0.8}, {"id": "2", "score": "0.4"}]}\n```'
    result, _ = await judged([bad, good], worth(3, 9))
    assert sorted(score.score or 0 for score in result.scores) == [0.4, 0.8]
    assert result.usage.calls == 2


@pytest.mark.parametrize(
    ("bad", "runs", "scored"), [(BAD[0], 2, 1), (BAD[3], 2, 0), (BAD[3], 3, 0), ("No.", 2, 0)]
)
async def test_what_a_judge_fails_on_is_unscored_and_the_rest_is_not(
    bad: str, runs: int, scored: int
):
    result, _ = await judged(lambda body, number: bad, worth(*range(1, runs + 1)))
    unscored = [score for score in result.scores if score.score is None]
    assert len(unscored) == runs - scored
    assert all("the judge failed: " in score.unscored_reason for score in unscored)
    assert ("missing: 2" in unscored[0].unscored_reason) == bool(scored)
    assert (result.usage.calls, len(result.notes)) == (3, 1)


class Digits(ByCharacter):
    """A `ChoiceReader` with one token per character, sure of the attempt's worth."""

    context_tokens = 3000

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        said = "".join(map(chr, prefix))
        number = re.findall(r"grade of attempt (\d+)", said)[-1]
        text = said.split(f"Attempt {number}:\n")[1].split("\n\n")[0]
        sure = int(value(text) * 10)
        return tuple(1.0 if int(option) == sure else 0.0 for option in options)


async def test_probabilities_grade_each_attempt_and_fit_the_context():
    group = group_of(*(varied(str(p), f"worth {p}. {'x' * 3000}") for p in (9, 0)))
    result = await RelativeJudge(ChoiceAttemptReader(Digits())).scores(group, seed=3)
    assert [score.score for score in result.scores] == [1.0, 0.0]
    assert (result.usage.calls, result.usage.cost) == (2, 0)


SYSTEM = {"role": "system", "content": "You book trains."}
ASKED = {"role": "user", "content": [{"type": "text", "text": "To Graz by noon?"}]}
TOOLS = [{"type": "function", "function": {"name": "timetable", "parameters": {}}}]


def talk(points: int, **more: Any) -> list[dict[str, Any]]:
    """A conversation with one call of a tool, which ends with what it is worth."""
    call = {"id": "1", "type": "function", "function": {"name": "timetable", "arguments": "{}"}}
    return [
        SYSTEM,
        ASKED,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "09:02 " * 9 + more.get("found", "")},
        {"role": "assistant", "content": f"It is worth {points}."},
    ]


async def messages_scored(*talks: list[dict[str, Any]]) -> tuple[RelativeScores, list[str]]:
    async with chatting(by_text(value)) as (chat, server):
        judge = RelativeJudge(ChatAttemptReader(chat))
        result = await judge.scores_of_messages(talks, TOOLS)
    return result, [r.body["messages"][1]["content"] for r in server.requests]


async def test_conversations_of_any_agent_are_scored_with_system_prompt_and_tools_shown():
    result, [said] = await messages_scored(talk(3), talk(9), talk(9), talk(1))
    assert [score.score for score in result.scores] == [0.3, 0.9, 0.9, 0.1]
    shared, attempts = said.split("Attempt 1:")
    assert "system: You book trains." in shared and '"name": "timetable"' in shared
    assert "user: To Graz by noon?" in shared and "[calls timetable: {}]" in shared
    assert "You book trains." not in attempts and len(marks_in(said)) == 3, "twins are shown once"


@pytest.mark.parametrize("wrong", [{"content": "no role"}, "text", {"role": 3}])
def test_what_is_no_message_is_told(wrong: Any):
    with pytest.raises(SettingsError, match="Message 2 of conversation 1 has no role"):
        check_conversations({1: [SYSTEM, wrong]})


def test_rows_are_grouped_by_name_or_by_how_they_begin():
    other = [{"role": "user", "content": "To Linz?"}, {"role": "assistant", "content": "No."}]
    rows = [{"messages": talk(1)}, {"messages": other, "tools": TOOLS}, {"messages": talk(2)},
            {"messages": other, "group": 7}]  # fmt: skip
    found = list(conversation_groups(dict(zip((2, 3, 5, 8), rows, strict=True))))
    assert [lines for lines, _, _ in found] == [[2, 5], [3], [8]]
    assert [tools for _, _, tools in found] == [[], TOOLS, []]
    with pytest.raises(SettingsError, match="Line 3 holds no conversation"):
        list(conversation_groups(json_rows('\n\n{"prompt": "x"}\n{"prompt": "y"}', "the file")))
    with pytest.raises(SettingsError, match="of conversation 3 has no role"):
        list(conversation_groups({3: {"messages": [{"content": "x"}]}}))
