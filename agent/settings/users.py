"""The users that a server has beside its owner: named tokens, each with runs, memory and budgets.

    users.json      for each user the hash of the token and the budget; no token
    users/NAME~ID/  a data directory of their own: runs, threads, bank, uploads

A name that was removed and is given again is another user. A token is shown once, when it is made.
What a user spends in a day is told by their `ledger`; what runs in progress are granted counts as
spent.
"""

import hashlib
import hmac
import re
import secrets
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field, TypeAdapter

from rubricem.agent.models.limits import Payer
from rubricem.agent.settings import BUDGETS, Settings
from rubricem.agent.settings.door import budgets_of
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import folder_locked, value_in, write_atomically
from rubricem.memory.schema import Usage, Value
from rubricem.memory.text import digest_of

USERS_FILE, FOLDER = "users.json", "users"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")


@dataclass(frozen=True, slots=True)
class Outlay:
    """What was spent: on so many questions, tokens, and US dollars where their price is known."""

    runs: int
    tokens: int
    cost: float


@dataclass(slots=True)
class Granted:
    """What a run in progress may still spend."""

    tokens: int
    cost: float
    payer: Payer | None = None
    """whose account it is entered in as well"""

    def call(self, most: Usage) -> AbstractAsyncContextManager[None]:
        return self.payer.call(most) if self.payer else nullcontext()

    def pay(self, usage: Usage) -> None:
        self.tokens = max(0, self.tokens - usage.prompt_tokens - usage.completion_tokens)
        self.cost = max(0.0, self.cost - (usage.cost or 0.0))
        if self.payer:
            self.payer.pay(usage)


class UserBudget(Value):
    """What a user may spend; None: what the server's settings say, or no daily limit."""

    max_cost: float | None = Field(default=None, gt=0)
    """US dollars for one question, if a price is known"""
    max_total_tokens: int | None = Field(default=None, gt=0)
    """for one question"""
    max_seconds: float | None = Field(default=None, gt=0)
    """for one question"""
    day_cost: float | None = Field(default=None, gt=0)
    day_tokens: int | None = Field(default=None, gt=0)
    day_runs: int | None = Field(default=None, gt=0)

    def left(self, spent: Outlay, live: list[Granted]) -> dict[str, float | None]:
        """What is left of a day by its setting; None: no limit. SettingsError: nothing is left."""
        left: dict[str, float | None] = {
            "max_cost": _less(self.day_cost, spent.cost + sum(each.cost for each in live)),
            "max_total_tokens": _less(
                self.day_tokens, spent.tokens + sum(each.tokens for each in live)
            ),
        }
        if any(value is not None and value <= 0 for value in left.values()):
            raise _spent_up()
        return left

    def within(self, settings: Settings, spent: Outlay, live: list[Granted]) -> Settings:
        """The settings of a question within what the user may spend now; 0 among them: no limit.

        Raises SettingsError if nothing is left for today.
        """
        left = self.left(spent, live)
        if self.day_runs is not None and spent.runs >= self.day_runs:
            raise _spent_up()
        changed, asked = {}, budgets_of(settings)
        for each, name in BUDGETS.items():
            limits = [getattr(asked, each), getattr(self, name), left.get(name)]
            given = [limit for limit in limits if limit]
            changed[name] = min(given) if given else 0
        changed["max_total_tokens"] = int(changed["max_total_tokens"])
        return settings.model_copy(update=changed)


class User(Value):
    """A person with a token of their own."""

    token_hash: str
    """SHA-256: whoever reads the file does not get a token"""
    allowance: UserBudget = UserBudget()
    made_at: datetime

    id: str = ""
    """of this person's folder: whoever is given the same name later has another; "": of a user
    of an earlier version, whose folder has the name alone"""

    def derive(self, use: str) -> str:
        """What a browser stores for a use instead of the token."""
        return hmac.new(self.token_hash.encode(), use.encode(), hashlib.sha256).hexdigest()


class Users:
    """The users of one data directory; always includes changes by other processes."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def all(self) -> dict[str, User]:
        remedy = "Remove it, and give every user a token anew."
        return value_in(self._data_dir / USERS_FILE, dict[str, User], remedy) or {}

    def folder(self, name: str) -> Path:
        """The data directory of a user. Raises SettingsError if there is none of this name."""
        if (user := self.all().get(name)) is None:
            raise SettingsError(f"There is no user {name!r}.", "rubricem users lists them.")
        # No name has a tilde.
        return self._data_dir / FOLDER / (f"{name}~{user.id}" if user.id else name)

    def put(self, name: str, allowance: UserBudget) -> str:
        """Add a user, or give an existing one a new token; returns the token.

        An existing one keeps every limit that `allowance` leaves open.
        """
        if not _NAME.fullmatch(name):
            raise SettingsError(
                f"{name!r} cannot name a user.",
                "Use small letters, digits, dots, dashes and underscores, at most 32.",
            )
        token = secrets.token_urlsafe(32)
        with folder_locked(self._data_dir):
            known, identifier = self.all(), secrets.token_hex(4)
            if name in known:
                identifier = known[name].id
                given = allowance.model_dump(exclude_none=True)
                allowance = known[name].allowance.model_copy(update=given)
            made = User(
                token_hash=digest_of(token),
                allowance=allowance,
                made_at=datetime.now(UTC),
                id=identifier,
            )
            self._write({**known, name: made})
        return token

    def drop(self, name: str) -> Path:
        """Revoke a user's token; returns the folder of their data, which nobody opens any more."""
        with folder_locked(self._data_dir):
            folder, kept = self.folder(name), dict(self.all())
            del kept[name]
            self._write(kept)
        return folder

    def revoke(self) -> None:
        """Take everybody's token; who is added again keeps what is theirs."""
        none = {"token_hash": digest_of(secrets.token_urlsafe(32))}
        if known := self.all():
            self._write({name: user.model_copy(update=none) for name, user in known.items()})

    def by_token(self, token: str) -> str | None:
        """The name of this token's user."""
        given = digest_of(token)
        return next(
            (n for n, u in self.all().items() if hmac.compare_digest(u.token_hash, given)), None
        )

    def _write(self, users: dict[str, User]) -> None:
        told = TypeAdapter(dict[str, User]).dump_json(users)
        write_atomically(self._data_dir / USERS_FILE, told.decode())


def _spent_up() -> SettingsError:
    return SettingsError(
        "Your budget for a day is spent, or granted to runs in progress.",
        "Wait until they have ended or the day has passed, or ask whoever runs this server.",
    )


def _less(limit: float | None, spent: float) -> float | None:
    return None if limit is None else limit - spent
