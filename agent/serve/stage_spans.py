"""Which stage a piece of text belongs to, while it is still being written.

A model that decodes freely writes several stages in one turn, and the turn is told as the stage
that it began in. Its tags say where the next one begins.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agent.scaffold import STAGE_OF
from memory.schema import Stage

_OPENS = re.compile(r"<\s*(state_evaluation|review|answer)\s*>", re.I)
_MAY_OPEN = re.compile(r"<[^<>]{0,24}\Z")


@dataclass
class StageSpans:
    """Follows the text of one turn after the other."""

    turn: Stage | None = None
    within: Stage | None = None
    held: str = ""
    """the beginning of what may become a tag; it belongs to whatever that says"""

    def of(self, stage: Stage, text: str) -> list[tuple[Stage, str]]:
        """The parts of a piece, each with its stage; `stage` is the one that its turn began in."""
        if stage is not Stage.RESEARCH:
            return [*self.rest(), (stage, text)]
        if self.turn is None:
            self.turn = self.within = stage
        text, self.held = self.held + text, ""
        if (tag := _MAY_OPEN.search(text)) is not None:
            text, self.held = text[: tag.start()], tag[0]
        return list(self._parts(text))

    def rest(self) -> list[tuple[Stage, str]]:
        """What is held back, once the turn is at its end."""
        rest = [(self.within, self.held)] if self.within and self.held else []
        self.turn, self.within, self.held = None, None, ""
        return rest

    def _parts(self, text: str) -> Iterator[tuple[Stage, str]]:
        within, at = self.within or Stage.RESEARCH, 0
        for tag in _OPENS.finditer(text):
            if tag.start() > at:
                yield within, text[at : tag.start()]
            at, within = tag.start(), STAGE_OF[tag[1].lower()] or within
        self.within = within
        if text[at:]:
            yield within, text[at:]
