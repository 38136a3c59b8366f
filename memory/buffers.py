"""The rubric buffers on disk: one JSON file for each question, named by the question's hash.

A file is replaced whole, with the history of its rubrics in it. Raises StoreError for a file
that cannot be read or written, and for one that has meanwhile been changed by somebody else.
"""

import hashlib
from pathlib import Path

from pydantic import ValidationError

from memory.errors import StoreError
from memory.rubrics import RubricBuffer
from memory.runs import unusable, write_atomically


class BufferStore:
    """The buffers of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, question: str) -> Path:
        return self.folder / f"{hashlib.sha256(question.encode()).hexdigest()[:24]}.json"

    def load(self, question: str) -> RubricBuffer:
        """The question's buffer; an empty one of version 0 if there is none."""
        path = self.path(question)
        try:
            return RubricBuffer.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return RubricBuffer(question=question)
        except OSError as error:
            raise unusable(path, error) from error
        except ValidationError as error:
            raise StoreError(
                f"the rubrics in {path} cannot be read: {error.errors()[0]['msg']}",
                "Move that file away to begin with new rubrics; nothing was overwritten.",
            ) from error

    def save(self, buffer: RubricBuffer) -> None:
        """Replace the question's buffer; saving the same one again changes nothing."""
        stored = self.load(buffer.question)
        if stored == buffer:
            return
        if stored.version >= buffer.version:
            raise StoreError(
                f"the rubrics of this question are at version {stored.version} already",
                "They were changed meanwhile by another process: judge again.",
            )
        write_atomically(self.path(buffer.question), buffer.model_dump_json(indent=1))
