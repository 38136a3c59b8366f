"""Imitation, SS-GRPO with reflections, RuscaRL, RULER and RM-R1 train from one file of rows."""

from pathlib import Path
from typing import Any

import pytest

from judge.relative import RelativeJudge
from judge.relative_groups import RelativeGroups
from memory.schema import Author, ScaffoldedPrompt, Segment, Stage, Trajectory
from tests.collected import candidate, judgement
from tests.test_compiling import ONE, TWO, group, rollout
from tests.test_judge_training import BARE, SHOWN, said
from tests.test_relative_stages import BUFFER, MarkReader
from tests.train_rows import config_of, quiet, row
from training.compiling import policy_rows, reflection_rows
from training.judge_training.rows import SampledPair, judge_rows, sample_of
from training.local.training_run import train
from training.rows import TrainRow

pytestmark = pytest.mark.usefixtures("one_thread")
SCORES = [[1.0, 0.2, 0.0, 0.9], [0.0, 0.6, 1.0, 0.1]]


def ss_grpo() -> tuple[TrainRow, ...]:
    judged = [judgement(one, scores) for one, scores in zip((ONE, TWO), SCORES, strict=True)]
    reflected = reflection_rows([candidate(ONE, 0.2), candidate(ONE, 0.8)])
    return policy_rows(group(ONE, TWO), judged, name="ss-grpo").rows + reflected.rows


def under_scaffold(name: str) -> Trajectory:
    """The same rollout by a policy that was shown a rubric: `!` and the token 2."""
    prompt = Segment(author=Author.PROMPT, text="question!", token_ids=(1, 2))
    shown = ScaffoldedPrompt(text="!", shown=1, bare_ids=(1,))
    plain = rollout(name)
    segments = (prompt, *plain.segments[1:])
    return plain.model_copy(update={"segments": segments, "scaffold": shown, "system": "s!"})


def ruscarl() -> tuple[TrainRow, ...]:
    pair = under_scaffold("shown"), rollout("bare")
    judged = [judgement(one, scores) for one, scores in zip(pair, SCORES, strict=True)]
    return policy_rows(group(*pair), judged, name="ruscarl").rows


async def ruler() -> tuple[TrainRow, ...]:
    answers = [Segment(author=Author.POLICY, stage=Stage.ANSWER, turn=2, text=text,
                       token_ids=(80 + n,), logprobs=(-0.5,))
               for n, text in enumerate(("0.9", "0.3"))]  # fmt: skip
    pair = group(*(rollout(f"ruler{n}", answer) for n, answer in enumerate(answers)))
    judged = await RelativeGroups(RelativeJudge(MarkReader())).judge(pair, BUFFER)
    return policy_rows(pair, judged.judgements, name="ruler").rows


def rm_r1() -> tuple[TrainRow, ...]:
    texts = [said(BARE), said("no verdict")]
    samples = tuple(sample_of(one, "A", "no-rubric", "answer") for one in texts)
    return judge_rows(SampledPair(SHOWN, (1, 2, 3), samples, "v1"), "rm-r1").rows


def sampled(one: TrainRow) -> TrainRow:
    """As if the tiny model had written it, which knows nothing: each of its tokens is as likely."""
    return one.model_copy(update={"behaviour_logprobs": tuple(-4.8 * on for on in one.loss_mask)})


@pytest.mark.parametrize("aggregation", ["token-mean", "stage-mean", "sequence-mean"])
async def test_one_file_of_rows_trains_by_every_method(
    tiny: Path, tmp_path: Path, aggregation: str
) -> None:
    kinds = {"ss-grpo": ss_grpo(), "ruscarl": ruscarl(), "ruler": await ruler(), "rm-r1": rm_r1()}
    assert {name: len(rows) for name, rows in kinds.items()} == {
        "ss-grpo": 4, "ruscarl": 2, "ruler": 2, "rm-r1": 2,
    }  # fmt: skip
    imitated = [row(n) for n in range(2)]
    every = [*imitated, *(sampled(one) for rows in kinds.values() for one in rows)]
    settings: dict[str, Any] = {"batch": 100, "objective": {"aggregation": aggregation}}
    config = config_of(tmp_path, tiny, every, **settings)
    gradient = await train(config, "ss-grpo", quiet)
    (step,) = gradient.steps
    assert step["rows"] == 10 and gradient.dropped == {"sft rows": 2}
    assert {"policy_loss", "reflect_loss", "judge_loss"} <= step.keys() and step["grad_norm"] > 0
    assert step["scaffold_gap"] > 0, "the old policy is computed again without the scaffold"
    imitation = await train(config.model_copy(update={"out": tmp_path / "sft"}), "sft", quiet)
    assert imitation.steps[0]["rows"] == 2 and imitation.steps[0]["loss"] > 0
