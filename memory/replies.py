"""Replies of models on disk, each under the hash of all that it was a reply to.

One small file a reply, so that several processes can share a folder; a file that cannot be read
counts as not there. What a folder holds may be deleted at any time.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory.runs import unusable, write_atomically


class ReplyStore:
    """The replies of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, asked: Any) -> Path:
        """Where the reply to a JSON value lies: two of them share a file only if they are equal."""
        text = json.dumps(asked, ensure_ascii=True, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()
        return self.folder / name[:2] / f"{name[2:]}.json"

    def load(self, asked: Any) -> dict[str, Any] | None:
        """The reply kept for this, or None."""
        try:
            value = json.loads(self.path(asked).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def save(self, asked: Any, reply: Mapping[str, Any]) -> None:
        """Keep a reply; raises StoreError if it cannot be written."""
        write_atomically(self.path(asked), json.dumps(dict(reply), ensure_ascii=True))

    def forget(self, asked: Any) -> None:
        path = self.path(asked)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise unusable(path, error) from error
