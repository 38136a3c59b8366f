"""A vLLM that spells: one token a character, texts by script; it can be made to lie.

    with spelling(script) as server: ...  # a `RecordedServer`

The script is given all that was asked so far as text and the request; prompts are decoded from
the ids that come in.
"""

from collections.abc import Callable

from tests.recorded_server import Events, Json, RecordedServer

END = 0x10FFFF
"""the id of the end of a turn"""
Script = Callable[[str, Json], str]


def spelled(text: str) -> list[int]:
    return [ord(character) for character in text]


def read(ids: list[int]) -> str:
    return "".join(map(chr, ids))


def rendered(messages: list[Json]) -> str:
    return "".join(f"[{m['role']}] {m['content']}\n" for m in messages) + "[assistant] "


def spelling(script: Script, lie: int = 0, logprob: float | None = -0.5) -> RecordedServer:
    """`lie` is added to every id that is given back; a None stands for no log-probability."""

    def tokenised(asked: Json) -> Json:
        text = rendered(asked["messages"]) if "messages" in asked else asked["prompt"]
        return {"tokens": spelled(text), "count": len(text), "max_model_len": 65_536}

    def completion(asked: Json) -> Events:
        text = script(read(asked["prompt"]), asked)
        pieces = [text[at : at + 40] for at in range(0, len(text), 40)]
        return Events([*(_event(p, spelled(p), None) for p in pieces), _event("", [END], "stop")])

    def _event(text: str, ids: list[int], finish: str | None) -> Json:
        told = {"tokens": [*text] or ["<|end|>"], "token_logprobs": [logprob] * len(ids)}
        own = [one + lie if one != END else one for one in ids]
        choice = {"text": text, "token_ids": own, "logprobs": told, "finish_reason": finish}
        return {"choices": [choice]}

    listed = {"id": "speller", "owned_by": "vllm", "root": "org/speller", "max_model_len": 65_536}
    return RecordedServer(
        {
            "GET /v1/models": {"object": "list", "data": [listed]},
            "POST /tokenize": tokenised,
            "POST /detokenize": lambda asked: {"prompt": read(asked["tokens"])},
            "POST /v1/completions": completion,
        }
    )
