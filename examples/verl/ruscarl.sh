#!/usr/bin/env bash
# RuscaRL (arXiv:2508.16949) with verl. Rollouts are shown a part of their question's criteria, less with each
# member of a group and with each step. The reward is a checklist's points. On every node:
#   HEAD=10.0.0.1 NODES=1 MODEL=/models/policy QUESTIONS=questions.jsonl JUDGE=http://10.0.0.9:8000/v1 \
#     DATA=/shared/ruscarl bash examples/verl/ruscarl.sh
# DATA is a folder that all nodes see; QUESTIONS has `criteria` with points. Numbers are those of RuscaRL's
# script, but rollouts are sampled from the whole distribution. Not run: it needs GPUs.
set -euo pipefail
: "${QUESTIONS:?a file of questions}" "${DATA:?a folder that all nodes see}" "${JUDGE:?a server}"
LAUNCH=$(python -c 'import rubricem.training.verl as verl; print(verl.__path__[0] + "/launch")')

mkdir -p "$DATA"
if [ ! -e "$DATA/questions.parquet" ]; then
    python -m rubricem.training.verl.policy "$QUESTIONS" "$DATA/questions.parquet"
fi
if [ -n "${HELD_OUT:-}" ] && [ ! -e "$DATA/held_out.parquet" ]; then
    python -m rubricem.training.verl.policy "$HELD_OUT" "$DATA/held_out.parquet" --held-out
fi

export RAY_AUTH_MODE=token
export RUBRICEM_BASE_URL=$JUDGE RUBRICEM_MODEL=${JUDGE_MODEL:-judge}
export RUBRICEM_DATA_DIR=$DATA RUBRICEM_MEMORY=off
export REFLECTIONS=0 NAME=${NAME:-ruscarl}
HELD_OUT=${HELD_OUT:+$DATA/held_out.parquet}
export HELD_OUT QUESTIONS=$DATA/questions.parquet

# The weights of importance sampling would be between two prompts, with and without the scaffold.
exec bash "$LAUNCH/cluster.sh" \
    algorithm.adv_estimator=ss_grpo_answer_only \
    algorithm.rollout_correction.rollout_is=null \
    data.train_batch_size=64 \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \
    actor_rollout_ref.actor.clip_ratio=0.2 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 \
    actor_rollout_ref.actor.kl_loss_type=low_var_kl \
    actor_rollout_ref.rollout.n=8 \
    rubricem.judge=checklist \
    +rubricem.scaffold=linear \
    trainer.default_local_dir="$DATA/checkpoints" \
    trainer.total_training_steps=350 \
    trainer.total_epochs=100 \
    "$@"
