"""What a training takes, by formulas.

    python cost.py [NAME=VALUE ...]      as steps=1400 judge_in=0.30 mfu=0.25

Nothing of it was measured on GPUs: mfu, tokens a second, the lengths of rollouts and all prices
are assumptions, to be replaced by what your own first steps show.
"""

import sys
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Assumed:
    parameters: float = 8.2e9
    questions: float = 32
    group: float = 8
    steps: float = 1400
    read: float = 16_000
    """tokens of a rollout's row: prompt, tool output and what the policy wrote"""
    written: float = 4_000
    """of these, sampled"""
    reflections: float = 8
    """candidates on one rollout of each question, each read with it"""
    searches: float = 10
    cached: float = 0.0
    """share of the searches that the cache answers"""
    train_gpus: float = 4
    peak: float = 989e12
    """floating-point operations a second of one GPU in bfloat16"""
    mfu: float = 0.25
    """share of them that training reaches"""
    sampled_a_second: float = 2_000
    """tokens that one GPU samples a second, of all rollouts in flight"""
    gpu_hour: float = 2.5
    judge_in: float = 0.30
    judge_out: float = 2.50
    """dollars for a million tokens"""
    search_thousand: float = 1.0
    """dollars for a thousand searches that are not cached"""
    judge_reads: float = 2.5
    """tokens that a judge reads for each token of a rollout: contrast, scoring, reflections"""
    judge_writes: float = 500
    """tokens that a judge writes for a rollout"""


def of_step(told: Assumed) -> dict[str, float]:
    """GPU hours and dollars of one step."""
    rollouts = told.questions * told.group
    rows = rollouts + told.questions * told.reflections
    # A row is read by the sampler's policy anew and by the reference (2 N each), and trained (6 N).
    operations = rows * told.read * told.parameters * (2 + 2 + 6)
    training = operations / (told.peak * told.mfu) / 3600
    sampled = rollouts * told.written + told.questions * told.reflections * 500
    sampling = sampled / told.sampled_a_second / 3600
    asked = rollouts * told.searches
    judge = rollouts * (
        told.read * told.judge_reads * told.judge_in + told.judge_writes * told.judge_out
    )
    return {
        "GPU hours, training": training,
        "GPU hours, sampling": sampling,
        "minutes on the training GPUs": (training + sampling) / told.train_gpus * 60,
        "dollars, training GPUs": (training + sampling) * told.gpu_hour,
        "dollars, a judge that is paid by tokens": judge / 1e6,
        "searches": asked,
        "dollars, searches": asked * (1 - told.cached) * told.search_thousand / 1000,
    }


def main() -> None:
    given = dict(one.split("=", 1) for one in sys.argv[1:])
    if unknown := given.keys() - {field.name for field in fields(Assumed)}:
        raise SystemExit(f"there is no {', '.join(sorted(unknown))}; see Assumed in {sys.argv[0]}")
    told = replace(Assumed(), **{name: float(value) for name, value in given.items()})
    print(f"{'':42}{'a step':>14}{f'{told.steps:,.0f} steps':>16}")
    for name, value in of_step(told).items():
        print(f"{name:42}{value:14,.2f}{value * told.steps:16,.0f}")
    print("assumed, not measured: mfu, sampled_a_second, all prices, and the tokens of a rollout")


if __name__ == "__main__":
    main()
