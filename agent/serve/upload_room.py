"""Room for uploads on their way: what each of them may bring is reserved before it comes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent.serve.uploads import Uploads


class UploadRoom:
    """Shares out the bytes that uploads may still take; used on one event loop."""

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads
        self._reserved = 0
        self._sharing = asyncio.Lock()

    @asynccontextmanager
    async def reserved(self, most: int) -> AsyncIterator[int]:
        """So many bytes, or as many as are left, for as long as a request lasts."""
        async with self._sharing:
            # Read before the folders are: what is put into its place meanwhile counts twice then,
            # where it would not count at all the other way round.
            others = self._reserved
            share = min(most, max(await asyncio.to_thread(self._uploads.room) - others, 0))
            self._reserved += share
        try:
            yield share
        finally:
            self._reserved -= share
