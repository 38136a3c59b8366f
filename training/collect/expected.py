"""What a collection is likely to take, told before it begins: rounded means, not a bound."""

from rubricem.agent.models.limits import Price, cost
from rubricem.agent.transcript.question import Ask
from rubricem.memory.schema import Usage
from rubricem.training.collect.directory import Manifest

SEARCHES = 3
"""of a rollout, if it may make so many"""
HEAD, TURN, REPLY, TOKENS_A_WORD = 1500, 400, 700, 1.4
"""tokens of instructions, of a rollout's turn, of a reply of a judge, of a word of a passage"""


def expected(manifest: Manifest, ask: Ask, rollouts: int) -> dict[str, Usage]:
    """What so many rollouts, their judging and the reflections on them take."""
    size, turns = manifest.group_size, min(SEARCHES, ask.tool_calls) + 1
    run = (turns - 1) * ask.passages * ask.passage_words * TOKENS_A_WORD + turns * TURN
    by_kind = {
        "relative": (1, size),
        "pairwise": (size * size - size, 0),
        "checklist": (size + 2, 0),
    }
    asked, shown = by_kind.get(manifest.judge_kind, (size + 1, 2 * size))
    asked += manifest.judge_options.get("support") == "judge"
    judged, written = rollouts // size * bool(manifest.judge), manifest.reflections
    parts = {
        "rollouts": (rollouts * turns, rollouts * turns * (HEAD + run / 2), TURN),
        "judge": (judged * asked, judged * (asked * (HEAD + TURN) + shown * run), REPLY),
        "reflections": (judged * (written + bool(written)), judged * written * (HEAD + run), REPLY),
    }
    return {
        on: Usage(calls=calls, prompt_tokens=int(read), completion_tokens=calls * reply)
        for on, (calls, read, reply) in parts.items()
    }


def estimate(taken: dict[str, Usage], own: Price | None, judge: Price | None) -> str:
    """A sentence; the prices are those of the policy, which also reflects, and of the judge."""
    costs = [cost(usage, judge if on == "judge" else own) for on, usage in taken.items()]
    told = "; ".join(f"{on}: {usage.told()}" for on, usage in taken.items() if usage.calls)
    dollars = sum(each for each in costs if each)
    return f"it may take {told}" + (f"; about {dollars:.2f} US dollars" if dollars else "")
