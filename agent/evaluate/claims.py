"""How well a checker separates supported claims from others, on claims labelled by people.

Readable data are WiCE (arXiv:2303.01432), whose claims are paired with sentences of the page that
they cite, AttributionBench (arXiv:2402.15089) and lines of our own: `claim`, `evidence` (a text or
a list) and `label`. There are two classes: supported, and everything else, including partially
supported claims, as LLM-AggreFact (arXiv:2404.10774) counts WiCE. The figure is balanced accuracy,
the mean of the shares of both classes that were classified correctly; chance is 0.5. Its 95%
interval is from a bootstrap within each class.

The checkers are the verifier's own (the lexical rules alone, an embedded model with them, a
server's model) and published classifiers. All but a server's give a score, which needs a threshold:
the product's is fixed; in addition the best one is found on one half of the claims, split by a hash
of their ids, and reported on the other.
"""

import asyncio
import hashlib
import random
import re
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError, field_validator

from rubricem.agent.evaluate.experiment import EvalFolder
from rubricem.agent.evaluate.questions import rows_of
from rubricem.agent.models.opening import PolicyChoice
from rubricem.agent.reports.entailment import EntailmentChoice
from rubricem.agent.reports.rules import NAME, Checker, LexicalChecker, Pair
from rubricem.agent.reports.verifier import ChatChecker, ChoiceChecker
from rubricem.memory.asking import first_fault
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.schema import CitationSupport, LocalModel, Source, Value
from rubricem.memory.text import digest_of

TITLE = "(meta data) TITLE: "
"""in WiCE, what precedes the title among a page's sentences"""
_MARK = re.compile(r"\s?\[\d+\](?=[\s.,;:]|$)")
"""a citation, which AttributionBench leaves in its claims; it is not part of the claim"""
DRAWS = 2000
RIGHT_LABELS = ("supported", "attributable", "true", "yes", "1")
WRONG_LABELS = ("partially_supported", "not_supported", "not attributable", "partial",
                "unsupported", "false", "no", "0")  # fmt: skip
_LINE = 'Write lines such as {"claim": "...", "evidence": "...", "label": "supported"}.'


class LabelledClaim(Value):
    """One claim, the text that it cites, and whether people found it fully supported."""

    id: str
    claim: str
    title: str = ""
    text: str
    supported: bool
    label: str
    """as published"""

    def pair(self) -> Pair:
        source = Source(id="S1", title=self.title, location=self.id, text=self.text,
                        tool="claims", query="")  # fmt: skip
        return Pair(self.claim, source)

    @property
    def tuned_on(self) -> bool:
        """Whether it is in the half on which a threshold may be tuned."""
        return hashlib.sha256(self.id.encode()).digest()[0] % 2 == 0


class ClaimLine(BaseModel, coerce_numbers_to_str=True):
    """A line of WiCE, of AttributionBench or of our own."""

    claim: str
    evidence: list[str]
    label: str
    id: str = ""

    @field_validator("label", mode="before")
    @classmethod
    def _lower(cls, label: Any) -> str:
        said = str(label).strip().lower()
        if said not in RIGHT_LABELS + WRONG_LABELS:
            raise ValueError(f"the label {label!r} is none of {', '.join(RIGHT_LABELS[:1])}, "
                             f"{', '.join(WRONG_LABELS[:3])}, true, false")  # fmt: skip
        return said

    @classmethod
    def of(cls, row: Any) -> "ClaimLine":
        """The row of any format; raises ValueError or ValidationError if it has none."""
        if not isinstance(row, dict):
            raise ValueError("it is no JSON object")
        evidence = row.get("evidence", row.get("references"))
        return cls.model_validate({
            "claim": _MARK.sub("", said) if isinstance(said := row.get("claim"), str) else said,
            "evidence": [evidence] if isinstance(evidence, str) else evidence,
            "label": row.get("label", row.get("attribution_label")),
            "id": row.get("id", (row.get("meta") or {}).get("id", "")),
        })  # fmt: skip

    def build(self) -> LabelledClaim:
        first, *rest = self.evidence or [""]
        title = first.removeprefix(TITLE) if first.startswith(TITLE) else ""
        text = "\n".join(rest if title else self.evidence)
        identifier = self.id or digest_of(f"{self.claim}\0{text}", 12)
        return LabelledClaim(
            id=identifier,
            claim=self.claim,
            title=title,
            text=text,
            supported=self.label in RIGHT_LABELS,
            label=self.label,
        )


class ClaimRow(Value):
    """A checker's result for one claim."""

    id: str
    verdict: CitationSupport
    score: float | None = None
    """probability of support; None if the checker gives only verdicts"""
    reason: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> str:
        return self.id


@asynccontextmanager
async def open_checker(choice: PolicyChoice | EntailmentChoice | None) -> AsyncIterator[Checker]:
    """The checker: the rules if no model is named."""
    if isinstance(choice, EntailmentChoice):
        async with choice.open() as checker:
            yield checker
        return
    async with choice.open_judge() if choice else nullcontext() as model:
        if isinstance(model, LocalModel):
            yield ChoiceChecker(model)
        else:
            yield LexicalChecker() if model is None else ChatChecker(model)


OnClaim = Callable[[ClaimRow, int, int], None]


@dataclass(frozen=True, slots=True)
class ClaimSet:
    """The claims of one file."""

    claims: tuple[LabelledClaim, ...]

    def first(self, limit: int | None) -> "ClaimSet":
        return ClaimSet(self.claims[:limit])

    @classmethod
    def read(cls, path: Path) -> "ClaimSet":
        """The claims of a JSON list or of JSON lines.

        Raises SettingsError for an empty file, repeated ids and labels of one class alone,
        StoreError for a row that cannot be read.
        """
        found: dict[str, LabelledClaim] = {}
        for place, row in enumerate(rows_of(path, "claim", _LINE), start=1):
            try:
                one = ClaimLine.of(row).build()
            except (ValidationError, ValueError) as error:
                why = first_fault(error) if isinstance(error, ValidationError) else str(error)
                raise StoreError(
                    f"row {place} of {path} is no labelled claim: {why}", _LINE
                ) from error
            if one.id in found:
                raise SettingsError(
                    f"Row {place} of {path} has the id {one.id!r} of an earlier row.",
                    "Give each claim an id of its own, or leave one of the two out.",
                )
            found[one.id] = one
        if len({one.supported for one in found.values()}) < 2:
            raise SettingsError(
                f"All claims of {path} are of one class, so there is nothing to distinguish.",
                "Name a file with supported claims and with others.",
            )
        return cls(tuple(found.values()))

    async def check(
        self,
        choice: PolicyChoice | EntailmentChoice | None,
        out: Path,
        at_once: int = 1,
        on_row: OnClaim = lambda *told: None,
    ) -> list[ClaimRow]:
        """A row for each claim, those of earlier attempts among them, stored as they come."""
        named = choice.name if choice else NAME
        folder = EvalFolder(out)
        with folder.alone():
            digest = digest_of("".join(c.model_dump_json() for c in self.claims))
            folder.claim({"checker": named, "claims": digest[:24]})
            with folder.rows(ClaimRow) as rows:
                left = [one for one in self.claims if one.id not in rows.held]
                if left:
                    async with open_checker(choice) as checker, asyncio.TaskGroup() as tasks:
                        waiting = iter(left)

                        async def work() -> None:
                            for one in waiting:
                                began = time.monotonic()
                                said = await checker.check([one.pair()])
                                took = round(time.monotonic() - began, 3)
                                [found], [score] = said.each, said.chances or (None,)
                                row = ClaimRow(id=one.id, verdict=found.verdict, score=score,
                                               reason=found.reason, seconds=took)  # fmt: skip
                                await rows.append(row)
                                on_row(row, len(rows.held), len(self.claims))

                        for _ in range(min(at_once, len(left))):
                            tasks.create_task(work())
                return [rows.held[one.id] for one in self.claims]

    def figures(self, rows: Sequence[ClaimRow], checker: str) -> dict[str, Any]:
        """Balanced accuracies with their intervals, for people and programs."""
        both = list(zip(self.claims, rows, strict=True))
        at_verdict = [(one.supported, row.verdict == "supported") for one, row in both]
        held_out = [(one, row) for one, row in both if not one.tuned_on]
        told: dict[str, Any] = {
            "checker": checker,
            "claims": len(self.claims),
            "supported": sum(one.supported for one in self.claims),
            "all": _accuracies(at_verdict),
            "seconds": round(statistics.median(row.seconds for row in rows), 3),
        }
        tuning = [(one.supported, row.score) for one, row in both
                  if one.tuned_on and row.score is not None]  # fmt: skip
        if held_out and len({label for label, _ in tuning}) > 1:
            best = best_threshold(tuning)
            told["threshold"] = round(best, 4)
            told["held_out_product"] = _accuracies(
                [(one.supported, row.verdict == "supported") for one, row in held_out]
            )
            told["held_out_tuned"] = _accuracies(
                [(one.supported, (row.score or 0.0) >= best) for one, row in held_out]
            )
        return told


def best_threshold(scored: Sequence[tuple[bool, float]]) -> float:
    """The threshold of "supported" with the highest balanced accuracy."""
    return max(
        {s for _, s in scored},
        key=lambda at: (balanced_accuracy([(y, s >= at) for y, s in scored]), at),
    )


def balanced_accuracy(said: Sequence[tuple[bool, bool]]) -> float:
    """Balanced accuracy of (label, verdict); for one class alone its share."""
    return statistics.fmean(statistics.fmean(each) for each in _classes(said))


def _classes(said: Sequence[tuple[bool, bool]]) -> list[list[float]]:
    """For each class present, which claims were classified correctly."""
    classes = ([float(v == y) for y, v in said if y is wanted] for wanted in (True, False))
    return [each for each in classes if each]


def _accuracies(said: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    if not said:
        return {"n": 0}
    classes, rng = _classes(said), random.Random(0)
    draws = sorted(
        statistics.fmean(statistics.fmean(rng.choices(each, k=len(each))) for each in classes)
        for _ in range(DRAWS)
    )
    right = {wanted: [v == y for y, v in said if y is wanted] for wanted in (True, False)}
    return {
        "n": len(said),
        "balanced_accuracy": round(balanced_accuracy(said), 4),
        "low": round(draws[round(0.025 * (DRAWS - 1))], 4),
        "high": round(draws[round(0.975 * (DRAWS - 1))], 4),
        "supported_right": round(sum(right[True]) / max(len(right[True]), 1), 4),
        "rest_right": round(sum(right[False]) / max(len(right[False]), 1), 4),
    }


def claim_lines(told: dict[str, Any]) -> list[str]:
    """The figures as lines for a terminal."""
    lines = [
        f"{told['claims']} claims, {told['supported']} supported; checked by {told['checker']}"
    ]
    named = {"all": "as the product decides, all claims",
             "held_out_product": "the half not tuned on, as the product decides",
             "held_out_tuned": "the half not tuned on, at the tuned threshold"}  # fmt: skip
    for key, label in named.items():
        if found := told.get(key):
            lines.append(
                f"balanced accuracy {found['balanced_accuracy']:.3f} "
                f"(95%: {found['low']:.3f} to {found['high']:.3f}), supported "
                f"{found['supported_right']:.3f}, rest {found['rest_right']:.3f}: {label}"
            )
    if at := told.get("threshold"):
        lines.append(f"the tuned threshold: {at}")
    return lines
