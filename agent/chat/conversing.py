"""A person's place in a thread of questions: what is asked, gone on with, branched, counted.

Knows nothing of a terminal. A run is written down and put into its thread before any work is
done for it, so that whatever ends the process, the question is there when the thread is opened
again.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.asking import Ask
from agent.clients import budgets_of, template_of
from agent.conversations.store import Conversation, ConversationStore
from agent.events import Listener
from agent.person import Person
from agent.researcher import Researcher, ask_of, new_thread, request_of
from agent.settings import Settings, load_settings
from memory.errors import RubricemError, SettingsError
from memory.schema import NO_USAGE, Status, Trajectory, Usage

_OVER = (Status.FINISHED, Status.NO_EVIDENCE)


@dataclass
class Watch:
    """Who follows a run: shown what happens, able to stop it, and asked where it asks."""

    listener: Listener
    stop: asyncio.Event
    person: Person


@dataclass
class Conversing:
    """One thread being talked in; None: the next question begins one."""

    researcher: Researcher
    settings: Settings
    flags: dict[str, Any]
    """what the settings were loaded with, so that one of them can be changed"""
    conversations: ConversationStore
    thread: Conversation | None = None
    last: Trajectory | None = None
    """the answer that is talked of: of the latest run here that ended"""
    spent: Usage = NO_USAGE
    """by the thread's runs"""
    _usages: dict[str, Usage] = field(default_factory=dict)

    async def ask(self, question: str, watch: Watch) -> Trajectory:
        """Ask the next question of the thread."""
        run, earlier = new_thread(), self.thread.runs if self.thread else ()
        ask = replace(
            template_of(self.settings),
            question=question,
            budgets=budgets_of(self.settings),
            earlier=earlier,
        )
        await asyncio.to_thread(self._write_down, run, request_of(ask, self.researcher.choices))
        return await self._run(run, ask, watch)

    async def go_on(self, run: str, watch: Watch) -> Trajectory:
        """Go on with a run that ended early or was broken off, under the budgets in force."""
        request = await asyncio.to_thread(self.researcher.store.request, run)
        ask = replace(ask_of(request), budgets=budgets_of(self.settings))
        return await self._run(run, ask, watch)

    async def open(self, identifier: str) -> tuple[str, ...]:
        """Go into a thread; sentences on runs of it that cannot be read."""
        thread = await asyncio.to_thread(self.conversations.get, identifier)
        self.leave()
        self.thread = thread
        return await asyncio.to_thread(self._read)

    def leave(self) -> None:
        """The next question begins a thread of its own."""
        self.thread, self.last, self.spent, self._usages = None, None, NO_USAGE, {}

    async def branch(self, number: int | None) -> Conversation:
        """Go on from a question, the latest without a number, in a thread of its own."""
        runs = self.thread.runs if self.thread else ()
        if self.thread is None or not runs:
            raise SettingsError("There is nothing to branch off yet.", "Ask a question first.")
        if number is not None and not 1 <= number <= len(runs):
            raise SettingsError(
                f"There is no question {number} in this thread.",
                f"It has {len(runs)}: give a number from 1 to {len(runs)}.",
            )
        run = runs[(number or len(runs)) - 1]
        branch = await asyncio.to_thread(self.conversations.branch, self.thread.id, run)
        await self.open(branch.id)
        return branch

    def unfinished(self) -> str | None:
        """The latest run of the thread that has not come to its end."""
        store = self.researcher.store
        for run in reversed(self.thread.runs if self.thread else ()):
            try:
                if not store.ended(run) or store.load(run).status not in _OVER:
                    return run
            except RubricemError:
                return run
        return None

    def change(self, **values: Any) -> None:
        """Change settings from the next question on. Raises SettingsError for what cannot be."""
        settings = load_settings({**self.flags, **values})
        self.flags.update(values)
        # What was settled when the researcher was opened stays.
        self.settings = self.settings.model_copy(
            update={name: getattr(settings, name) for name in values}
        )

    def questions(self) -> list[tuple[str, str]]:
        """Each question of the thread, and how its run ended."""
        return [self._told(run) for run in (self.thread.runs if self.thread else ())]

    def title(self, thread: Conversation) -> str:
        """What a thread is about: its title, or its first question."""
        if thread.title or not thread.runs:
            return thread.title or "(no question yet)"
        return self._told(thread.runs[0])[0]

    async def _run(self, run: str, ask: Ask, watch: Watch) -> Trajectory:
        ended = await self.researcher.ask(ask, run, watch.listener, watch.stop, watch.person)
        self._count(ended)
        self.last = ended
        return ended

    def _write_down(self, run: str, request: Mapping[str, Any]) -> None:
        self.researcher.store.create(run, request)
        try:
            thread = self.thread or self.conversations.create()
            self.thread = self.conversations.add_run(thread.id, run)
        except RubricemError:
            # Its thread was deleted elsewhere: the question would wait and never begin.
            self.researcher.store.discard(run)
            raise

    def _read(self) -> tuple[str, ...]:
        """Take up the thread's ended runs."""
        problems = []
        for run in self.thread.runs if self.thread else ():
            try:
                if self.researcher.store.ended(run):
                    self.last = self.researcher.store.load(run)
                    self._count(self.last)
            except RubricemError as error:
                problems.append(f"{error} {error.remedy}".strip())
        return tuple(problems)

    def _count(self, ended: Trajectory) -> None:
        # A run that went on counts once, with all that it took.
        self._usages[ended.thread] = ended.usage
        self.spent = sum(self._usages.values(), NO_USAGE)

    def _told(self, run: str) -> tuple[str, str]:
        store = self.researcher.store
        try:
            question = str(store.request(run)["ask"]["question"])
            if store.running(run):
                return question, "running"
            return question, store.load(run).status.value if store.ended(run) else "interrupted"
        except (RubricemError, KeyError, TypeError):
            return run, "unreadable"
