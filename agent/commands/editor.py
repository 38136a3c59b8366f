"""The editor of whoever sits at the terminal: `$VISUAL`, `$EDITOR` or `vi`."""

import asyncio
import os
import shlex
import shutil
from pathlib import Path


async def edited_in_place(path: Path) -> str:
    """Open the file and wait for the editor's end; what went wrong in a sentence, or ""."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or shutil.which("vi")
    if not editor:
        return "There is no editor: set EDITOR."
    try:
        command = [*shlex.split(editor), str(path)]
        process = await asyncio.create_subprocess_exec(*command)
    except ValueError as error:
        return f"EDITOR cannot be read as a command: {error}."
    except OSError as error:
        return f"{command[0]} cannot be started: {error.strerror}."
    status = await process.wait()
    return f"{command[0]} ended with status {status}." if status else ""
