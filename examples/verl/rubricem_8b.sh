#!/usr/bin/env bash
# RubricEM's training of an 8B policy (arXiv:2605.10899, appendix F.1.2) with verl. On every node:
#   HEAD=10.0.0.1 NODES=4 MODEL=/models/sft-8b QUESTIONS=questions.jsonl JUDGE=http://10.0.0.9:8000/v1 \
#     DATA=/shared/rubricem bash examples/verl/rubricem_8b.sh
# DATA is a folder that all nodes see. Not run: it needs GPUs.
set -euo pipefail
: "${QUESTIONS:?a file of questions}" "${DATA:?a folder that all nodes see}" "${JUDGE:?a server}"
LAUNCH=$(python -c 'import rubricem.training.verl as verl; print(verl.__path__[0] + "/launch")')
# The paper asks 32 questions a step, and those of three steps once more before it goes on.
STEP=32 WINDOW=3

mkdir -p "$DATA"
if [ ! -e "$DATA/questions.parquet" ]; then
    python -m rubricem.training.verl.policy "$QUESTIONS" "$DATA/questions.parquet" \
        --batch "$STEP" --windows "$WINDOW"
fi
if [ -n "${HELD_OUT:-}" ] && [ ! -e "$DATA/held_out.parquet" ]; then
    python -m rubricem.training.verl.policy "$HELD_OUT" "$DATA/held_out.parquet" --held-out
fi

export RAY_AUTH_MODE=token
export RUBRICEM_BASE_URL=$JUDGE RUBRICEM_MODEL=${JUDGE_MODEL:-judge}
export RUBRICEM_DATA_DIR=$DATA RUBRICEM_MEMORY=on
export SHUFFLE=False REFLECTIONS=8
HELD_OUT=${HELD_OUT:+$DATA/held_out.parquet}
export HELD_OUT QUESTIONS=$DATA/questions.parquet

exec bash "$LAUNCH/cluster.sh" \
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
    trainer.default_local_dir="$DATA/checkpoints" \
    trainer.total_training_steps=1400 \
    trainer.total_epochs=100 \
    trainer.save_freq=20 \
    "$@"
