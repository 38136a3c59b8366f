"""verl's own worker of agent loops around ours, in one process, without a GPU and without Ray.

Real are verl's worker and the batches it makes; ours the loop, the reward manager and the groups.
verl's store of samples is a mapping here, and what Ray calls in other processes is called in this
one. The policy is a script in the ids of a tiny tokenizer, the judge a server on loopback.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rubricem.memory.rubrics import BufferStore

verl = pytest.importorskip("verl")
pytestmark = [
    pytest.mark.filterwarnings("default"), pytest.mark.slow, pytest.mark.timeout(3600),
]  # fmt: skip

ROLLOUTS, REFLECTIONS, QUESTIONS = 3, 2, 2
LENGTH = 40_000


class Spoken:
    """verl's client, answered by the turns of the loopback's run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokenizer: Any = None
        self._known: dict[str, int] = {}

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Any:
        from transformers import AutoTokenizer

        if self._tokenizer is None:
            self._tokenizer = AutoTokenizer.from_pretrained(self._folder)
        number = self._known.setdefault(request_id, len(self._known))
        text = spoken(self._tokenizer.decode(prompt_ids, skip_special_tokens=False), number)
        words = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        ids = [*words, self._tokenizer.convert_tokens_to_ids("<|im_end|>")]
        ids = ids[: sampling_params["max_tokens"]]
        return SimpleNamespace(
            token_ids=ids, log_probs=[-0.25] * len(ids), stop_reason="completed",
            extra_fields={"global_steps": 4},
        )  # fmt: skip


def spoken(prompt: str, number: int) -> str:
    """What is left of the turn that a prompt is in; the answer begins by the rollout's number."""
    from benchmarks.judged import OPENINGS
    from benchmarks.loopback import TURNS
    from benchmarks.rounds_server import REFLECTION

    before, _, whole = prompt.rpartition("<|im_start|>assistant\n")
    turn = TURNS[min(whole.count("</tool_output>"), len(TURNS) - 1)]
    turn = turn.replace(OPENINGS[0], OPENINGS[number % len(OPENINGS)])
    if "<reflection_rubrics>" in before:
        turn = REFLECTION.format(1)
    begun = next(n for n in range(len(turn), -1, -1) if whole.endswith(turn[:n]))
    return turn[begun:]


class Near:
    """An object whose methods are called as those of an actor."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._held, name)
        return SimpleNamespace(remote=lambda *given: asyncio.ensure_future(method(*given)))


@pytest.fixture
async def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """verl's configuration with ours, over a tiny model's folder and a loopback judge."""
    from hydra import compose, initialize_config_dir
    from transformers import Qwen2Config

    import rubricem.training.verl as engine
    from benchmarks.judged import buffer_of
    from benchmarks.rounds_server import serving_several
    from rubricem.training.verl import groups, worker
    from tests.support.tiny import write_tokenizer

    model = tmp_path / "model"
    write_tokenizer(model)
    Qwen2Config(
        hidden_size=64, num_hidden_layers=1, num_attention_heads=4,
        architectures=["Qwen2ForCausalLM"],
    ).save_pretrained(model)  # fmt: skip
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "rule.md").write_text("# Order\n\nThe rule decides the order.\n")
    buffers = BufferStore(tmp_path / "data" / "buffers")
    for number in range(QUESTIONS):
        buffer = buffer_of(f"Which rule is number {number}?")
        buffers.save(buffer.model_copy(update={"version": 1}))
    monkeypatch.setenv("RUBRICEM_SOURCE", str(tmp_path / "docs"))
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("RUBRICEM_MEMORY", "on")
    monkeypatch.setenv("RUBRICEM_MODEL", "judge")
    launch = Path(engine.__file__).parent / "launch"
    told = [
        "algorithm.adv_estimator=ss_grpo", "data.return_raw_chat=True",
        f"data.max_prompt_length={LENGTH}", f"data.max_response_length={LENGTH}",
        f"actor_rollout_ref.model.path={model}", f"actor_rollout_ref.rollout.n={ROLLOUTS}",
        "actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.calculate_log_probs=True",
        "actor_rollout_ref.rollout.agent.default_agent_loop=rubricem",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={launch / 'agent_loop.yaml'}",
        "reward.reward_manager.source=importlib", "reward.reward_manager.name=StageReward",
        "reward.reward_manager.module.path=pkg://rubricem.training.verl.worker",
        f"+rubricem.reflections={REFLECTIONS}",
    ]  # fmt: skip
    folder = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(str(folder), version_base=None):
        found = compose("ppo_trainer", overrides=told)
    with serving_several(0.0, 1) as (judge,):
        monkeypatch.setenv("RUBRICEM_BASE_URL", judge)
        actor = groups.GroupsActor()
        await actor.open(worker._options(found), None)
        monkeypatch.setattr(worker, "_groups", lambda: Near(actor))
        yield found


def prompts(uids: list[str]) -> Any:
    """A batch as the trainer dispatches it."""
    from verl.utils import tensordict_utils as tu

    chats = [[{"role": "user", "content": f"Which rule is number {n}?"}] for n in range(len(uids))]
    return tu.get_tensordict(
        {
            "raw_prompt": chats, "uid": uids, "index": list(range(len(uids))),
            "extra_info": [{"index": n, "id": f"q{n}"} for n in range(len(uids))],
            "agent_name": ["rubricem"] * len(uids),
        },
        non_tensor_dict={"global_steps": 1},
    )  # fmt: skip


async def test_a_step_of_verl_is_judged_in_groups_and_trains_reflections_with_it(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np
    import torch
    from verl.trainer.ppo.v1 import agent_loop_tq

    from rubricem.training.rows.credit import PAPER
    from rubricem.training.verl import worker
    from rubricem.training.verl.plugin import decoded, ss_grpo_advantages

    stored: dict[str, Any] = {}
    states: dict[str, str] = {}

    class Store:
        def init(self) -> None:
            """It is there."""

        async def async_kv_put(self, key: str, partition_id: str, tag: Any) -> None:
            states[key] = tag["status"]

        async def async_kv_batch_put(
            self, keys: list[str], fields: Any, tags: Any, partition_id: str
        ) -> None:
            stored.update({key: fields[number] for number, key in enumerate(keys)})

    class Rewards:
        async def compute_score(self, data: Any) -> Any:
            return await worker.StageReward(config, None, None, router=None).run_single(data)

    monkeypatch.setattr(agent_loop_tq, "tq", Store())
    spoken = Spoken(Path(config.actor_rollout_ref.model.path))
    made = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class
    loops = made(config, spoken, None, [Near(Rewards())])
    await loops.generate_sequences(prompts([f"uid{n}" for n in range(QUESTIONS)]))
    await asyncio.gather(*loops.background_tasks)
    assert set(states.values()) == {"finished"}
    assert len(stored) == QUESTIONS * (ROLLOUTS + REFLECTIONS)

    pad = torch.nn.utils.rnn.pad_sequence
    keys = sorted(stored)
    rewards, mask = (
        pad([stored[key][name] for key in keys], batch_first=True)
        for name in ("rm_scores", "response_mask")
    )
    codes = decoded(rewards, mask, 4)
    reflects = (codes.stages == 4).any(axis=1)
    assert reflects.sum() == QUESTIONS * REFLECTIONS
    assert not np.isnan(codes.scores[~reflects]).any(), "every stage of every rollout is scored"
    assert not np.isnan(codes.scores[reflects, 0]).any()
    found, _ = ss_grpo_advantages(rewards, mask, [key.split("_")[0] for key in keys], PAPER)
    assert found[~reflects].abs().max() > 0.5 and found[reflects].abs().max() > 0.5
    assert not found[mask == 0].any()
    await worker._groups().keep.remote(1, tmp_path / "global_step_1")
    kept = tmp_path / "global_step_1" / "rubricem"
    assert len(list(BufferStore(kept / "buffers").all())) == QUESTIONS
    assert len((kept / "bank" / "journal.jsonl").read_text().splitlines()) >= QUESTIONS
