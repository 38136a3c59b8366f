#!/usr/bin/env bash
# Imitation on all GPUs that nothing else uses: the judge may be stopped meanwhile (SFT_GPUS=8).
set -euo pipefail
. "$(dirname "$0")/settings.sh"
OWN=(out="\"$WORK/sft\"" rows="[\"$WORK/sft.jsonl\"]" model="\"$MODEL\"" "$@")
"$RUBRICEM" train sft "$HERE/sft.toml" "${OWN[@]}" --dry-run
$RUN torchrun --standalone --nproc-per-node="${SFT_GPUS:-8}" --no-python \
    "$RUBRICEM" train sft "$HERE/sft.toml" "${OWN[@]}"
# A model of its own, with the tokenizer, for vLLM and verl.
[ -e "$WORK/sft-model" ] || $RUN "$RUBRICEM" train export "$WORK/sft/last" "$WORK/sft-model"
