#!/usr/bin/env bash
# The same with RuscaRL's scaffold (arXiv:2508.16949): rollouts are shown a part of their rubric, less
# with each member of a group and with each step. Variables as of rubricem_8b.sh. Not run here.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
# The weights of importance sampling would be between two prompts, with and without the scaffold.
exec bash "$HERE/rubricem_8b.sh" \
    +rubricem.scaffold=linear \
    +rubricem.scaffold_decay=sigmoid:125:0.2 \
    algorithm.rollout_correction.rollout_is=null \
    "$@"
