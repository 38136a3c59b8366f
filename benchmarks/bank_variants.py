"""Ways in which memory could work, to be tried one against another by `bank_effect`.

`product` is how it works; every other variant changes one thing of it, `any-takeaways` two.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from rubricem.agent.research.recall import Recall, Recaller
from rubricem.memory.schema import Reflection, Trajectory

_RUBRICS = re.compile(r"^Rubrics:\n.*?^(?=Takeaways:\n)", re.M | re.S)
_END = r"\n(?=\nA similar question: |</reference_examples>)"
_TAKEAWAYS = re.compile(rf"^Takeaways:\n.*?{_END}", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Variant:
    """One way; `left_out` is what is taken from the block that is put before a question."""

    flags: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """settings that differ"""
    left_out: re.Pattern[str] | None = None

    def shown(self, recaller: Recaller) -> Recaller:
        """What the run is to ask for its notes."""
        return recaller if self.left_out is None else Shortened(recaller, self.left_out)

    def lessons(self, reflection: Reflection) -> str:
        """What of a reflection is shown to a run."""
        rubrics = "" if self.left_out is _RUBRICS else reflection.rubrics
        takeaways = "" if self.left_out is _TAKEAWAYS else reflection.takeaways
        return f"{rubrics}\n{takeaways}".strip()


@dataclass(frozen=True, slots=True)
class Shortened:
    """A `Recaller` whose block lacks a part of each reflection."""

    recaller: Recaller
    left_out: re.Pattern[str]

    async def recall(self, question: str) -> Recall:
        found = await self.recaller.recall(question)
        return replace(found, block=self.left_out.sub("", found.block))

    async def used(self, trajectory: Trajectory) -> None:
        await self.recaller.used(trajectory)


VARIANTS = {
    "product": Variant(),
    "takeaways": Variant(left_out=_RUBRICS),
    "rubrics": Variant(left_out=_TAKEAWAYS),
    "any-score": Variant(flags={"least_reflection_score": 0.0}),
    "any-takeaways": Variant(flags={"least_reflection_score": 0.0}, left_out=_RUBRICS),
    "further": Variant(flags={"similarity_floor": 0.2}),
}
