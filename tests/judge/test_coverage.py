"""Ten groups of one question: its parts keep a criterion, and none is said twice."""

import json
import random
import re

import pytest

from rubricem.judge.stage import StageJudge
from rubricem.judge.stage_readers import ChatProposer
from rubricem.memory.schema import Criterion, RubricBuffer, Stage, Trajectory
from tests.support.judges import ScriptedChat
from tests.support.values import ScriptedScorer, group_of, varied

QUESTION = "How does RULER make a reward, how does RubricEM, and what of an unreliable judge?"
PARTS = {
    "ruler": ("RULER's relative scores", "A group is scored in one call", "Attempts are ranked"),
    "rubricem": ("RubricEM's stage rewards", "Criteria evolve by stage", "Buffers are pruned"),
    "judge": ("An unreliable judge", "What a judge's noise does", "Repeated judging"),
}
ASIDE = {
    "apart": ("Splits the comparison", "Separates the questions", "Takes the parts one by one"),
    "terms": ("Searches by the method's terms", "Queries name the mechanism"),
}
WORDS = {word: topic for topic, said in (PARTS | ASIDE).items() for word in said}


def topics(text: str) -> dict[str, int]:
    """Topic -> the number under which a prompt lists a criterion of it."""
    lines = re.findall(r"^(\d+)\. \[\w+\] ([^:]+):", text, re.M)
    return {WORDS[title]: int(number) for number, title in lines}


class Proposing(ScriptedChat):
    """Proposes in ever other words, as a model does, and says what repeats a listed criterion."""

    def __init__(self, *, needed: bool) -> None:
        super().__init__(self.reply)
        self.needed, self.draw = needed, random.Random(7)

    def item(self, topic: str, known: dict[str, int]) -> dict[str, object]:
        title = self.draw.choice((PARTS | ASIDE)[topic])
        return {"title": title, "description": f"It says: {title}.", "weight": 2,
                "same_as": known.get(topic)}  # fmt: skip

    def reply(self, shown: str) -> str:
        known = topics(shown)
        aside = [self.item(topic, known) for topic in ASIDE]
        parts = [self.item(topic, known) for topic in PARTS]
        said = {"plan": aside[:1], "research": aside[1:], "answer": parts[:2], "needed": parts}
        if '"needed"' not in shown:
            return json.dumps(said)  # as a server that holds to the schema writes it
        kept = parts if self.needed or len(self.asked) > 1 else []
        return json.dumps(said | {"answer": [], "needed": kept})


@pytest.mark.parametrize(("needed", "calls"), [(True, 10), (False, 11)])
async def test_after_ten_groups_every_part_has_a_criterion_and_none_is_said_twice(
    needed: bool, calls: int
):
    draw = random.Random(3)

    def points(run: Trajectory, stage: Stage, criterion: Criterion) -> float:
        return float(draw.choice((0, 1, 2, 2)))

    model = Proposing(needed=needed)
    judge = StageJudge(ChatProposer(model), ScriptedScorer(points))
    buffer = RubricBuffer(question=QUESTION)
    for step in range(10):
        runs = (varied(f"{step}{n}", f"It goes {n} {step}.") for n in range(4))
        buffer = (await judge.judge(group_of(*runs), buffer, step)).buffer
        force = [WORDS[c.title] for c in buffer.criteria(Stage.ANSWER)]
        assert set(force) >= set(PARTS), "no part is without a criterion at any time"
    for stage in Stage:
        said = [*buffer.criteria(stage), *buffer.retired.get(stage, ())]
        named = [WORDS[criterion.title] for criterion in said]
        assert len(named) == len(set(named)), f"{stage}: {named}"
    assert len(model.asked) == calls, "one a group, and one where the first left them out"
