"""The bank of a collecting run, which changes between its steps only."""

from collections.abc import Callable

from agent.banking import open_bank
from agent.events import Event
from agent.recalling import CHARACTERS, MORE_CHARACTERS, BankRecaller
from agent.researcher import Researcher
from agent.settings import Settings
from memory.bank import RubricBank
from memory.schema import Reflection


class StepMemory:
    """The bank as a step sees it: recalled from as it stood, put into at the step's end."""

    def __init__(
        self,
        bank: RubricBank,
        researcher: Researcher,
        listen: Callable[[Event], None],
        floor: float | None,
        *,
        put: bool,
    ) -> None:
        """`floor`: similarity below which nothing is recalled."""
        self.bank = bank
        """may be replaced by another one that is open on the same folder"""
        self._floor = floor
        self._researcher = researcher
        self._listen = listen
        self._put = put

    async def generation(self) -> int:
        return await self.bank.generation()

    def pin(self, generation: int, *, own: bool = True) -> None:
        small = self._researcher.policy.context_tokens is not None
        self._researcher.recaller = BankRecaller(
            self.bank,
            floor=self._floor,
            characters=CHARACTERS if small else MORE_CHARACTERS,
            generation=generation,
            own=own,
            listener=self._listen,
        )

    async def put(self, reflection: Reflection) -> bool:
        return await self.bank.put(reflection) if self._put else False


def step_memory(
    settings: Settings, researcher: Researcher, listen: Callable[[Event], None]
) -> StepMemory | None:
    """What `--memory` says: None where it is off."""
    if settings.memory == "off":
        return None
    bank = open_bank(settings, listen)
    return StepMemory(
        bank, researcher, listen, settings.similarity_floor, put=settings.memory == "on"
    )
