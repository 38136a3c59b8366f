"""What a judge reads of a trajectory, and the sentence that code finds for a criterion."""

import pytest

from rubricem.judge.transcripts import (
    cites_of,
    closest_span,
    distinct,
    shown,
    shown_stage,
    stage_text,
)
from rubricem.memory.schema import Author, Decoding, Segment, Stage
from rubricem.memory.text import cut, fenced
from tests.support.values import WHOLE, run_of, varied

NOTE = Segment(author=Author.PROMPT, stage=Stage.REVIEW, turn=2, text="Now write the review.")
TOOL = Segment(author=Author.TOOL, stage=Stage.RESEARCH, turn=1, text="<tool_output>" + "x" * 900)
DISCARDED = Segment(author=Author.POLICY, stage=Stage.ANSWER, turn=1, text="bad", kept=False)


def test_a_stage_is_what_was_kept_of_it_without_the_runners_notes():
    run = run_of(extra=[NOTE, DISCARDED])
    assert stage_text(run, Stage.REVIEW) == WHOLE[Stage.REVIEW]
    assert stage_text(run, Stage.ANSWER) == WHOLE[Stage.ANSWER]


def test_in_forced_mode_what_the_runner_wrote_belongs_to_the_stage():
    run = run_of(extra=[NOTE], decoding=Decoding.FORCED)
    assert stage_text(run, Stage.REVIEW).endswith("Now write the review.")


def test_tool_output_is_shortened_before_the_policys_words():
    run = run_of(extra=[TOOL])
    short = shown_stage(run, Stage.RESEARCH, 300)
    assert WHOLE[Stage.RESEARCH] in short and len(short) <= 300
    assert "[...]" in short


@pytest.mark.parametrize("characters", [200, 400, 2000])
def test_all_stages_are_shown_within_the_characters_and_their_fences(characters: int):
    text = shown(run_of(extra=[TOOL]), characters)
    assert all(f" {stage}]" in text for stage in Stage)
    assert len(text) <= characters + 4 * 80
    assert ("x" * 900 in text) == (characters == 2000)


def test_a_text_cannot_close_its_own_fence():
    inside = "[end of text a]"
    lines = fenced({"a": inside}).splitlines()
    assert lines[0] != "[text a]" and lines[-1] != inside
    assert lines[1] == inside


def test_an_empty_text_is_said_to_be_empty():
    assert fenced({"plan": ""}).splitlines()[1] == "(nothing)"


def test_cutting_keeps_the_beginning_and_the_end():
    assert cut("abcdefghij", 10) == "abcdefghij"
    assert cut("abcdefghijklmnopqrst", 13) == "abcd [...] st"


def test_runs_with_the_same_words_count_once():
    runs = [varied("a", "one"), varied("b", "two"), varied("c", "one")]
    assert distinct(runs) == [0, 1]


def test_the_span_shares_most_words_and_has_no_tags():
    text = (
        "<answer>\nThe cache is fast.\n"
        '<cite id="S1">The least recently used entry is evicted.</cite> It has a size.\n</answer>'
    )
    found = closest_span("Says which entry is evicted: the least recently used.", text)
    assert found == "The least recently used entry is evicted."


def test_of_equal_spans_the_shortest_is_taken_and_none_is_an_empty_one():
    assert closest_span("names heapq", "The module heapq is old.\nUse heapq.") == "Use heapq."
    assert closest_span("names bisect", "Use heapq.") == ""


def test_cites_are_told_once_each_and_those_of_no_source_apart():
    text = 'It <cite id="S1, S2">drops</cite> and <cite ids="S2 S9">grows</cite>; see <cite id="">'
    assert cites_of(text, {"S1", "S2", "S3"}) == "S1, S2, and 1 that were never found"
    assert cites_of("It drops the oldest.", {"S1"}) == "none"
    assert cites_of('<cite id="S9">It drops.</cite>', {"S1"}) == "none, and 1 that were never found"
