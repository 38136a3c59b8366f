"""The token of a server that others can reach: made once, kept for its owner alone."""

import os
import secrets
from pathlib import Path

from memory.errors import StoreError
from memory.runs import unusable

FILE_NAME = "serve-token"
BYTES = 32


def kept_token(data_dir: Path) -> tuple[str, bool]:
    """The token of a data directory, and whether it was made now.

    Raises StoreError where its file cannot be used, or can be read by others.
    """
    path = data_dir / FILE_NAME
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        if path.exists():
            return _read(path), False
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        token = secrets.token_urlsafe(BYTES)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
        return token, True
    except StoreError:
        raise
    except OSError as error:
        raise unusable(path, error) from error


def _read(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise StoreError(
            f"the token in {path} can be read by others",
            "Remove the file; a new one is made when the server starts.",
        )
    token = path.read_text(encoding="ascii", errors="replace").strip()
    if len(token) < BYTES:
        raise StoreError(
            f"{path} holds no token", "Remove it; a new one is made when the server starts."
        )
    return token
