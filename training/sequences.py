"""Transcripts as token sequences: token in, token out, never rendered again.

A sequence is the ids of all kept segments one after another, exactly as the policy read and
wrote them. A transcript from a chat-only server has no ids; `retokenised` gives it those of a
tokeniser and marks it, so that no policy-gradient ratio is ever formed of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
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
    prompt: int
    """how many of them, at the beginning, are the prompt"""
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
        known = policy and segment.logprobs is not None and all(map(isfinite, segment.logprobs))
        sampled &= not policy or (known and not segment.retokenised)
        ids += segment.token_ids
        written += [policy] * count
        logprobs += segment.logprobs if known and segment.logprobs else [0.0] * count
        stages += [stage_number(segment.stage)] * count
    prompt = len(segments[0].token_ids or ()) if segments else 0
    return TokenSequence(
        tuple(ids), tuple(written), tuple(logprobs), tuple(stages), prompt, sampled
    )


def without_scaffold(trajectory: Trajectory) -> Trajectory:
    """The same words after the prompt that has no scaffold in it, as training continues it.

    Its log-probabilities are still those under the scaffold.
    """
    scaffold = trajectory.scaffold
    if scaffold is None:
        return trajectory
    prompt = trajectory.segments[0].model_copy(update={"token_ids": scaffold.bare_ids})
    return trajectory.model_copy(
        update={
            "system": trajectory.system.removesuffix(scaffold.text),
            "segments": (prompt, *trajectory.segments[1:]),
            "scaffold": None,
        }
    )


async def retokenised(trajectory: Trajectory, tokeniser: Tokeniser) -> Trajectory:
    """The trajectory with ids of a tokeniser's own, as one growing turn after the chat prompt.

    A scaffold is left out of the prompt.
    """
    trajectory = without_scaffold(trajectory)
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
