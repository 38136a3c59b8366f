#!/usr/bin/env bash
# The judge on its own GPUs, two replicas of two GPUs each behind one address. The teacher likewise, with JUDGE_WEIGHTS,
# JUDGE_GPUS, PORT=8002 and JUDGE_MODEL=teacher of its own.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
export CUDA_VISIBLE_DEVICES=$JUDGE_GPUS
$RUN exec vllm serve "$JUDGE_WEIGHTS" --served-model-name "$JUDGE_MODEL" --host "$HEAD" --port "${PORT:-8001}" \
    --tensor-parallel-size 2 --data-parallel-size 2 --max-model-len 65536 --enable-prefix-caching \
    --gpu-memory-utilization 0.9
