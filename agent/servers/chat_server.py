"""The chat completions of a model server, asked for without what it refuses to be asked."""

from collections.abc import Sequence

from agent.servers.chat_delta import Delta, delta_of
from agent.servers.chat_request import Dialect
from agent.servers.event_stream import EventStream
from agent.servers.model_server import ModelServer, Refused
from agent.servers.retrying import AttemptError
from agent.servers.server_errors import Server
from memory.interfaces import Message, Sampling


class ChatServer(ModelServer):
    """One server as one chat model's client sees it."""

    def __init__(self, server: Server, dialect: Dialect) -> None:
        super().__init__(server)
        self._dialect = dialect

    async def open(self, messages: Sequence[Message], sampling: Sampling) -> EventStream:
        """The reply's stream."""
        while True:
            body = self._dialect.body(messages, sampling)
            try:
                return await self.begun("/chat/completions", body)
            except Refused as refused:
                if refused.status == 404:
                    raise self.server.no_model(await self._known_models()) from None
                if refused.status in (400, 422):
                    self._dialect.learn(body, refused.complaint)
                if self._dialect.body(messages, sampling) == body:
                    raise self.refused(refused) from None

    async def next(self, stream: EventStream) -> Delta | None:
        """The next event's delta, or None at the end of the stream."""
        event = await self.event(stream)
        try:
            return None if event is None else delta_of(event)
        except ValueError:
            raise self.server.garbled() from None

    async def _known_models(self) -> list[str]:
        try:
            return [str(model["id"]) for model in await self.models()]
        except AttemptError:
            return []
