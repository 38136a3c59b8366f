"""verl's rollout servers behind our `TokenPolicy`, our judge for its rollouts, and its data set.

verl's client answers with whole pieces and knows no end but the model's own, so a turn is asked for
in pieces, the text read after each, and what was sampled beyond the end left out. Each piece
continues the same prefix, which the server has in its cache.

verl rewards each rollout alone, so nothing is there to contrast, and rubrics that a judge made for
one would not be those of the others of its question. Only questions with rubrics of their own are
scored; all rollouts of a question, on all machines, are then held to the same ones.

The data set: python -m rubricem.training.verl.policy QUESTIONS OUT.parquet
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from rubricem.agent.models.replies import PART, Piece, TokenReading
from rubricem.memory.errors import JudgeError, PolicyError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import (
    Completion,
    GroupJudge,
    Judgement,
    Message,
    OnText,
    Sampling,
    Stage,
    StopPredicate,
    Trajectory,
    TrajectoryGroup,
    Usage,
    without_criteria,
)
from rubricem.training.collect.questions import question_of, read_rows
from rubricem.training.rows.forms import write_verl
from rubricem.training.verl.codes import ABSENT, Told

PIECE = 128
"""tokens asked for at a time; fewer than these are sampled in vain at a turn's end"""
LOOK_BACK = 6
"""tokens before a new one that are decoded with it, since a character may need several"""


class Servers(Protocol):
    """What is used of verl's `LLMServerClient`."""

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Any: ...


class ServerPolicy:
    """One rollout's model: its calls go to the server that has its prefix cached."""

    def __init__(
        self, servers: Servers, tokenizer: Any, context_tokens: int, name: str, version: str
    ) -> None:
        """`tokenizer` is one of transformers, with a chat template."""
        self._servers, self._tokenizer = servers, tokenizer
        self._request = uuid4().hex
        self.context_tokens, self.name, self.version = context_tokens, name, version
        self.steps: list[int] = []
        """the trainer's step of the weights that each piece was sampled with, where it was told"""

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        chat = [{"role": message.role, "content": message.content} for message in messages]
        text = self._tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    async def encode(self, text: str) -> tuple[int, ...]:
        plain = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        return tuple(plain["input_ids"])

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        """Raises PolicyError where a server fails, or tells no log-probabilities."""
        reading, decoding = TokenReading(stop, on_text), _Decoding(self._tokenizer)
        sampled = 0
        while not reading.complete:
            room = min(PIECE, sampling.max_tokens - sampled)
            answer = await self._piece([*prefix, *reading.ids], sampling, room)
            ids, logprobs = list(answer.token_ids), list(answer.log_probs or ())
            sampled += len(ids)
            for piece in decoding.pieces(ids, logprobs):
                reading.take(piece)
                if reading.complete:
                    break
            if not reading.complete and (len(ids) < room or sampled >= sampling.max_tokens):
                reading.finish = "eos" if len(ids) < room else "length"
        return reading.completion(
            Usage(prompt_tokens=len(prefix), completion_tokens=sampled, cost=0.0, calls=1)
        )

    async def _piece(self, prompt: list[int], sampling: Sampling, room: int) -> Any:
        wanted = {
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


class _Decoding:
    """Tokens to pieces of text, each as soon as its characters are whole."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        ends = tokenizer.eos_token_id
        self._ends = set(ends) if isinstance(ends, list) else {ends}
        self._ids: list[int] = []
        self._shown = 0
        """tokens whose text was given"""

    def pieces(self, ids: Sequence[int], logprobs: Sequence[float]) -> Iterator[Piece]:
        """One for each token; the end of the turn is one without text or id."""
        for token, logprob in zip(ids, logprobs, strict=True):
            if token in self._ends:
                yield Piece(finish="eos")
                return
            yield Piece(text=self._next(token), ids=(token,), logprobs=(float(logprob),))

    def _next(self, token: int) -> str:
        self._ids.append(token)
        begin = max(0, self._shown - LOOK_BACK)
        before = self._decode(self._ids[begin : self._shown])
        now = self._decode(self._ids[begin:])
        if now.endswith(PART):
            return ""
        self._shown = len(self._ids)
        return now[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text


class RolloutScorer:
    """A judge with the rubrics of a data directory."""

    def __init__(self, judge: GroupJudge, buffers: BufferStore) -> None:
        self._judge, self._buffers = judge, buffers

    async def __call__(self, trajectory: Trajectory) -> Told:
        """The score of each stage by its name, as `training.verl.codes.told` has it.

        A judge that fails leaves stages unscored. Raises JudgeError where the question has no
        rubrics.
        """
        buffer = self._buffers.load(trajectory.question)
        if not any(buffer.persistent.values()):
            raise JudgeError(
                f"there are no rubrics for the question {trajectory.question!r}.",
                "Make them before the training: rubricem judge rubrics from-search QUESTION.",
            )
        group = TrajectoryGroup(question=trajectory.question, trajectories=(trajectory,))
        judged = await self._judge.judge(group, buffer)
        return told(judged.judgements[0])


def told(judgement: Judgement) -> Told:
    """What verl makes metrics of: it leaves out None, and would average any number in its place.

    Every rollout has the same names, as verl wants them.
    """
    absent = (stage.value for stage in Stage if without_criteria(judgement.at(stage)))
    scores: Told = {stage.value: judgement.score(stage) for stage in Stage}
    return scores | {ABSENT: ",".join(absent)}


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    count = write_verl(target, map(question_of, read_rows(str(source))))
    print(f"{count} questions: {target}")
