#!/usr/bin/env bash
# A served policy on files of questions: POLICY=URL POLICY_MODEL=NAME bash evaluate.sh healthbench.jsonl drb.jsonl ...
# Scores are this judge's, and comparable among themselves alone (docs/evaluation.md).
set -euo pipefail
. "$(dirname "$0")/settings.sh"
: "${POLICY:?the address of the trained policy, as http://HOST:8000/v1}" "${POLICY_MODEL:?its name there}"
for file in "$@"; do
    "$RUBRICEM" eval "$file" --arms "${ARMS:-stages,closed}" --base-url "$POLICY" --model "$POLICY_MODEL" \
        --judge checklist --judge-base-url "$JUDGE" --judge-model "$JUDGE_MODEL" \
        --out "$WORK/evaluation/$(basename "$file" .jsonl)" ${LIMIT:+--limit "$LIMIT"}
done
