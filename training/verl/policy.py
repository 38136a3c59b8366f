"""verl's rollout servers behind our `TokenPolicy`, our judge for its rollouts, and its data set.

verl's client returns whole pieces and knows no end but the model's own, so a turn is requested in
pieces, the text is read after each, and tokens sampled beyond the end are dropped. Each piece
continues the same prefix, which the server has in its cache.

The data set: python -m rubricem.training.verl.policy QUESTIONS OUT.parquet [--batch 32 --windows 3]
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from tokenizers.decoders import DecodeStream

from rubricem.agent.models.replies import Piece, TokenReading
from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.memory.schema import Completion, Message, OnText, Sampling, StopPredicate, Usage
from rubricem.memory.text import seed_of
from rubricem.training.collect.questions import select_questions
from rubricem.training.rows.forms import write_verl
from rubricem.training.rows.sequences import FolderTokeniser

PIECE = 128
"""tokens requested at a time; fewer than these are wasted at a turn's end"""


class ServerPolicy:
    """One rollout's model: its calls go to the server that has its prefix cached."""

    def __init__(
        self, servers: Any, tokenizer: Any, context_tokens: int, name: str, version: str, *,
        seeded: bool = False,
    ) -> None:  # fmt: skip
        """`servers`: verl's `LLMServerClient`; `tokenizer`: of transformers, of the folder `name`.

        `seeded`: the servers take a seed for each call, as vLLM does under this name.
        """
        self._servers, self._tokenizer = servers, FolderTokeniser(Path(name), tokenizer)
        self._request, self._seeded = uuid4().hex, seeded
        self.context_tokens, self.name, self.version = context_tokens, name, version
        self.steps: list[int] = []
        """the trainer's step of the weights for each sampled piece, if it was given"""

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        # In no thread, since all rollouts of a worker share a tokenizer that is safe in one alone.
        return self._tokenizer.prompt(messages)

    async def encode(self, text: str) -> tuple[int, ...]:
        return self._tokenizer.ids(text)

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        """Raises PolicyError if a server fails, or returns no log-probabilities."""
        reading, stream = TokenReading(stop, on_text), DecodeStream(skip_special_tokens=False)
        sampled = 0
        while not reading.complete:
            room = min(PIECE, sampling.max_tokens - sampled)
            answer = await self._piece([*prefix, *reading.ids], sampling, room, sampled)
            ids, logprobs = list(answer.token_ids), list(answer.log_probs or ())
            sampled += len(ids)
            for piece in _pieces(self._tokenizer.tokenizer, stream, ids, logprobs):
                reading.take(piece)
                if reading.complete:
                    break
            if not reading.complete and (len(ids) < room or sampled >= sampling.max_tokens):
                reading.finish = "eos" if len(ids) < room else "length"
        return reading.completion(
            Usage(prompt_tokens=len(prefix), completion_tokens=sampled, cost=0.0, calls=1)
        )

    async def _piece(self, prompt: list[int], sampling: Sampling, room: int, at: int) -> Any:
        """`at`: tokens of the turn before it; with one seed all pieces would be drawn alike."""
        seed = {"seed": seed_of(sampling.seed, at)} if self._seeded else {}
        wanted = {
            **seed,
            "max_tokens": room,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": -1,
            "logprobs": True,
        }
        try:
            answer = await self._servers.generate(
                self._request, prompt_ids=prompt, sampling_params=wanted
            )
        except Exception as cause:  # whatever Ray brings from another process
            told = f"{type(cause).__name__}: {cause}"
            raise PolicyError(f"the rollout server failed: {told}") from cause
        if answer.stop_reason == "aborted":
            raise PolicyError("the rollout server broke a reply off to take over new weights.")
        if len(answer.log_probs or ()) != len(answer.token_ids):
            raise PolicyError(
                "the rollout server told no log-probabilities.",
                "Set actor_rollout_ref.rollout.calculate_log_probs=True.",
            )
        if (step := answer.extra_fields.get("global_steps")) is not None:
            self.steps.append(int(step))
        return answer


def _pieces(
    tokenizer: Any, stream: DecodeStream, ids: Sequence[int], logprobs: Sequence[float]
) -> Iterator[Piece]:
    """A piece for each token, its text with the token that completes a character.

    The end of the turn is one without text or id.
    """
    ends = tokenizer.eos_token_id
    for token, logprob in zip(ids, logprobs, strict=True):
        if token in (ends if isinstance(ends, list) else [ends]):
            yield Piece(finish="eos")
            return
        text = stream.step(tokenizer.backend_tokenizer, token) or ""
        yield Piece(text=text, ids=(token,), logprobs=(float(logprob),))


def write_questions() -> None:
    """Write the questions of a file that the command line names as verl reads them."""
    parser = argparse.ArgumentParser(description="Write questions as verl reads them.")
    parser.add_argument("questions", type=Path, help="a file, as `rubricem collect` takes it")
    parser.add_argument("target", type=Path, help="the .parquet file to write")
    parser.add_argument("--batch", type=int, default=0, help="questions of a step, for --windows")
    parser.add_argument("--windows", type=int, default=0, help="steps after which they come again")
    parser.add_argument("--held-out", action="store_true", help="they are never learnt from")
    told = parser.parse_args()
    try:
        found = select_questions(told.questions).questions
        count = write_verl(
            told.target, found, size=told.batch, windows=told.windows, held_out=told.held_out
        )
    except SettingsError as error:
        parser.exit(2, f"error: {error}\n{error.remedy}\n")
    print(f"{count} questions: {told.target}")


if __name__ == "__main__":
    write_questions()
