"""The stage rewards of the recipe for multi-hop questions, worked by hand."""

import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learns.recipe import FORM, formed_rewards, rewards
from rubricem.judge.base import stage_text
from rubricem.judge.build import identify_judge
from rubricem.judge.composed import ComposedJudge, StageView, compositions_of
from rubricem.judge.rubrics import Rubric
from rubricem.judge.stage import StageJudge
from rubricem.memory.schema import (
    AnswerFormat,
    Passage,
    RubricBuffer,
    Stage,
    StageScore,
    Trajectory,
    TrajectoryGroup,
)
from rubricem.training.local.local_config import Method
from rubricem.training.rounds.rounds_config import build_job
from tests.conftest import ROOT
from tests.support.policies import FixedSearch, browsed
from tests.support.values import ScriptedProposer, ScriptedScorer

ASKED = "Where did the director of film Lantern die?"
Rewards = Callable[[], Mapping[Stage, Callable[[], Rubric]]]
FACTS = {
    "answer": "Oslo",
    "evidence": [["Lantern", "director", "Ada Berg"], ["Ada Berg", "place of death", "Oslo"]],
    "gold": ["Lantern", "Ada Berg"],
}
TEXTS = {
    "Lantern": "Lantern is a film directed by Ada Berg.",
    "Ada Berg": "Ada Berg died in Oslo.",
    "Other": "Something else.",
}
PLAN = "1. Who directed the film Lantern?\n2. Where did [1] die?"
MET, MISSING = "- Names the place [met: S1]", "- Names the place [missing]"
SAID = '<cite id="S2">Ada Berg died in Oslo.</cite>\nOslo'


class Titled(FixedSearch):
    """Brings the passages whose titles the query names."""

    async def search(self, query: str, limit: int) -> list[Passage]:
        return [Passage(name, name, "", text) for name, text in TEXTS.items() if name in query]


def first(plan: str = PLAN, query: str = "Lantern") -> str:
    return (
        "<think>x</think>\n<structured_plan>\n<deep_analysis>x</deep_analysis>\n"
        f"<rubric>\n- x\n</rubric>\n<research_plan>\n{plan}\n</research_plan>\n"
        f'</structured_plan>\n<call_tool name="search">{query}</call_tool>'
    )


def then(query: str) -> str:
    return (
        "<think>x</think>\n<state_evaluation>x</state_evaluation>\n"
        f'<call_tool name="search">{query}</call_tool>'
    )


def last(marks: str = MET, said: str = SAID) -> str:
    return (
        "<think>x</think>\n<state_evaluation>x</state_evaluation>\n<review>\n<rubric_review>\n"
        f"{marks}\n</rubric_review>\n<writing_plan>x</writing_plan>\n</review>\n"
        f"<answer>\n{said}\n</answer>"
    )


async def researched(folder: Path, *turns: str) -> Trajectory:
    options: Any = {"answer_format": AnswerFormat.EXACT, "review_returns": 0}
    return await browsed(folder, turns, [], None, ASKED, Titled(), **options)


def reward(
    run: Trajectory, stage: Stage, facts: dict[str, Any] = FACTS, of: Rewards = rewards
) -> float:
    async def unasked() -> StageScore:
        raise AssertionError("code needs no judge")

    view = StageView(run, stage, unasked, facts)
    return float(of()[stage]()(stage_text(run, stage), view))  # type: ignore[arg-type]


BOTH = "Lantern and Ada Berg"


@pytest.mark.parametrize(
    ("stage", "turns", "by_hand"),
    [
        # half for the subject of a hop, half for its relation
        *((Stage.PLAN, (first(plan), last()), worth) for plan, worth in [
            (PLAN, 1.0),
            ("1. Who directed Lantern?\n2. Where did he die?", (1 + 0.5) / 2),
            ("1. When was Lantern made?\n2. Where did [1] die?", (0.5 + 0.5) / 2),
            ("1. Who directed Lanternfish?\n2. Where did [1] die?", (0.5 + 0.5) / 2),
            (f"{PLAN}\n3. Who wrote it?\n4. When?", 1 - 2 * 0.1),
            (f"{PLAN}\n3. Compare [1] and [2]", 1.0),
            ("Look it up.", 0.0),
        ]),
        # the evidence found, less what useless searches cost
        *((Stage.RESEARCH, (first(query=one), *map(then, more), last()), worth)
          for (one, *more), worth in [
            (("Lantern", "Ada Berg"), 1.0),
            (("Lantern",), 0.5),
            (("Lantern", "Lantern"), 0.5 - 0.1),
            (("Lantern", "Other", "Ada Berg"), 1 - 0.1),
            (("Other",), 0.0),
        ]),
        # 1 where the verdict is true
        *((Stage.REVIEW, (first(query=query), last(marks)), worth) for query, marks, worth in [
            (BOTH, MET, 1.0),
            (BOTH, f"{MET}\n{MISSING}", 0.0),
            ("Lantern", MISSING, 1.0),
            ("Lantern", MET, 0.0),
        ]),
        # F1 and cites, and nothing where it avoids what was found
        *((Stage.ANSWER, (first(query=query), last(said=said)), worth) for query, said, worth in [
            (BOTH, SAID, 1.0),
            (BOTH, SAID.replace("\nOslo", "\nOslo, Norway"), 0.7 * 2 / 3 + 0.3),
            (BOTH, SAID.replace("S2", "S9"), 0.7),
            (BOTH, "Oslo", 0.7),
            (BOTH, SAID.replace("\nOslo", "\nnot found"), 0.0),
            ("Lantern", '<cite id="S1">Ada Berg directed the film.</cite>\nnot found', 0.3),
        ]),
    ],
)  # fmt: skip
async def test_what_a_stage_is_worth(
    stage: Stage, turns: tuple[str, ...], by_hand: float, tmp_path: Path
):
    run = await researched(tmp_path, *turns)
    assert reward(run, stage) == pytest.approx(by_hand)
    assert math.isnan(reward(run, Stage.RESEARCH, {**FACTS, "gold": None})), "it is not known"


@pytest.mark.parametrize(
    ("turns", "faulty", "zero"),
    [
        ((first().replace("<think>x</think>\n", ""), then("Ada Berg"), last()), 0, "plan research"),
        ((first(), then("Ada Berg").replace("<think>x</think>", ""), last()), 1, "research"),
        ((first(query="Lantern Ada Berg"), last().replace(MET, "")), 1, "review answer"),
    ],
)
async def test_a_stage_whose_turns_break_the_form_is_worth_nothing(
    turns: tuple[str, ...], faulty: int, zero: str, tmp_path: Path
):
    tried = [turn for place, turn in enumerate(turns) for _ in range(3 if place == faulty else 1)]
    run = await researched(tmp_path, *tried)
    found = {stage for stage in Stage if reward(run, stage) == 0.0}
    assert found == set(map(Stage, zero.split()))
    assert found == {stage for stage in Stage if reward(run, stage, of=formed_rewards) == 0.0}


async def test_by_formed_rewards_a_wrong_answer_in_form_is_worth_more_than_a_broken_one(
    tmp_path: Path,
):
    run = await researched(tmp_path, first(), last(said="\\boxed{nobody}"))
    for stage in Stage:
        plain = reward(run, stage)
        assert reward(run, stage, of=formed_rewards) == pytest.approx(FORM + (1 - FORM) * plain)
    assert reward(run, Stage.ANSWER) == 0.0 < reward(run, Stage.ANSWER, of=formed_rewards)
    unknown = reward(run, Stage.RESEARCH, {**FACTS, "gold": None}, formed_rewards)
    assert math.isnan(unknown), "form alone does not tell what research is worth"


@pytest.mark.parametrize(("name", "method"), [("sft", "sft"), ("rounds", "ss-grpo")])
def test_the_recipes_configurations_are_ones_that_train_takes(
    name: str, method: Method, tmp_path: Path
):
    recipe = ROOT / "benchmarks" / "learns" / "recipe"
    values = tomllib.loads((recipe / f"{name}.toml").read_text(encoding="utf-8"))
    job = build_job(values, tmp_path, method)
    assert job.rounds is None or identify_judge(job.rounds.judge)


async def test_by_its_name_the_judge_scores_by_the_questions_facts_and_asks_no_model(
    tmp_path: Path,
):
    run = await researched(tmp_path, first(), then("Ada Berg"), last())
    judge = ComposedJudge(
        StageJudge(ScriptedProposer(None), ScriptedScorer(lambda *_: None)),
        compositions_of("rubric:benchmarks.learns.recipe:rewards"),
    )
    buffer = RubricBuffer(question=ASKED)
    for facts, scores in ((FACTS, [1.0] * 4), (None, [None] * 4)):
        group = TrajectoryGroup(question=ASKED, trajectories=(run,), facts=facts)
        judged = await judge.judge(group, buffer)
        assert [stage.score for stage in judged.judgements[0].stages] == scores
    assert "Facts" in judged.judgements[0].stages[0].unscored_reason
