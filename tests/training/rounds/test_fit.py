"""The local engine on a tiny random model: steps, resume, export, and llama.cpp beside torch.

Imitation, SS-GRPO with reflections, RuscaRL and RM-R1 train from one file of rows.
"""

from pathlib import Path

import pytest

from rubricem.agent.weights.checkpoints import Checkpoint, is_checkpoint
from rubricem.agent.weights.store import WeightsStore
from rubricem.memory.errors import SettingsError, StoreError, WeightsError
from rubricem.memory.schema import Author, ScaffoldedPrompt, Segment, Trajectory
from rubricem.training.judge_training.grpo import SampledPair
from rubricem.training.local.checkpoints import TrainingFolder
from rubricem.training.rounds.fit import train
from rubricem.training.rows.credit import policy_rows as compile_policy_rows
from rubricem.training.rows.credit import reflection_rows
from rubricem.training.rows.row import TrainRow
from tests.support.collected import candidate, judgement
from tests.support.rows import LENGTH, config_of, policy_rows, quiet, row
from tests.support.sampler_gap import sampler_gap
from tests.support.tiny import write_tiny
from tests.training.judge_training.test_pairs import BARE, SHOWN, said
from tests.training.rows.test_credit import ONE, TWO, group, rollout

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
async def test_llama_samples_from_the_exported_adapter(tmp_path: Path, kind: str) -> None:
    base = write_tiny(tmp_path / "tiny.gguf", kind=kind)
    trained = await train(config_of(tmp_path, base, [row(0)], epochs=8), "sft", quiet)
    found = await sampler_gap(trained.checkpoint, row(0))
    assert found.mean < 0.01, found
    assert found.moved > 10 * found.mean, "the adapter is at work on both sides"


async def test_a_checkpoint_is_the_name_of_a_model(tiny: Path, tmp_path: Path) -> None:
    trained = await train(config_of(tmp_path, tiny, [row(0)]), "sft", quiet)
    assert is_checkpoint(str(trained.checkpoint)) and not is_checkpoint(str(tmp_path))
    files = await WeightsStore().model_files(str(trained.checkpoint))
    assert files.path == tiny and files.adapter and files.adapter.name == "adapter.gguf"
    note = Checkpoint.for_llama(trained.checkpoint)
    assert (note.step, note.method, note.lineage) == (1, "sft", ())
    assert note.version in files.version
    (trained.checkpoint / "adapter.gguf").write_bytes(b"GGUF and no more")
    with pytest.raises(WeightsError, match="hash differs"):
        Checkpoint.for_llama(trained.checkpoint)


async def test_training_goes_on_from_an_adapter_and_remembers_it(
    tiny: Path, tmp_path: Path
) -> None:
    warm = await train(config_of(tmp_path, tiny, [row(0)]), "sft", quiet)
    first = Checkpoint.for_llama(warm.checkpoint)
    start = {"start_adapter": str(warm.checkpoint), "out": "second"}
    config = config_of(tmp_path, tiny, policy_rows(2), **start)
    trained = await train(config, "ss-grpo", quiet)
    assert Checkpoint.for_llama(trained.checkpoint).lineage == (first.version,)
    other = config_of(tmp_path, tiny, policy_rows(2), **start, rank=2)
    with pytest.raises(SettingsError, match="another rank"):
        await train(other, "ss-grpo", quiet)


async def test_an_adapter_altered_since_it_was_written_is_no_start(
    tiny: Path, tmp_path: Path
) -> None:
    warm = await train(config_of(tmp_path, tiny, [row(0)]), "sft", quiet)
    start = {"start_adapter": str(warm.checkpoint), "out": "second"}
    config = config_of(tmp_path, tiny, policy_rows(2), **start)
    weights = warm.checkpoint / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(WeightsError, match=r"adapter_model.safetensors is not what was written"):
        await train(config, "ss-grpo", quiet)
    (warm.checkpoint / "files.json").write_text("{}", encoding="utf-8")
    with pytest.raises(WeightsError, match=r"files.json does not list"):
        await train(config, "ss-grpo", quiet)


async def test_a_finished_run_trains_nothing_again(tiny: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, tiny, policy_rows(4), batch=1)
    first = await train(config, "ss-grpo", quiet)
    told: list[str] = []
    assert await train(config, "ss-grpo", told.append) == first
    assert told == [] and [line["step"] for line in first.steps] == [1, 2]
    with pytest.raises(SettingsError, match="another learning_rate"):
        await train(config.model_copy(update={"learning_rate": 0.1}), "ss-grpo", quiet)


async def test_a_second_process_cannot_train_in_the_same_folder(tiny: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, tiny, [row(0)])
    with (
        TrainingFolder(config.out).hold({"seed": 0}),
        pytest.raises(StoreError, match="another process"),
        TrainingFolder(config.out).hold({"seed": 0}),
    ):
        pass


@pytest.mark.model
@pytest.mark.slow
async def test_the_real_model_learns_a_row_and_llama_follows(
    weights_05b: Path, tmp_path: Path
) -> None:
    """One step on some 40 tokens in bfloat16: the quantised sampler and the trainer agree."""
    ids = tuple(1000 + 17 * place for place in range(LENGTH))
    settings = {"model": str(weights_05b), "rank": 16, "alpha": 32.0, "dtype": "bfloat16"}
    config = config_of(tmp_path, weights_05b, [row(0, ids=ids)], **settings, epochs=2)
    trained = await train(config.model_copy(update={"learning_rate": 3e-4}), "sft", quiet)
    first, second = trained.steps
    assert second["negative_log_likelihood"] < first["negative_log_likelihood"] - 0.1
    found = await sampler_gap(trained.checkpoint, row(0, ids=ids))
    assert found.mean < 0.2, "quantised activations, bfloat16 weights"


SCORES = [[1.0, 0.2, 0.0, 0.9], [0.0, 0.6, 1.0, 0.1]]


def ss_grpo() -> tuple[TrainRow, ...]:
    judged = [judgement(one, scores) for one, scores in zip((ONE, TWO), SCORES, strict=True)]
    reflected = reflection_rows([candidate(ONE, 0.2), candidate(ONE, 0.8)])
    return compile_policy_rows(group(ONE, TWO), judged, name="ss-grpo").rows + reflected.rows


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
    return compile_policy_rows(group(*pair), judged, name="ruscarl").rows


def rm_r1() -> tuple[TrainRow, ...]:
    samples = (said(BARE), said("no verdict"))
    return SampledPair(SHOWN, (1, 2, 3), samples, "v1").rows("rm-r1").rows


def sampled(one: TrainRow) -> TrainRow:
    """As if the tiny model had written it, which knows nothing: each of its tokens is as likely."""
    return one.model_copy(update={"behaviour_logprobs": tuple(-4.8 * on for on in one.loss_mask)})


async def test_one_file_of_rows_trains_by_every_method(tiny: Path, tmp_path: Path) -> None:
    rows = [*ss_grpo(), *ruscarl(), *rm_r1()]
    every = [*(row(n) for n in range(2)), *map(sampled, rows)]
    config = config_of(tmp_path, tiny, every, batch=100)
    gradient = await train(config, "ss-grpo", quiet)
    (step,) = gradient.steps
    assert step["rows"] == 8 and gradient.dropped == {"sft rows": 2}
    assert {"policy_loss", "reflect_loss", "judge_loss"} <= step.keys() and step["grad_norm"] > 0
    assert step["scaffold_gap"] > 0, "the old policy is computed again without the scaffold"
    imitation = await train(config.model_copy(update={"out": tmp_path / "sft"}), "sft", quiet)
    assert imitation.steps[0]["rows"] == 2 and imitation.steps[0]["loss"] > 0
