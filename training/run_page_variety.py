"""How the answers of a collected run differ within their groups, and what that is worth.

The best of n counts what sampling again would bring; the reward by place in the group tells
whether a rubric scaffold helped whoever saw it (RuscaRL, arXiv:2508.16949, section 5).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

from memory.errors import SettingsError
from memory.schema import Trajectory
from training.best_of import MeanBestOf, mean_best_of
from training.diversity import answers_of, words_apart
from training.groups import member_of
from training.run_page_rollouts import RolloutNumbers

MOST = 8
"""groups whose answers are compared word by word: the last ones, since it takes its time"""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the groups of a run under a scaffold; the first is shown the most."""

    place: int
    shown: float
    """criteria, on average"""
    reward: float | None
    """mean score of the answer; None: none has one"""


@dataclass
class RunVariety:
    """Filled group by group; each value is of all groups so far, or says of which."""

    scores: list[list[float]] = field(default_factory=list)
    """of the answers of each group, where they have one"""
    answers: deque[list[str]] = field(default_factory=lambda: deque(maxlen=MOST))
    places: dict[int, list[tuple[int, float | None]]] = field(default_factory=dict)
    """of each place in a group, criteria shown and the answer's score"""

    def add(self, trajectories: Sequence[Trajectory], rollouts: Sequence[RolloutNumbers]) -> None:
        """Count a group, whose numbers stand in the order of its trajectories."""
        self.scores.append([score for r in rollouts if (score := r.scores[-1]) is not None])
        if len(found := answers_of(trajectories)) > 1:
            self.answers.append(found)
        for r in rollouts:
            if (place := member_of(r.thread)) >= 0:
                self.places.setdefault(place, []).append((r.shown, r.scores[-1]))

    @property
    def best_of(self) -> MeanBestOf:
        """The expected answer score of the best of 1, 2, ... rollouts."""
        return mean_best_of(self.scores)

    @property
    def by_place(self) -> list[Place]:
        """Empty where no rollout was shown anything."""
        if not any(shown for found in self.places.values() for shown, _ in found):
            return []
        return [_place(place, found) for place, found in sorted(self.places.items())]

    @cached_property
    def words(self) -> tuple[float | None, str]:
        """1 - Self-BLEU, the mean over the last groups, or None and why it is not known."""
        try:
            apart = [value for group in self.answers if (value := words_apart(group)) is not None]
        except SettingsError as error:
            return None, f"{error} {error.remedy}"
        return (fmean(apart), "") if apart else (None, "no group has two answers")

    def told(self) -> list[str]:
        """Sentences for people; none of what there is nothing to say of."""
        lines = []
        if len(curve := self.best_of.scores) > 1:
            values = ", ".join(f"{n}: {value:.2f}" for n, value in enumerate(curve, 1))
            lines.append(f"best answer of n, in {self.best_of.groups} whole groups: {values}")
        apart, why = self.words
        if self.answers:
            known = f"{apart:.2f}" if apart is not None else f"not measured, {why}"
            lines.append(f"1 - Self-BLEU of the last {len(self.answers)} groups: {known}")
        for one in self.by_place:
            reward = "unscored" if one.reward is None else f"{one.reward:.2f}"
            lines.append(f"place {one.place}: {one.shown:.1f} criteria shown, answers {reward}")
        return lines

    def as_dict(self) -> dict[str, Any]:
        apart, why = self.words
        return {
            "best_of": list(self.best_of.scores),
            "best_of_groups": self.best_of.groups,
            "words_apart": apart,
            "words_apart_unknown": why,
            "by_place": [
                {"place": one.place, "shown": one.shown, "reward": one.reward}
                for one in self.by_place
            ],
        }


def _place(place: int, found: Sequence[tuple[int, float | None]]) -> Place:
    scores = [score for _, score in found if score is not None]
    return Place(place, fmean(shown for shown, _ in found), fmean(scores) if scores else None)
