"""Transcripts as token sequences: token in, token out, never rendered again.

A sequence is the ids of all kept segments one after another, exactly as the policy read and
wrote them. A transcript from a chat-only server has no ids; `retokenised` gives it those of a
tokeniser and marks it, so that no policy-gradient ratio is ever formed of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from memory.interfaces import Message
from memory.schema import Author, Segment, Stage, Trajectory

STAGES = tuple(Stage)
NO_STAGE = -1


class Tokeniser(Protocol):
    """The half of a `TokenPolicy` that turns text into its ids."""

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]: ...
    async def encode(self, text: str) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """The tokens of a transcript; every list has one entry per token."""

    ids: tuple[int, ...]
    written: tuple[bool, ...]
    """whether the policy wrote it"""
    logprobs: tuple[float, ...]
    """of the sampler; 0 for what it did not write, and where it is not known"""
    stages: tuple[int, ...]
    """0 to 3 as in `Stage`, -1 for none"""
    sampled: bool
    """the policy wrote exactly these ids, and its log-probability of each is known"""


def stage_number(stage: Stage | None) -> int:
    return NO_STAGE if stage is None else STAGES.index(stage)


def token_sequence(segments: Sequence[Segment]) -> TokenSequence | None:
    """The kept segments as one sequence; None where one of them has no ids."""
    ids: list[int] = []
    written: list[bool] = []
    logprobs: list[float] = []
    stages: list[int] = []
    sampled = True
    for segment in (s for s in segments if s.kept):
        if segment.token_ids is None:
            return None
        count, policy = len(segment.token_ids), segment.author is Author.POLICY
        known = policy and segment.logprobs is not None
        sampled &= not policy or (known and not segment.retokenised)
        ids += segment.token_ids
        written += [policy] * count
        logprobs += segment.logprobs if known and segment.logprobs else [0.0] * count
        stages += [stage_number(segment.stage)] * count
    return TokenSequence(tuple(ids), tuple(written), tuple(logprobs), tuple(stages), sampled)


async def retokenised(trajectory: Trajectory, tokeniser: Tokeniser) -> Trajectory:
    """The trajectory with ids of a tokeniser's own, as one growing turn after the chat prompt."""
    segments = []
    for segment in trajectory.segments:
        if segment.stage is None:
            prompt = [Message("system", trajectory.system), Message("user", segment.text)]
            ids = await tokeniser.render(prompt)
        else:
            ids = await tokeniser.encode(segment.text)
        policy = segment.author is Author.POLICY
        new = {"token_ids": ids, "logprobs": None, "retokenised": policy}
        segments.append(segment.model_copy(update=new))
    return trajectory.model_copy(update={"segments": tuple(segments)})
