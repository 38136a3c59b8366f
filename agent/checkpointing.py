"""LangGraph's checkpoints in PostgreSQL, for positions that outlive this machine.

They hold where a run stands, not what it wrote: the transcript comes from the run's journal. The
extra `postgres` brings the driver.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from memory.errors import SettingsError, StoreError

if TYPE_CHECKING:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

SCHEMES = ("postgresql://", "postgres://")


@asynccontextmanager
async def open_saver(address: str) -> "AsyncIterator[AsyncPostgresSaver]":
    """A saver over the database at the address; its tables are made where they are missing.

    Raises SettingsError where the address or the driver will not do, StoreError where the
    database does not answer.
    """
    if not address.startswith(SCHEMES):
        raise SettingsError(
            "checkpoints names no PostgreSQL database.",
            "Write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE.",
        )
    try:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg import Error
    except ImportError as cause:
        raise SettingsError(
            "Checkpoints in PostgreSQL need the extra `postgres`.",
            'Install it: pip install "rubricem[postgres]"',
        ) from cause
    opening = AsyncPostgresSaver.from_conn_string(address)
    try:
        saver = await opening.__aenter__()
        await saver.setup()
    except Error as cause:
        # The driver's words may hold the address with its password.
        raise StoreError(
            f"the database of the checkpoints cannot be used ({type(cause).__name__}).",
            "See that it runs, that the address is right and that the user may create tables.",
        ) from cause
    try:
        yield saver
    finally:
        await opening.__aexit__(None, None, None)
