"""Foreign bytes are parsed here, in processes that can be killed: `pool` is the interface."""

from rubricem.memory.errors import SourceError


class NoText(SourceError):
    """A page of HTML has no text; a script may draw it."""
