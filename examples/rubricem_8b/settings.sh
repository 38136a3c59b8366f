# What every script here reads; set any of it in the environment instead. Paths are absolute, on storage that all
# nodes see. RUN=echo prints what a script would start on GPUs.
export MODEL=${MODEL:-/models/Qwen3-8B}               # a folder of safetensors with its tokenizer
export WORK=${WORK:-/shared/rubricem-8b}              # everything that is made here
export HEAD=${HEAD:-$(hostname -I 2>/dev/null | cut -d' ' -f1)} NODES=${NODES:-1}
# One node: GPUs 0 to 3 sample and train in turn, 4 to 7 judge. With a judge elsewhere: TRAIN_GPUS=8 and JUDGE=URL.
export TRAIN_GPUS=${TRAIN_GPUS:-4} JUDGE_GPUS=${JUDGE_GPUS:-4,5,6,7}
export JUDGE_WEIGHTS=${JUDGE_WEIGHTS:-/models/Qwen3-32B}
export JUDGE=${JUDGE:-http://$HEAD:8001/v1} JUDGE_MODEL=${JUDGE_MODEL:-judge}
export SEARCH=${SEARCH:-http://$HEAD:8888}            # search.py
export TEACHER=${TEACHER:-http://$HEAD:8002/v1} TEACHER_MODEL=${TEACHER_MODEL:-teacher}
export RUBRICEM_SOURCE=searxng:$SEARCH RUBRICEM_DATA_DIR=${RUBRICEM_DATA_DIR:-$WORK/data}
export RUN=${RUN:-} PYTHON=${PYTHON:-python} RUBRICEM=${RUBRICEM:-rubricem}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$WORK" "$RUBRICEM_DATA_DIR"
