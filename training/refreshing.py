"""A server that is given each new checkpoint by a command of the user's own."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from memory.errors import PolicyError

PLACE = "{checkpoint}"


async def refreshed(command: Sequence[str], checkpoint: Path, table: str) -> str:
    """Run the command, the checkpoint's folder in its place; returns the last line it prints.

    That is the model to ask the server for, or nothing where it stays the same. `table` is where
    the command was set. Raises PolicyError where it fails.
    """
    parts = [part.replace(PLACE, str(checkpoint)) for part in command]
    try:
        process = await asyncio.create_subprocess_exec(
            *parts,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise _not_refreshed(f"{error.strerror}: {parts[0]}", table) from error
    try:
        said, wrong = await process.communicate()
    finally:
        if process.returncode is None:  # cancelled: what is still loaded now would come too late
            process.kill()
            await process.wait()
    if process.returncode:
        raise _not_refreshed(wrong.decode(errors="replace").strip()[-200:], table)
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _not_refreshed(reason: str, table: str) -> PolicyError:
    return PolicyError(
        f"The server was not given the checkpoint: {reason}",
        f"Correct `refresh` under {table}; the same command goes on.",
    )
