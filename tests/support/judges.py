"""A reader of choices with one token per character, whose probabilities follow a rule.

What a pairwise judge writes, and models that write it by script.

A token server on loopback that compares two replies by script, in ids of the tiny model.

A prompt is 32 tokens, its hash,
so that training on it is quick; what is written has one token for each character. The script is
told which model is asked, which reply is the better one, and the seed and temperature.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rubricem.judge.pairwise import Preference
from rubricem.memory.errors import PolicyError
from rubricem.memory.schema import (
    Completion,
    Message,
    OnText,
    Sampling,
    StopPredicate,
    StopReason,
    Usage,
)
from tests.support.token_servers import Events, RecordedServer
from tests.support.values import ByCharacter


class FixedReader(ByCharacter):
    """A `ChoiceReader`; the rule sees the whole prefix as text."""

    name = "reader"

    def __init__(
        self, rule: Callable[[str], tuple[float, ...]], context_tokens: int = 100_000
    ) -> None:
        self.rule = rule
        self.context_tokens = context_tokens
        self.texts: list[str] = []
        self.options: list[tuple[str, ...]] = []

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        self.texts.append("".join(map(chr, prefix)))
        self.options.append(tuple(options))
        return self.rule(self.texts[-1])


PAID = Usage(prompt_tokens=100, completion_tokens=20, cost=0.5, calls=1)


def chain(verdict: str, evaluation: str = "The first names the rule.") -> str:
    """A whole chain of rubrics with the given verdict."""
    return (
        "<type>Chat</type>\n<rubric>\n1. Accuracy (60%)\n2. Clarity (40 %)\n"
        "<justify>What is wrong helps nobody.</justify>\n</rubric>\n"
        f"<eval>{evaluation}</eval>\n<answer>[[{verdict}]]</answer>"
    )


class ScriptedChat:
    """A chat model that replies by list or by function; a None is a server that is down."""

    name = "scripted"
    context_tokens: int | None = None

    def __init__(
        self,
        script: Sequence[str | None] | Callable[[str], str | None],
        stop_reason: StopReason = "stop",
    ) -> None:
        self.script = script
        self.stop_reason = stop_reason
        self.asked: list[Sequence[Message]] = []

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self.asked.append(list(messages))
        reply = (
            self.script(messages[1].content)
            if callable(self.script)
            else self.script[len(self.asked) - 1]
        )
        if reply is None:
            raise PolicyError("the server is down", "Start it.")
        return Completion(reply, self.stop_reason, usage=PAID)


class RuledComparer:
    """Prefers by a function of what is shown first and second: A, B or None."""

    name = "ruled"

    def __init__(self, rule: Callable[[str, str], str | None]) -> None:
        self.rule = rule
        self.shown: list[tuple[str, str]] = []

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        self.shown.append((first, second))
        winner = self.rule(first, second)
        if winner is None:
            return Preference(None, "it names no winner", usage=PAID)
        return Preference("A" if winner == "A" else "B", f"{winner} is better", usage=PAID)


def longer(first: str, second: str) -> str:
    return "A" if len(first) > len(second) else "B"


def place(first: str, second: str) -> str:
    """A judge that looks at the place alone."""
    return "A"


GOOD, BAD = "a good reply", "a bad reply"


@dataclass(frozen=True)
class Asked:
    """One request for a comparison."""

    model: str
    better: str
    """A or B, as the pair is shown"""
    seed: int
    greedy: bool


Script = Callable[[Asked], str]


def by_seed(asked: Asked) -> str:
    """Right at every second seed when sampled; at temperature 0 always for what is shown first."""
    other = "B" if asked.better == "A" else "A"
    right = asked.better if asked.seed % 2 else other
    return chain("A" if asked.greedy else right)


class JudgeServer(RecordedServer):
    """A vLLM of the models `judge` and `trained`; `comparisons` are written down."""

    def __init__(self, script: Script = by_seed) -> None:
        self.script = script
        self.comparisons: list[Asked] = []
        self.prompts: dict[tuple[int, ...], str] = {}
        names = ("judge", "trained")
        listed = [{"id": n, "owned_by": "vllm", "max_model_len": 16384} for n in names]
        super().__init__(
            {
                "GET /v1/models": {"object": "list", "data": listed},
                "POST /tokenize": self.tokenised,
                "POST /detokenize": lambda body: {"prompt": "".join(map(chr, body["tokens"]))},
                "POST /v1/completions": self.completed,
            }
        )

    def tokenised(self, body: dict[str, Any]) -> dict[str, Any]:
        if "prompt" in body:
            return {"tokens": ids_of(body["prompt"]), "max_model_len": 16384}
        text = "\n".join(message["content"] for message in body["messages"])
        ids = [byte % 128 for byte in hashlib.sha256(text.encode()).digest()]
        self.prompts[tuple(ids)] = text
        return {"tokens": ids, "max_model_len": 16384}

    def completed(self, body: dict[str, Any]) -> Events:
        prompt, most = self.prompts[tuple(body["prompt"])], body["max_tokens"]
        better = "A" if prompt.find(GOOD) < prompt.find(BAD) else "B"
        greedy = body["temperature"] == 0
        asked = Asked(body["model"], better, int(body.get("seed", 0)), greedy)
        self.comparisons.append(asked)
        text = self.script(asked)
        ids, finish = ids_of(text)[:most], "length" if len(text) > most else "stop"
        told = {"tokens": list(text[:most]), "token_logprobs": [-2.0] * len(ids)}
        piece = {"text": text[:most], "token_ids": ids, "logprobs": told, "finish_reason": None}
        end = {"text": "", "token_ids": [], "logprobs": None, "finish_reason": finish}
        return Events([{"choices": [piece]}, {"choices": [end]}])


def ids_of(text: str) -> list[int]:
    return [ord(c) if ord(c) < 128 else ord("?") for c in text]


def pairs_file(path: Path, count: int, first: int = 0) -> Path:
    """Pairs in RewardBench's form; the chosen reply is the good one."""
    rows = [
        {"id": n, "prompt": f"Which is {n}?", "chosen": GOOD, "rejected": BAD}
        for n in range(first, first + count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def toml(path: Path, table: str, told: dict[str, Any], **engine: Any) -> Path:
    """A configuration for the tiny model beside it."""
    settings = {"out": "out", "model": "tiny.gguf", "rank": 4, "alpha": 8.0, 
                "dtype": "float32", "max_row_tokens": 8192, **engine}  # fmt: skip
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
    tables = {table: {k: v for k, v in told.items() if not isinstance(v, dict)}}
    tables |= {f"{table}.{k}": v for k, v in told.items() if isinstance(v, dict)}
    for name, values in tables.items():
        lines += [f"[{name}]\n", *(f"{k} = {json.dumps(v)}\n" for k, v in values.items())]
    path.write_text("".join(lines))
    return path
