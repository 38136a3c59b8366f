#!/usr/bin/env bash
# The whole sequence once with the 0.5B, one to two hours on two cores: collect forced traces and
# imitate them, collect judged rollouts, train on them, and ask again.
#
#   bash examples/loop.sh [FOLDER]
#
# After an interruption, the same command resumes.
set -euo pipefail

loop=$(realpath -m "${1:-loop}")
mkdir -p "$loop"
cd "$loop"
export RUBRICEM_DATA_DIR=$loop/data RUBRICEM_SOURCE=python RUBRICEM_TOOL_CALLS=2 RUBRICEM_MAX_TOKENS=700
rubricem=${RUBRICEM:-rubricem}

cat >imitate.txt <<'QUESTIONS'
What does itertools.batched do with the last batch when it is shorter than n?
What does str.removeprefix return when the string does not start with the prefix?
Which exception does asyncio.wait_for raise when the timeout is reached?
What does collections.deque do when maxlen is reached and a new item is appended?
What does shutil.which return when no command is found?
What does bisect.insort do, and where is the item put among equal ones?
QUESTIONS
cat >collect.txt <<'QUESTIONS'
What does functools.cached_property do on the first access, and how is its value cleared?
What does heapq.nsmallest return when n is larger than the iterable?
QUESTIONS

"$rubricem" collect imitate.txt --out traces --model 0.5b --judge none settings.decoding=forced group_size=1
cat >sft.toml <<'TOML'
out = "sft"
rows = ["traces"]
model = "0.5b"
learning_rate = 2e-4
epochs = 2
batch = 4
TOML
"$rubricem" train sft sft.toml

"$rubricem" collect collect.txt --out judged --model sft/last \
  judge_model=0.5b step_size=1 reflections=3 settings.memory=on
cat >ss-grpo.toml <<'TOML'
out = "ss-grpo"
rows = ["judged"]
model = "0.5b"
start_adapter = "sft/last"
learning_rate = 5e-5
batch = 1
TOML
"$rubricem" train ss-grpo ss-grpo.toml

"$rubricem" ask --model ss-grpo/last --memory read-only \
  "What does functools.cache do, and how does it differ from functools.lru_cache with maxsize=None?"
