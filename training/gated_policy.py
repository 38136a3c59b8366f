"""A policy whose calls pass the gate of a collecting run."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from agent.policy import BesidePolicy, Policy
from memory.interfaces import Completion, OnText, Sampling, StopPredicate
from memory.schema import Segment

T = TypeVar("T")


class Gate(Protocol):
    """Makes a call when it may begin; a run's `Flow`, or what asks for it from elsewhere."""

    async def call(
        self, server: str, make: Callable[[], Awaitable[T]], *, of_rollout: bool = False
    ) -> T: ...


class GatedPolicy(BesidePolicy):
    """A `Policy` that writes rollouts: each of its turns begins when the gate lets it."""

    def __init__(self, policy: Policy, gate: Gate) -> None:
        super().__init__(policy)
        self._gate = gate

    async def write(
        self,
        system: str,
        transcript: Sequence[Segment],
        sampling: Sampling,
        stop: StopPredicate | None,
        on_text: OnText | None,
    ) -> Completion:
        return await self._gate.call(
            self.name,
            lambda: self._policy.write(system, transcript, sampling, stop, on_text),
            of_rollout=True,
        )
