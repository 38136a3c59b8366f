"""The embedded model collected from in free mode: what a trainer needs of it is there."""

from pathlib import Path

import pytest

from agent.settings import load_settings
from memory.schema import Author, Decoding
from tests.collected import judgement
from training.compiling import policy_rows
from training.opening import CollectOptions, open_collector
from training.questions_selecting import Selected
from training.row_rule import CREDITS
from training.run_directory import Question, RunDirectory, group_of
from training.sequences import token_sequence

QUESTION = Question(id="0", question="What is an LRU cache?")
ASKED = Selected((QUESTION,))


async def test_free_rollouts_of_an_embedded_model_are_fit_to_train_on(tmp_path: Path, tiny: Path):
    await fit_to_train_on(tmp_path, str(tiny))


@pytest.mark.slow
@pytest.mark.model
async def test_free_rollouts_of_the_real_model_are_too(tmp_path: Path, real_weights: Path):
    await fit_to_train_on(tmp_path, "0.5b")


async def fit_to_train_on(tmp_path: Path, model: str) -> None:
    (tmp_path / "lru.md").write_text("# lru_cache\nIt evicts the least recently used entry.\n")
    settings = load_settings(
        {
            "model": model,
            "source": (str(tmp_path),),
            "data_dir": tmp_path / "data",
            "decoding": "free",
            "temperature": 1.0,
            "memory": "off",
            "slots": 2,
            "context_tokens": 4096,
            "tool_calls": 1,
            "max_tokens": 16,
            "attempts": 2,
        }
    )
    options = CollectOptions(group_size=2, judge="none")
    run = RunDirectory(tmp_path / "run")
    async with open_collector(settings, options, run, ASKED, lambda line: None) as collector:
        assert collector.at_once == 2
        await collector.collect()
        (record,) = run.groups()
        group = group_of(record, {t.id: t for t in run.trajectories()})
        first, second = group.trajectories
        assert first.decoding is Decoding.FREE
        assert first.transcript() != second.transcript()
        for trajectory in group.trajectories:
            await _token_in_token_out(trajectory, collector)
        scores = [judgement(first, [1.0] * 4), judgement(second, [0.0] * 4)]
        rows = policy_rows(group, scores, CREDITS["identity"]).rows
    assert len(rows) == 2 and all(row.ratio_allowed for row in rows)
    assert sum(rows[0].loss_mask) == sum(token_sequence(first.segments).written)


async def _token_in_token_out(trajectory, collector) -> None:
    """Ids, log-probabilities and stages fit one another, and rejected tries are left out."""
    written = [s for s in trajectory.segments if s.author is Author.POLICY]
    assert any(not s.kept for s in written), "16 tokens are no whole turn, so each is asked again"
    for segment in written:
        assert len(segment.token_ids) == len(segment.logprobs) > 0
        assert all(logprob <= 0 for logprob in segment.logprobs)
        assert segment.stage is not None and not segment.retokenised
    tokens = token_sequence(trajectory.segments)
    prompt = await collector.rollouts.policy.open(trajectory.system, trajectory.segments[0].text)
    assert tokens.sampled and tokens.ids[: len(prompt)] == prompt
    kept = sum(len(s.token_ids) for s in written if s.kept)
    assert sum(tokens.written) == kept
