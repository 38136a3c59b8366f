"""The plugin beside the verl that is installed; without verl there is nothing to test."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

verl = pytest.importorskip("verl")
pytestmark = pytest.mark.filterwarnings("default")


def test_verl_calls_the_estimators_with_its_whole_batch_and_takes_what_they_give() -> None:
    """Of several outputs of one session verl keeps the last for its own `grpo` alone."""
    import numpy as np
    import torch
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    from rubricem.training.verl import plugin

    questions = ["one", "one", "two"]
    rewards = torch.tensor([[0.5, -1.0, 0.0], [1.0, 2.0, 3.0], [0.25, 0.0, -0.5]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])

    def batch() -> DataProto:
        return DataProto.from_dict(
            tensors={"token_level_rewards": rewards, "response_mask": mask},
            non_tensors={"uid": np.array(questions, dtype=object)},
        )

    assert plugin.ESTIMATORS.keys() == {"ss_grpo", "ss_grpo_answer_only"}
    keys = [f"{name}_{number}_0" for number, name in enumerate(questions)]
    for name in plugin.ESTIMATORS:
        found = compute_advantage(batch(), adv_estimator=name, config=None).batch
        torch.testing.assert_close(found["advantages"], rewards * mask)
        found = compute_advantage_for_multi_trajectories(batch(), keys, adv_estimator=name).batch
        torch.testing.assert_close(found["advantages"], rewards * mask)


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


def test_an_output_is_rewarded_by_the_advantages_that_it_was_told() -> None:
    told = {"plan": 0.5, "answer": 0.0, "advantages": "0.5,-1.0,0.0,2.0", "reflections": "1.0,-1.0"}
    extra = {"reward_extra_info": told, "rollout": object(), "max_global_steps": 3}
    found = output(extra_fields=dict(extra), reward_score=0.25).as_dict()
    assert found["rm_scores"].tolist() == [0.5, 0.0, -1.0, 0.0, 2.0]
    assert "rollout" not in found["extra_fields"], "the run is not stored with every batch"
    assert found["extra_fields"]["max_global_steps"] == 3
    assert "response_stages" not in found and found["responses"].tolist() == [3, 4, 5, 6, 7]
    assert not output().as_dict()["rm_scores"].any(), "it was not judged"
    for number, value in enumerate((1.0, -1.0)):
        made = output(extra_fields=dict(extra), response_stages=[0] * 5, candidate=number).as_dict()
        assert made["rm_scores"].tolist() == [value] * 5 and "candidate" not in made


def test_the_launch_files_name_what_there_is() -> None:
    import yaml
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from verl.utils.import_utils import load_class_from_fqn, load_extern_object

    import rubricem.training.verl as engine
    from rubricem.training.verl.groups import group_options
    from rubricem.training.verl.plugin import ESTIMATORS

    launch = Path(engine.__file__).parent / "launch"
    (loop,) = yaml.safe_load((launch / "agent_loop.yaml").read_text())
    assert load_class_from_fqn(loop["_target_"]).__name__ == "ResearchLoop"
    paper = ROOT / "examples" / "rubricem_8b" / "rl.sh"
    ruscarl, scaffolded = sorted((ROOT / "examples" / "verl").glob("*.sh"))

    def keys(*scripts: Path) -> list[str]:
        return [
            re.sub(r'"[^"]*[$].*', "1", line)
            for script in (launch / "train.sh", *scripts)
            for line in (line.strip(" \\").strip("'") for line in script.read_text().splitlines())
            if re.match(r"[+]?[a-z_0-9]+[.][a-z_.0-9]+=", line)
        ]

    folder = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(str(folder), version_base=None):
        config = compose("ppo_trainer", overrides=keys(paper, scaffolded))
        points = compose("ppo_trainer", overrides=keys(ruscarl))
    manager = config.reward.reward_manager
    assert load_extern_object(manager.module.path, manager.name).__name__ == "StageReward"
    callback = load_class_from_fqn(config.trainer.checkpoint_callback_class)
    assert callback.__name__ == "RubricCheckpoints"
    assert config.algorithm.adv_estimator in ESTIMATORS and config.trainer.use_v1
    told = group_options(OmegaConf.to_container(config.rubricem))
    assert told.judge == "stage" and told.scaffold == "linear"
    assert config.data.max_response_length == 18432 and config.trainer.total_training_steps == 1400
    assert not config.algorithm.use_kl_in_reward and len(keys(paper, scaffolded)) > 50
    assert group_options(OmegaConf.to_container(points.rubricem)).judge == "checklist"
    assert points.algorithm.adv_estimator in ESTIMATORS
    assert points.trainer.total_training_steps == 350


def test_questions_between_the_steps_have_to_be_held_out(tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    from rubricem.memory.errors import SettingsError
    from rubricem.training.collect.questions import Question
    from rubricem.training.rows.forms import write_verl
    from rubricem.training.verl.worker import check_held_out

    questions = [Question(id="q", question="What is it?")]
    write_verl(tmp_path / "train.parquet", questions)
    write_verl(tmp_path / "held_out.parquet", questions, held_out=True)

    def config(files: Any, **trainer: Any) -> Any:
        told = {"data": {"val_files": files}, "trainer": {"test_freq": -1, **trainer}}
        return OmegaConf.create(told)

    train, held_out = (str(tmp_path / f"{name}.parquet") for name in ("train", "held_out"))
    check_held_out(config([held_out]))
    check_held_out(config(train, val_before_train=False))
    for wrong in (config(train), config([held_out, train], val_before_train=False, test_freq=5)):
        with pytest.raises(SettingsError, match="not held out") as error:
            check_held_out(wrong)
        assert "--held-out" in error.value.remedy
