"""The rejection rules that imitation goes by: the first four always, the others where named.

One choice for every form in which accepted trajectories are imitated: as rows by this trainer, as
rows and as conversations by another one.
"""

from collections.abc import Callable, Collection

from agent.reading import Cite
from agent.rejection import Rejection, Rule, rejected
from agent.verifying.lexical import lexical_finding
from agent.verifying.pairs import Pair
from memory.errors import SettingsError
from memory.schema import Trajectory

Broken = Callable[[Trajectory], Rejection | None]
"""the rejection rule that a trajectory breaks, if any"""
SWITCHED = (Rule.CITATION, Rule.SUPPORT)
"""the rules that are off until they are named"""


def breaking(rules: Collection[Rule]) -> Broken:
    """The first four rules, and those named of `SWITCHED`."""

    def first(trajectory: Trajectory) -> Rejection | None:
        return rejected(
            trajectory,
            citations=Rule.CITATION in rules,
            supported=_supported(trajectory) if Rule.SUPPORT in rules else None,
        )

    return first


def rules_named(names: object) -> frozenset[Rule]:
    """The rules of a configuration's list. Raises SettingsError for any other name."""
    if not isinstance(names, list) or not set(map(str, names)) <= set(SWITCHED):
        raise SettingsError(
            f"There are no rejection rules {names!r} to switch on.",
            f"Give a list of {', '.join(SWITCHED)}; the first four always hold.",
        )
    return frozenset(map(Rule, names))


def _supported(trajectory: Trajectory) -> Callable[[Cite], bool]:
    """Whether a passage that a cite names holds its claim, by the lexical rules."""
    known = {source.id: source for source in trajectory.sources}

    def held(cite: Cite) -> bool:
        named = [known[name] for name in cite.ids if name in known]
        pairs = (Pair(cite.claim, s, tuple(o for o in named if o is not s)) for s in named)
        return any(lexical_finding(pair).verdict == "supported" for pair in pairs)

    return held
