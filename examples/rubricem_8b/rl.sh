#!/usr/bin/env bash
# SS-GRPO by verl, vLLM and Ray, on every node: the first trains, the others join it. Rates, sizes, limits and the
# weight of the divergence are RubricEM's (arXiv:2605.10899, appendix F.1.2); the rest of verl's keys are in
# training/verl/launch/train.sh. Further keys of verl may follow.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
: "${QUESTIONS:?a file that questions.py wrote}"
LAUNCH=$("$PYTHON" -c 'import rubricem.training.verl as verl; print(verl.__path__[0] + "/launch")')
# The paper asks 32 questions a step, and those of three steps once more before it goes on.
STEP=${STEP:-32} WINDOW=3
TRAINED=$WORK/questions.parquet
[ -e "$TRAINED" ] || "$PYTHON" -m rubricem.training.verl.policy "$QUESTIONS" "$TRAINED" --batch "$STEP" --windows "$WINDOW"
if [ -n "${HELD_OUT:-}" ]; then
    "$PYTHON" -m rubricem.training.verl.policy "$HELD_OUT" "$WORK/held_out.parquet" --held-out
    export HELD_OUT=$WORK/held_out.parquet
fi
# The policy's turns are verl's; the model of these settings judges.
export RUBRICEM_BASE_URL=$JUDGE RUBRICEM_MODEL=$JUDGE_MODEL RUBRICEM_MEMORY=on RUBRICEM_TOOL_CALLS=10
export RAY_AUTH_MODE=token MODEL=${START:-$WORK/sft-model} QUESTIONS=$TRAINED GPUS=$TRAIN_GPUS
export SHUFFLE=False REFLECTIONS=8
if [ "$NODES" = 1 ] && [ -z "${CUDA_VISIBLE_DEVICES:-}" ]; then
    CUDA_VISIBLE_DEVICES=$(seq -s, 0 $((TRAIN_GPUS - 1))) && export CUDA_VISIBLE_DEVICES
fi
$RUN exec bash "$LAUNCH/cluster.sh" \
    data.train_batch_size="$STEP" \
    data.max_prompt_length=8192 \
    data.max_response_length=18432 \
    actor_rollout_ref.actor.optim.lr=5e-7 \
    actor_rollout_ref.actor.ppo_mini_batch_size="$STEP" \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=26624 \
    actor_rollout_ref.actor.clip_ratio=0.2 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 \
    actor_rollout_ref.actor.kl_loss_type=low_var_kl \
    actor_rollout_ref.actor.fsdp_config.param_offload=True \
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=True \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.temperature=1.0 \
    trainer.default_local_dir="$WORK/checkpoints" \
    trainer.total_training_steps=1400 \
    trainer.total_epochs=100 \
    trainer.save_freq=20 \
    "$@"
