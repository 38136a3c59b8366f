"""Trajectories built by hand for the tests of citations, reports and the view."""

from datetime import UTC, datetime

from memory.schema import (
    AnswerFormat,
    Author,
    Decoding,
    Segment,
    Source,
    Stage,
    Status,
    Trajectory,
    Usage,
)

BOUND = "If maxsize is None the cache grows without bound. Otherwise it holds 128 calls."
EVICTS = "functools.lru_cache(maxsize=128)\nThe least recently used entry is evicted first."
PLAN = (
    "<think>Look it up.</think>\n<structured_plan>\n<rubric>\n- Names the rule\n- Names the "
    "default\n</rubric>\n<research_plan>Search.</research_plan>\n</structured_plan>\n"
)


def source(number: int, text: str, title: str = "lru_cache", location: str = "lib.py") -> Source:
    return Source(
        id=f"S{number}",
        title=title,
        location=location,
        place="line 3",
        text=text,
        tool="search",
        query="lru",
    )


def trajectory(
    answer: str = "",
    *,
    answer_format: AnswerFormat = AnswerFormat.LONG,
    question: str = "How does lru_cache evict?",
    sources: tuple[Source, ...] = (source(1, BOUND), source(2, EVICTS)),
    status: Status = Status.FINISHED,
    reason: str = "",
) -> Trajectory:
    """A run with a plan, one search and the answer's inner text ("": no answer block)."""
    policy, tool = Author.POLICY, Author.TOOL
    segments = [
        Segment(author=Author.PROMPT, text=f"Question: {question}"),
        Segment(author=policy, stage=Stage.PLAN, turn=1, text=PLAN),
        Segment(author=policy, stage=Stage.RESEARCH, turn=1, text="<call_tool>lru</call_tool>\n"),
        Segment(
            author=tool,
            stage=Stage.RESEARCH,
            turn=1,
            text='<tool_output><snippet id="S1">text</snippet></tool_output>\n',
        ),
        Segment(
            author=policy,
            stage=Stage.REVIEW,
            turn=2,
            text="<review><rubric_review>Both met.</rubric_review></review>\n",
        ),
    ]
    if answer:
        text = f"<answer>{answer}</answer>"
        segments += [
            Segment(author=policy, stage=Stage.ANSWER, turn=2, text="<answer>bad", kept=False),
            Segment(author=policy, stage=Stage.ANSWER, turn=2, text=text, attempt=1),
        ]
    return Trajectory(
        id="run-1",
        thread="thread-1",
        question=question,
        answer_format=answer_format,
        decoding=Decoding.FREE,
        segments=tuple(segments),
        sources=sources,
        status=status,
        reason=reason,
        policy="test-policy",
        usage=Usage(prompt_tokens=1200, completion_tokens=80, cost=0.0021, calls=2),
        tool_calls=1,
        started_at=datetime(2026, 8, 5, 9, 3, tzinfo=UTC),
        seconds=65.2,
    )
