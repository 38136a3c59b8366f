"""The loopback server as a policy of tokens too: rounds need ids that a tiny model can train on.

    python -m benchmarks.rounds_server --delay 1.0

Words are tokens, hashed into 120 ids; `/detokenize` knows what it has said. It speaks vLLM's
`/v1/completions`, and answers the judge's chats: verdicts that differ with how an answer
begins, and reviews that differ with a reflection's place. A model's reply takes `delay` seconds.
"""

import argparse
import asyncio
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from benchmarks.loopback import (
    STREAM_HEAD,
    TURNS,
    Loopback,
    chunk,
    ending,
    event,
    frame,
    json_response,
    serve_until_killed,
    started,
)
from benchmarks.scripted_judge import OPENINGS

WORDS, TOOL, REFLECT, ANSWER, END = 120, 121, 122, 123, 130
"""hashed words; marks of a tool's output, of a reflection's and of a question's prompt; the end"""
CONTEXT = 65_536
REFLECTION = (
    "<reflection_rubrics>\nCritical Requirement: name the rule and its exception.\n"
    "</reflection_rubrics>\n"
    "<reflection_takeaways>\n- Confirm the exception before answering ({}). [answer]\n"
    "</reflection_takeaways>"
)
_WORD = re.compile(r"\s*\S+|\s+")


@dataclass(frozen=True, slots=True)
class TokenLoopback(Loopback):
    """One server that samples, judges and searches."""

    said: dict[tuple[int, ...], str] = field(default_factory=dict)
    adapters: dict[str, str] = field(default_factory=dict)
    """folders by the names that they were loaded under, as vLLM does it"""

    async def answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        asked: dict[str, Any] = json.loads(body) if body else {}
        if path == "/v1/completions":
            await self._sample(asked, body, writer)
        elif path == "/tokenize":
            ids = self._tokenise(asked)
            reply = {"tokens": ids, "count": len(ids), "max_model_len": CONTEXT}
            writer.write(json_response(reply))
        elif path == "/detokenize":
            # A reply that was cut at its end is the beginning of one that was said.
            writer.write(json_response({"prompt": self.said.get(tuple(asked["tokens"]), "")}))
        elif path.endswith("/models"):
            listed = [{"id": "policy", "owned_by": "vllm", "max_model_len": CONTEXT}]
            listed += [{"id": n, "root": p, "parent": "policy"} for n, p in self.adapters.items()]
            writer.write(json_response({"object": "list", "data": listed}))
        elif path.endswith("load_lora_adapter"):
            writer.write(self._switch_adapter(path, asked))
        elif path.endswith("/chat/completions") and (reviews := _reviews(asked)):
            self.counts.call(body)
            await asyncio.sleep(self.delay)
            told = event({"content": reviews}) + ending(asked, reviews)
            writer.write(STREAM_HEAD + chunk(told) + b"0\r\n\r\n")
        else:
            await Loopback.answer(self, path, body, writer)
            return
        await writer.drain()

    def _switch_adapter(self, path: str, asked: Mapping[str, Any]) -> bytes:
        name, loads = asked["lora_name"], path.endswith("/load_lora_adapter")
        if loads == (name in self.adapters):
            return json_response({"error": {"message": name}}, "400 Bad Request")
        if loads:
            self.adapters[name] = asked["lora_path"]
        else:
            del self.adapters[name]
        return json_response({})

    async def _sample(
        self, asked: Mapping[str, Any], body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        self.counts.call(body)
        text = _write(asked)
        words = _WORD.findall(text)
        for count in range(len(words) + 1 if text not in self.said.values() else 0):
            self.said[tuple(map(self._id, words[:count]))] = "".join(words[:count])
        await asyncio.sleep(self.delay)
        writer.write(STREAM_HEAD)
        for piece in (self._piece(words), self._piece([], "stop")):
            writer.write(chunk(frame(piece)))
        writer.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    def _tokenise(self, asked: Mapping[str, Any]) -> list[int]:
        if "messages" not in asked:
            text = asked["prompt"]
            words = map(self._id, _WORD.findall(text))
            return [*([TOOL] * ("<tool_output" in text)), *words]
        text = "".join(message["content"] for message in asked["messages"])
        mark = REFLECT if "<run>" in text else ANSWER
        return [mark, *map(self._id, _WORD.findall(text))]

    def _id(self, word: str) -> int:
        return zlib.crc32(word.encode()) % WORDS

    def _piece(self, words: Sequence[str], finish: str | None = None) -> dict[str, Any]:
        ids = [END] if finish else [self._id(word) for word in words]
        told = {"tokens": list(words) or ["<|end|>"], "token_logprobs": [-2.0] * len(ids)}
        choice = {
            "text": "".join(words), "token_ids": ids, "logprobs": told, "finish_reason": finish
        }  # fmt: skip
        return {"choices": [choice]}


def _write(asked: Mapping[str, Any]) -> str:
    prompt: Sequence[int] = asked["prompt"]
    seed = asked.get("seed") or 0
    if prompt[0] == REFLECT:
        return REFLECTION.format(seed % 7)
    turn = TURNS[min(prompt.count(TOOL), len(TURNS) - 1)]
    return turn.replace(OPENINGS[0], OPENINGS[seed // 31 % len(OPENINGS)])


def _reviews(asked: Mapping[str, Any]) -> str:
    """What a judge of reflections says; "" for whoever asks something else."""
    ids = dict.fromkeys(re.findall(r"review (\d+)\]", str(asked["messages"][-1]["content"])))
    listed = [
        {"id": name, "justification": "It names the step.", "diagnostic_accuracy": score,
         "specificity": score, "scope_and_balance": score}
        for name, score in zip(ids, (0.9, 0.5, 0.7, 0.3, 0.8, 0.4, 0.6, 0.2), strict=False)
    ]  # fmt: skip
    return json.dumps({"reviews": listed}) if listed else ""


@contextmanager
def serving(delay: float) -> Iterator[str]:
    """The address of a server in a process of its own, which ends in /v1."""
    with started("benchmarks.rounds_server", "--delay", delay) as (address,):
        yield f"{address}/v1"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--delay", type=float, default=1.0, help="seconds per reply")
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(serve_until_killed(TokenLoopback(options.delay, 1).serve))
