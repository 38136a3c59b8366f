#!/usr/bin/env bash
# ../rubricem_8b/rl.sh, with its variables and RuscaRL's scaffold (arXiv:2508.16949): rollouts are shown a part of
# their rubric, less with each member of a group and with each step. Not run: it needs GPUs.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
# The weights of importance sampling would be between two prompts, with and without the scaffold.
exec bash "$HERE/../rubricem_8b/rl.sh" \
    +rubricem.scaffold=linear \
    algorithm.rollout_correction.rollout_is=null \
    "$@"
