#!/usr/bin/env bash
# Traces of a teacher for imitation: QUESTIONS answered GROUP times, scored by the judge, filtered by return and support.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
: "${QUESTIONS:?a file that questions.py wrote}"
"$RUBRICEM" collect "$QUESTIONS" --out "$WORK/taught" --base-url "$TEACHER" --model "$TEACHER_MODEL" \
    --group-size "${GROUP:-2}" teacher=true judge_base_url="\"$JUDGE\"" judge_model="\"$JUDGE_MODEL\"" \
    reflections=0 settings.tool_calls=10 ${LIMIT:+--limit "$LIMIT"}
"$RUBRICEM" export "$WORK/taught" --to sft --out "$WORK/sft.jsonl" --rule citation --rule support \
    --min-return "${MIN_RETURN:-2.0}" --min-support "${MIN_SUPPORT:-0.8}" --best
