"""A step of verl on a Ray of this machine, without a GPU, as far as its trainer goes there.

Real are verl's managers and workers of agent loops and of rewards, its balancer and client of
servers, its store of samples and the trainer's dispatch, sampling and advantages, each where Ray
puts it; ours the loop, the reward manager, the actor of groups and the estimator. The policy's
server is an actor that says a script in the ids of a tiny tokenizer, the judge one on loopback.
"""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rubricem.memory.rubrics import BufferStore
from rubricem.training.collect.remote import _LOCAL, connect
from tests.conftest import ROOT

os.environ.update(_LOCAL)  # read as Ray is imported, which verl does
verl = pytest.importorskip("verl")
pytestmark = [
    pytest.mark.filterwarnings("default"), pytest.mark.slow, pytest.mark.timeout(3600),
]  # fmt: skip

ROLLOUTS, REFLECTIONS, QUESTIONS = 3, 2, 2
LENGTH = 40_000


class Server:
    """In the place of an engine behind verl's client; says the turns of the loopback's run."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._begun: dict[str, int] = {}

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **more: Any
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        prompt = self._tokenizer.decode(prompt_ids, skip_special_tokens=False)
        number = self._begun.setdefault(request_id, len(self._begun))
        words = self._tokenizer(spoken(prompt, number), add_special_tokens=False)["input_ids"]
        ids = [*words, self._tokenizer.convert_tokens_to_ids("<|im_end|>")]
        ids = ids[: sampling_params["max_tokens"]]
        return TokenOutput(
            token_ids=ids, log_probs=[-0.25] * len(ids), stop_reason="completed",
            extra_fields={"global_steps": 1},
        )  # fmt: skip


def spoken(prompt: str, number: int) -> str:
    """What is left of the turn that a prompt is in; the answer begins by the rollout's number."""
    from benchmarks.loopback import TURNS
    from benchmarks.rounds_server import REFLECTION
    from benchmarks.scripted_judge import OPENINGS

    before, _, whole = prompt.rpartition("<|im_start|>assistant\n")
    turn = TURNS[min(whole.count("</tool_output>"), len(TURNS) - 1)]
    turn = turn.replace(OPENINGS[0], OPENINGS[number % len(OPENINGS)])
    if "<reflection_rubrics>" in before:
        turn = REFLECTION.format(1)
    begun = next(n for n in range(len(turn), -1, -1) if whole.endswith(turn[:n]))
    return turn[begun:]


@pytest.fixture
async def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """verl's configuration with ours, over a tiny model's folder, a loopback judge and a Ray."""
    import ray
    import transfer_queue
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from transformers import Qwen2Config

    import rubricem.training.verl as engine
    from benchmarks.rounds_server import serving
    from benchmarks.scripted_judge import buffer_of
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
    launch = Path(engine.__file__).parent / "launch"
    told = [
        "algorithm.adv_estimator=ss_grpo", "algorithm.rollout_correction.bypass_mode=True",
        "data.return_raw_chat=True",
        f"data.max_prompt_length={LENGTH}", f"data.max_response_length={LENGTH}",
        f"actor_rollout_ref.model.path={model}", f"actor_rollout_ref.rollout.n={ROLLOUTS}",
        "actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.calculate_log_probs=True",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "actor_rollout_ref.rollout.agent.default_agent_loop=rubricem",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={launch / 'agent_loop.yaml'}",
        "reward.num_workers=2",
        "reward.reward_manager.source=importlib", "reward.reward_manager.name=StageReward",
        "reward.reward_manager.module.path=pkg://rubricem.training.verl.worker",
        "trainer.val_before_train=False", "trainer.test_freq=-1",
        f"trainer.default_local_dir={tmp_path}", "transfer_queue.enable=True",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        f"+rubricem.reflections={REFLECTIONS}",
    ]  # fmt: skip
    folder = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(str(folder), version_base=None):
        found = compose("ppo_trainer", overrides=told)
    OmegaConf.resolve(found)
    with serving(0.0) as judge:
        for name, value in {
            "RUBRICEM_SOURCE": str(tmp_path / "docs"), "RUBRICEM_DATA_DIR": str(tmp_path / "data"),
            "RUBRICEM_MEMORY": "on", "RUBRICEM_MODEL": "judge", "RUBRICEM_BASE_URL": judge,
            "VERL_USE_EXTERNAL_MODULES": "rubricem.training.verl.plugin",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        # Ray's processes would find another package of this name.
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        async with connect(8):
            transfer_queue.init(found.transfer_queue)
            yield found
            transfer_queue.close()


def prompts(uids: list[str]) -> Any:
    """A batch as the trainer takes it from its loader."""
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


def test_a_step_of_verl_is_judged_in_groups_and_trains_reflections_with_it(
    config: Any, tmp_path: Path
) -> None:
    import ray
    import transfer_queue
    from verl.experimental.reward_loop import RewardLoopManager
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.router import GlobalRequestLoadBalancer

    from rubricem.training.verl.worker import RubricCheckpoints

    kept = RubricCheckpoints(config)
    server = ray.remote(Server).remote(Path(config.actor_rollout_ref.model.path))
    balancer = ray.remote(GlobalRequestLoadBalancer).remote(servers={"server": server})
    manager = AgentLoopManagerTQ.create(
        config, LLMServerClient(config, balancer), None,
        RewardLoopManager(config).reward_loop_worker_handles,
    )  # fmt: skip
    trainer = object.__new__(PPOTrainerSync)
    trainer.config, trainer.trainer_mode, trainer.global_steps = config, "sync", 1
    trainer.agent_loop_manager = manager
    trainer._submit_batch_to_rollout(prompts([f"uid{n}" for n in range(QUESTIONS)]))
    replay = ReplayBuffer("sync", config.trainer, None, "drop", config.trainer.v1.sampler)
    batch, _ = replay.sample(1, "train", QUESTIONS)
    assert len(batch.keys) == QUESTIONS * (ROLLOUTS + REFLECTIONS)

    trainer._compute_advantage(trainer._compute_old_log_prob(batch, {}), {})
    fields = ["rm_scores", "response_mask", "advantages"]
    stored = transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id="train", select_fields=fields
    ).to_padded_tensor()
    rewards, mask, found = (stored[name] for name in fields)
    assert (found - rewards * mask).abs().max() < 1e-6
    assert not found[mask == 0].any()
    taught = found.abs().max(dim=1).values
    reflects = [len({*row[on > 0].tolist()}) == 1 for row, on in zip(found, mask, strict=True)]
    assert sum(reflects) >= QUESTIONS * REFLECTIONS, "a reflection's tokens are all alike"
    assert (taught > 0.5).sum() >= QUESTIONS * REFLECTIONS
    kept.on_save(SimpleNamespace(), 1, str(tmp_path / "global_step_1"))
    part = tmp_path / "global_step_1" / "rubricem"
    assert len(list(BufferStore(part / "buffers").all())) == QUESTIONS
    assert (part / "bank" / "bank.db").exists()
