"""The runs that judging is measured on, and what the loopback server's judge says of them."""

import json
import re
from collections.abc import Sequence

from benchmarks.judge_cost import by_items, by_stages
from benchmarks.judged import buffer_of, judge_reply, question_of, run_of
from benchmarks.loopback import TURNS, reply_to
from benchmarks.stage_damage import damage
from benchmarks.stage_sensitivity import buffer_of as given_buffer
from benchmarks.stage_sensitivity import run_of as given_run
from rubricem.judge.base import is_written, stage_text
from rubricem.memory.schema import (
    Author,
    Completion,
    Message,
    OnText,
    Sampling,
    Stage,
    StopPredicate,
    Usage,
)
from tests.conftest import ROOT

RUNS = ROOT / "benchmarks" / "stage_runs.jsonl"


class Counted:
    """Answers as the loopback server does; a token is four characters."""

    name = "counted"

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        text = judge_reply(messages[-1].content)
        tokens = sum(len(message.content) for message in messages) // 4
        return Completion(text, "eos", usage=Usage(prompt_tokens=tokens, calls=1))


async def test_a_group_of_eight_is_judged_in_nine_calls_and_far_fewer_tokens():
    runs, buffer = [run_of(number, 4000) for number in range(8)], buffer_of(question_of(0))
    proposing, scoring = await by_stages(Counted(), runs, buffer)
    items = await by_items(Counted(), runs, buffer)
    assert (proposing.calls, scoring.calls, items.calls) == (1, 8, 96)
    assert items.prompt_tokens >= 8 * scoring.prompt_tokens
    assert items.prompt_tokens >= 5 * (scoring.prompt_tokens + proposing.prompt_tokens)


def test_runs_have_the_length_asked_for_and_differ():
    runs = [run_of(number, 6000) for number in range(2)]
    assert len(runs[0].transcript()) == 6000
    assert runs[0].transcript() != runs[1].transcript()
    assert all(is_written(runs[0], stage) for stage in Stage)


def test_the_server_scores_every_criterion_and_still_plays_its_run():
    asked = "text\n\nCriteria:\n1. [plan] a: b\n2. [answer] c: d"
    verdicts = json.loads(reply_to({"messages": [{"role": "user", "content": asked}]}))["verdicts"]
    assert [verdict["number"] for verdict in verdicts] == [1, 2]
    assert reply_to({"messages": [{"role": "user", "content": "a question"}]}) == TURNS[0]


def test_every_written_run_can_be_damaged_in_each_stage_and_says_what_it_should():
    rows = [json.loads(line) for line in RUNS.read_text(encoding="utf-8").splitlines()]
    runs = [given_run(row) for row in rows]
    for place, (run, row) in enumerate(zip(runs, rows, strict=True)):
        buffer = given_buffer(row)
        for stage in Stage:
            worse = damage(run, stage, runs[place - 1])
            assert stage_text(worse, stage) != stage_text(run, stage)
            assert len(buffer.criteria(stage)) == 2
        cited = set(re.findall(r'<cite id="(S\d)"', run.transcript()))
        found = " ".join(s.text for s in run.segments if s.author is Author.TOOL)
        assert cited and all(f"{name} " in found for name in cited)
