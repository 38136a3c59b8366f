#!/usr/bin/env bash
# Checks a first run on a GPU and prints a table of pass and fail (not run on a GPU yet):
#   MODEL=/models/Qwen2.5-0.5B-Instruct bash examples/first_gpu.sh
# MODEL is a folder of safetensors; vllm has to be installed. The same on the CPU, with llama.cpp:
#   MODEL=0.5b bash examples/first_gpu.sh --cpu
# Files are written to WORK. The exit status is 0 if every check passed.
set -euo pipefail
: "${MODEL:?a folder of safetensors, or with --cpu a GGUF file or a name}"
HERE=$(cd "$(dirname "$0")" && pwd)
WORK=${WORK:-$(mktemp -d)}
PORT=${PORT:-8123}
PYTHON=${PYTHON:-python}
if [ "${1:-}" = --cpu ]; then
    shift
    exec "$PYTHON" "$HERE/first_gpu.py" --model "$MODEL" --work "$WORK" --cpu "$@"
fi

# Half of the memory: the trainer has the other half.
VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve "$MODEL" --served-model-name policy --port "$PORT" \
    --host 127.0.0.1 --enable-lora --max-lora-rank 16 --max-loras 4 --max-model-len 16384 \
    --gpu-memory-utilization 0.5 --seed 0 >"$WORK/vllm.log" 2>&1 &
SERVER=$!
trap 'kill "$SERVER" 2>/dev/null || true; wait "$SERVER" 2>/dev/null || true' EXIT
for _ in $(seq 300); do
    curl -sf "http://127.0.0.1:$PORT/health" >/dev/null && break
    kill -0 "$SERVER" 2>/dev/null || { tail -n 20 "$WORK/vllm.log" >&2; exit 1; }
    sleep 2
done
"$PYTHON" "$HERE/first_gpu.py" --model "$MODEL" --work "$WORK" \
    --base-url "http://127.0.0.1:$PORT/v1" "$@"
