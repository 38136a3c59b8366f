"""A policy whose calls pass the gate of a collecting run."""

from collections.abc import Sequence

from agent.policy import Ids, Policy
from memory.interfaces import Completion, OnText, Sampling, StopPredicate
from memory.schema import Segment
from training.flow import Flow


class GatedPolicy:
    """A `Policy` that writes rollouts: each of its turns begins when the flow lets it."""

    def __init__(self, policy: Policy, flow: Flow) -> None:
        self._policy = policy
        self._flow = flow
        self.name, self.version = policy.name, policy.version
        self.retokenised, self.context_tokens = policy.retokenised, policy.context_tokens

    async def open(self, system: str, question: str) -> Ids:
        return await self._policy.open(system, question)

    async def encode(self, text: str) -> Ids:
        return await self._policy.encode(text)

    async def write(
        self,
        system: str,
        transcript: Sequence[Segment],
        sampling: Sampling,
        stop: StopPredicate | None,
        on_text: OnText | None,
    ) -> Completion:
        return await self._flow.call(
            self.name,
            lambda: self._policy.write(system, transcript, sampling, stop, on_text),
            of_rollout=True,
        )
