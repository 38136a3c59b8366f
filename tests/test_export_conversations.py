"""Conversations for imitation: what is accepted, what each message holds, where no loss stands."""

import pytest

from agent.rejection import Rule
from memory.schema import Author, Decoding, ScaffoldedPrompt, Segment, Stage, Status, Trajectory
from tests.flow import answer, plan
from tests.trajectories import BOUND, source, trajectory
from training.export_conversations import Conversation, conversation

FOUND = '\n<tool_output>\n<snippet id="S1">so</snippet>\n</tool_output>\n'
NOTE = "\n\nNo further search is possible.\n"


def segment(author: Author, text: str, turn: int, **more: object) -> Segment:
    stage = Stage.RESEARCH if turn else None
    return Segment(author=author, stage=stage, turn=turn, text=text, **more)  # type: ignore[arg-type]


def run(said: str = 'It <cite id="S1">grows without bound</cite>.', **more: object) -> Trajectory:
    segments = (
        segment(Author.PROMPT, "The question.", 0),
        segment(Author.POLICY, plan(), 1),
        segment(Author.TOOL, FOUND, 1),
        segment(Author.PROMPT, NOTE, 1),
        segment(Author.POLICY, "<answer>broken", 2, kept=False),
        segment(Author.POLICY, answer(said), 2),
    )
    fields = {"segments": segments, "system": "Be good.", "sources": (source(1, BOUND),), **more}
    return trajectory().model_copy(update=fields)


def accepted(one: Trajectory, *rules: Rule) -> Conversation:
    made = conversation(one, rules)
    assert isinstance(made, Conversation), made
    return made


def test_a_conversation_is_the_system_prompt_the_question_and_one_long_turn():
    made = accepted(run())
    assert [m.role for m in made.messages] == ["system", "user", "assistant"]
    assert [m.content for m in made.messages[:2]] == ["Be good.", "The question."]
    assert made.messages[2].content == plan() + FOUND + NOTE + answer(
        'It <cite id="S1">grows without bound</cite>.'
    )


def test_what_others_wrote_is_one_untrained_span():
    made = accepted(run())
    ((start, end),) = made.untrained
    assert made.messages[2].content[start:end] == FOUND + NOTE


def test_a_scaffold_is_not_in_what_is_imitated():
    shown = ScaffoldedPrompt(text=" Say 1.", shown=1)
    made = accepted(run(system="Be good. Say 1.", scaffold=shown))
    assert made.messages[0].content == "Be good."


def test_a_forced_trace_is_recast_as_free_mode_writes_it():
    forced = run(decoding=Decoding.FORCED)
    segments = [
        s if s.author is not Author.PROMPT or not s.turn else s.model_copy(update={"text": ""})
        for s in forced.segments
    ]
    made = accepted(forced.model_copy(update={"segments": tuple(segments)}))
    system, user, written = (m.content for m in made.messages)
    assert "at most 10" in system or "10" in system
    assert user.startswith(forced.question)
    assert "<think>The search brought nothing new.</think>" in written
    ((start, end),) = made.untrained
    assert written[start:end].strip() == FOUND.strip()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"status": Status.PARTIAL}, "it is partial, not finished"),
        ({"segments": run().segments[:-1]}, "rejected by the rule no_answer"),
    ],
)
def test_what_breaks_a_rule_is_left_out_with_the_reason(changed: dict[str, object], reason: str):
    assert conversation(run(**changed)) == reason


def test_citations_are_looked_at_where_it_is_asked_for():
    unknown = run('It <cite id="S7">grows without bound</cite>.')
    assert isinstance(conversation(unknown), Conversation)
    assert conversation(unknown, [Rule.CITATION]) == "rejected by the rule citation"
    wrong = run('It <cite id="S1">holds 999 calls by default</cite>.')
    assert isinstance(conversation(wrong, [Rule.CITATION]), Conversation)
    assert conversation(wrong, [Rule.SUPPORT]) == "rejected by the rule support"
    accepted(run('<cite id="S1">If maxsize is None the cache grows without bound.</cite>'),
             Rule.SUPPORT, Rule.CITATION)  # fmt: skip
