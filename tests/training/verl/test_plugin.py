"""The plugin beside the verl that is installed; without verl there is nothing to test."""

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rubricem.memory.errors import SettingsError

verl = pytest.importorskip("verl")
pytestmark = pytest.mark.filterwarnings("default")


def test_verl_finds_the_estimators_and_calls_them_as_it_calls_any() -> None:
    import numpy as np
    import torch
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    from rubricem.training.rows.credit import PAPER, broadcast, identity
    from rubricem.training.verl import plugin
    from rubricem.training.verl.codes import ss_grpo_advantages
    from tests.training.verl.test_codes import QUESTIONS, batch

    assert plugin.ESTIMATORS.keys() == {"ss_grpo", "ss_grpo_answer_only", "ss_grpo_identity"}
    codes, mask = batch()
    for name, matrix in zip(plugin.ESTIMATORS, (PAPER, broadcast(), identity()), strict=True):
        tensors = {"token_level_rewards": codes, "response_mask": mask}
        data = DataProto.from_dict(
            tensors=tensors, non_tensors={"uid": np.array(QUESTIONS, dtype=object)}
        )
        found = compute_advantage(data, adv_estimator=name, config=None).batch
        wanted, returns = ss_grpo_advantages(codes, mask, QUESTIONS, matrix)
        torch.testing.assert_close(found["advantages"], wanted)
        torch.testing.assert_close(found["returns"], returns)


def test_the_trainer_hands_the_whole_batch_to_it() -> None:
    """Of several outputs of one session verl keeps the last for its own `grpo` alone."""
    import numpy as np
    import torch
    from verl import DataProto
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    from rubricem.training.rows.credit import PAPER
    from rubricem.training.verl import plugin
    from rubricem.training.verl.codes import ss_grpo_advantages
    from tests.training.verl.test_codes import QUESTIONS, batch

    assert "ss_grpo" in plugin.ESTIMATORS
    codes, mask = batch()
    data = DataProto.from_dict(
        tensors={"token_level_rewards": codes, "response_mask": mask},
        non_tensors={"uid": np.array(QUESTIONS, dtype=object)},
    )
    keys = [f"{name}_{number}_0" for number, name in enumerate(QUESTIONS)]
    found = compute_advantage_for_multi_trajectories(data, keys, adv_estimator="ss_grpo")
    wanted, _ = ss_grpo_advantages(codes, mask, QUESTIONS, PAPER)
    torch.testing.assert_close(found.batch["advantages"], wanted)


def output(**more: Any) -> Any:
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

    from rubricem.training.verl.worker import StageOutput

    values: dict[str, Any] = {
        "prompt_ids": [1, 2],
        "response_ids": [3, 4, 5, 6, 7],
        "response_mask": [1, 0, 1, 1, 1],
        "response_logprobs": [-0.5, 0.0, -0.5, -0.5, -0.5],
        "response_stages": [0, -1, 1, 2, 3],
        "metrics": AgentLoopMetrics(),
    }
    return StageOutput(**values | more)


def test_a_judged_output_is_written_as_stage_codes() -> None:
    from rubricem.training.verl.codes import decoded

    told = {
        "plan": 0.5,
        "research": None,
        "review": None,
        "answer": 0.0,
        "without_rubric": "review",
    }
    extra = {"reward_extra_info": told, "trajectory": "{}", "max_global_steps": 3}
    found = output(extra_fields=extra, reward_score=0.25).as_dict()
    codes = decoded(found["rm_scores"].unsqueeze(0), found["response_mask"].unsqueeze(0), 4)
    assert codes.stages.tolist() == [[0, -1, 1, 2, 3]]
    assert codes.scores[0, 0] == 0.5 and codes.scores[0, 3] == 0.0
    assert math.isnan(codes.scores[0, 1]) and codes.absent.tolist() == [[False, False, True, False]]
    assert "trajectory" not in found["extra_fields"], "the run is not stored with every batch"
    assert found["extra_fields"]["max_global_steps"] == 3
    assert "response_stages" not in found and found["responses"].tolist() == [3, 4, 5, 6, 7]
    unjudged = output().as_dict()["rm_scores"]
    codes = decoded(unjudged.unsqueeze(0), found["response_mask"].unsqueeze(0), 4)
    assert all(map(math.isnan, codes.scores[0])), "nothing is known, and nothing is 0"


async def test_the_reward_manager_judges_the_run_of_an_output() -> None:
    from rubricem.training.verl import worker as reward

    class Scorer:
        async def __call__(self, trajectory: Any) -> dict[str, Any]:
            assert trajectory.question == "q"
            known = {"plan": 0.5, "research": None, "review": 1.0, "answer": None}
            return known | {"without_rubric": "answer"}

    class Judged(reward.StageReward):
        async def _open(self) -> Any:
            return Scorer()

    from tests.support.values import trajectory

    run = trajectory("An answer.").model_copy(update={"question": "q"})
    fields = {"tool_extra_fields": {"trajectory": run.model_dump_json()}}
    data = [SimpleNamespace(non_tensor_batch=fields)]
    found = await Judged(None, None, None, reward_router_address=None).run_single(data)
    assert found["reward_score"] == 0.75, "the mean of what is known"
    assert found["reward_extra_info"]["research"] is None


def test_the_launch_files_name_what_there_is() -> None:
    import yaml
    from hydra import compose, initialize_config_dir
    from verl.utils.import_utils import load_class_from_fqn, load_extern_object

    import rubricem.training.verl as engine
    from rubricem.training.verl.plugin import ESTIMATORS

    launch = Path(engine.__file__).parent / "launch"
    (loop,) = yaml.safe_load((launch / "agent_loop.yaml").read_text())
    assert load_class_from_fqn(loop["_target_"]).__name__ == "ResearchLoop"
    script = (launch / "train.sh").read_text()
    lines = (line.strip(" \\").strip("'") for line in script.splitlines())
    keys = [re.sub(r'"[^"]*[$].*', "1", line) for line in lines if re.match(r"[a-z_.0-9]+=", line)]
    folder = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(str(folder), version_base=None):
        config = compose("ppo_trainer", overrides=keys)
    manager = config.reward.reward_manager
    assert load_extern_object(manager.module.path, manager.name).__name__ == "StageReward"
    assert config.algorithm.adv_estimator in ESTIMATORS and config.trainer.use_v1
    assert not config.algorithm.use_kl_in_reward and len(keys) > 30


async def test_verls_loop_object_runs_an_episode_on_its_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hydra import compose, initialize_config_dir
    from hydra.utils import instantiate
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from rubricem.training.verl.codes import decoded
    from tests.training.verl.test_codes import Bytes, ScriptedServers, whole_episode

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "cache.md").write_text("# lru_cache\n\nIt forgets the least recent.\n")
    monkeypatch.setenv("RUBRICEM_SOURCE", str(tmp_path / "docs"))
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    folder = Path(verl.__file__).parent / "trainer" / "config"
    lengths = ["data.max_prompt_length=8000", "data.max_response_length=8000"]
    with initialize_config_dir(str(folder), version_base=None):
        config = compose("ppo_trainer", overrides=[*lengths, "actor_rollout_ref.model.path=m"])
    loop = instantiate(
        {"_target_": "rubricem.training.verl.worker.ResearchLoop"},
        trainer_config=DictConfigWrap(config=config),
        server_manager=ScriptedServers(whole_episode),
        tokenizer=Bytes(),
        processor=None,
        hf_model_type=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
        tools=ToolListWrap([]),
    )
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True}
    prompt = [{"role": "user", "content": "What does lru_cache do?"}]
    found = await loop.run(sampling, raw_prompt=prompt, global_steps=4)
    assert found.extra_fields["min_global_steps"] == 4
    tensors = found.as_dict()
    codes = decoded(tensors["rm_scores"].unsqueeze(0), tensors["response_mask"].unsqueeze(0), 4)
    assert set(codes.stages[0].tolist()) == {-1, 0, 1, 2, 3}
    assert tensors["rollout_log_probs"].shape == tensors["responses"].shape
    with pytest.raises(SettingsError, match="the whole distribution"):
        await loop.run({**sampling, "top_p": 0.9}, raw_prompt=prompt)
