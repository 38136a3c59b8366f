"""Merging another bank's reflections into a bank.

For one question the pinned one wins, else the higher reflection score, else the later one; the
loser goes to the history. One that stands in quarantine meets nobody: it waits there. What a
person removed from the bank stays away, unless it is asked for.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from memory.bank_events import Put, line_of, question_key
from memory.bank_rules import standing
from memory.bank_store import BankStore
from memory.items import Imported
from memory.reflections import Reflection

_BATCH = 256
"""reflections that are brought in with one fsync"""


def bring_in(store: BankStore, reflections: Iterable[Reflection], removed: bool) -> Imported:
    """Put each where the rule says; blocking. `removed`: also what was removed, under new ids."""
    outcomes: Counter[str] = Counter()
    waiting = iter(reflections)
    while batch := list(islice(waiting, _BATCH)):
        for group in _on_different_questions(batch):
            outcomes.update(_put(store, group, removed))
    return Imported(**outcomes)


def _on_different_questions(batch: Iterable[Reflection]) -> Iterator[list[Reflection]]:
    """Stretches of the batch in which no reflection meets another one."""
    group: dict[str, Reflection] = {}
    for reflection in batch:
        key = question_key(reflection.question)
        if key in group or any(reflection.id == other.id for other in group.values()):
            yield list(group.values())
            group = {}
        group[key] = reflection
    if group:
        yield list(group.values())


def _put(store: BankStore, group: Iterable[Reflection], removed: bool) -> list[str]:
    """What became of each of them, in the names of `Imported`."""
    block, outcomes = b"", []
    with store.lock, store.journal.locked() as descriptor:
        for reflection in group:
            outcome, put = _decided(store, reflection, removed)
            outcomes.append(outcome)
            block += line_of(put) if put else b""
        if block:
            store.journal.append(descriptor, block)
    return outcomes


def _decided(store: BankStore, reflection: Reflection, removed: bool) -> tuple[str, Put | None]:
    identifier = reflection.id
    while (known := store.catalogue.by_id(identifier)) is not None:
        if not known.removed:
            return "kept", None
        if not removed:
            return "removed", None
        identifier = hashlib.sha256(f"{identifier} again".encode()).hexdigest()[:12]
    told = {"id": identifier, "origin": "import", "replaces": ""}
    new = reflection.model_copy(update=told)
    if new.flags:
        return "quarantined", Put(reflection=new)
    held = standing(store.catalogue.by_key(question_key(new.question)))
    own = store.read(held) if held else None
    if held is None or own is None:
        return "added", Put(reflection=new)
    # What a person disabled is no better than anything else.
    if held.pinned or (not held.disabled and _rank(own) >= _rank(new)):
        return "kept", Put(reflection=new, history=True)
    return "replaced", Put(reflection=new)


def _rank(reflection: Reflection) -> tuple[float, float]:
    return reflection.score, reflection.written_at.timestamp()
