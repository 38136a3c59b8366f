#!/usr/bin/env bash
# One training on the Ray cluster that is running: FSDP for the weights, vLLM for the rollouts.
#   MODEL=/models/policy QUESTIONS=q.parquet HELD_OUT=h.parquet NODES=2 GPUS=8 bash train.sh [key=value ...]
set -euo pipefail
: "${MODEL:?a folder of safetensors}" "${QUESTIONS:?made by rubricem.training.verl.policy}"
HERE=$(cd "$(dirname "$0")" && pwd)
# Only what was written with --held-out may be asked between the steps.
VALIDATION=(
    data.val_files="$QUESTIONS"
    trainer.val_before_train=False
    trainer.test_freq=-1
)
if [ -n "${HELD_OUT:-}" ]; then
    VALIDATION=(data.val_files="$HELD_OUT" trainer.test_freq=10)
fi

exec python -m verl.trainer.main_ppo \
    algorithm.adv_estimator=ss_grpo \
    algorithm.use_kl_in_reward=False \
    algorithm.rollout_correction.rollout_is=token \
    algorithm.rollout_correction.rollout_is_threshold=2.0 \
    data.train_files="$QUESTIONS" \
    "${VALIDATION[@]}" \
    data.train_batch_size=32 \
    data.max_prompt_length=2048 \
    data.max_response_length=14336 \
    data.return_raw_chat=True \
    data.shuffle="${SHUFFLE:-True}" \
    data.seed="${SEED:-0}" \
    data.filter_overlong_prompts=False \
    actor_rollout_ref.model.path="$MODEL" \
    actor_rollout_ref.model.enable_gradient_checkpointing=True \
    actor_rollout_ref.actor.strategy=fsdp2 \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768 \
    actor_rollout_ref.actor.loss_agg_mode=token-mean \
    actor_rollout_ref.actor.use_kl_loss=False \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.temperature=1.0 \
    actor_rollout_ref.rollout.top_p=1.0 \
    actor_rollout_ref.rollout.top_k=-1 \
    actor_rollout_ref.rollout.calculate_log_probs=True \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
    actor_rollout_ref.rollout.agent.default_agent_loop=rubricem \
    actor_rollout_ref.rollout.agent.agent_loop_config_path="$HERE/agent_loop.yaml" \
    reward.reward_manager.source=importlib \
    reward.reward_manager.name=StageReward \
    reward.reward_manager.module.path=pkg://rubricem.training.verl.worker \
    reward.num_workers=8 \
    +rubricem.judge=stage \
    +rubricem.reflections="${REFLECTIONS:-8}" \
    +rubricem.seed="${SEED:-0}" \
    trainer.checkpoint_callback_class=rubricem.training.verl.worker.RubricCheckpoints \
    trainer.nnodes="${NODES:-1}" \
    trainer.n_gpus_per_node="${GPUS:-8}" \
    trainer.project_name=rubricem \
    trainer.experiment_name="${NAME:-ss_grpo}" \
    'trainer.logger=["console","tensorboard"]' \
    trainer.save_freq=10 \
    trainer.total_epochs=1 \
    "$@"
