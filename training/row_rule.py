"""How a judged group becomes rows: what a stage is credited with, and which ratio is formed.

A credit is called by its name, or is a dependence matrix of one's own, of four rows:

- `ss-grpo`: each stage by its own score and those of later ones (RubricEM, arXiv:2605.10899);
- `answer-only`: every stage by the answer's score (GRPO, arXiv:2402.03300);
- `dr-grpo`: the same, and a return is not divided by its group's standard deviation; with a
  constant token budget in place of a row's length (Dr. GRPO, arXiv:2503.20783);
- `identity`: every stage by its own score alone.

Of a rollout that was shown a rubric scaffold, with o its tokens, q the prompt without it and q_S
the one with it (RuscaRL, arXiv:2508.16949, appendix D.5), the ratio is

- `unscaffolded`: pi(o|q) / pi_old(o|q), the old policy computed again without the scaffold;
- `behaviour`: pi(o|q) / pi_old(o|q_S), to what the sampler computed: unbiased, of high variance;
- `scaffolded`: pi(o|q_S) / pi_old(o|q_S): the row keeps the scaffold in its prompt.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from pydantic import ValidationError

from memory.errors import SettingsError
from memory.schema import Value
from training.returns import PAPER, Dependence, broadcast, identity
from training.sequences import STAGES

ScaffoldRatio = Literal["unscaffolded", "behaviour", "scaffolded"]
RATIOS: tuple[ScaffoldRatio, ...] = get_args(ScaffoldRatio)
DR_GRPO = "dr-grpo"


class RowRule(Value):
    """What turns the judgements of a group into the advantages of its rows."""

    dependence: Dependence = PAPER
    scaled: bool = True
    """whether an advantage is in standard deviations of its group, or in units of the return"""
    ratio: ScaffoldRatio = "unscaffolded"


SS_GRPO = RowRule()
CREDITS = {
    "ss-grpo": SS_GRPO,
    "answer-only": RowRule(dependence=broadcast()),
    DR_GRPO: RowRule(dependence=broadcast(), scaled=False),
    "identity": RowRule(dependence=identity()),
}


def row_rule(
    credit: str | Sequence[Sequence[float]] = "ss-grpo", ratio: str = "unscaffolded"
) -> RowRule:
    """The rule of a credit, by name or matrix, and a ratio. Raises SettingsError for neither."""
    if ratio not in RATIOS:
        raise SettingsError(f"There is no scaffold_ratio {ratio!r}.", f"Use {', '.join(RATIOS)}.")
    rule = _named(credit) if isinstance(credit, str) else _of_matrix(credit)
    return rule.model_copy(update={"ratio": ratio})


def credit_name(rule: RowRule) -> str:
    """What a rule's credit is called; `matrix` where it is one of somebody's own."""
    plain = rule.model_copy(update={"ratio": SS_GRPO.ratio})
    return next((name for name, one in CREDITS.items() if one == plain), "matrix")


def _named(credit: str) -> RowRule:
    if credit not in CREDITS:
        raise SettingsError(
            f"There is no credit {credit!r}.",
            f"Use {', '.join(CREDITS)}, or a matrix of {len(STAGES)} rows.",
        )
    return CREDITS[credit]


def _of_matrix(credit: Sequence[Sequence[float]]) -> RowRule:
    """Raises SettingsError for a matrix that credits earlier stages, or is none of the stages'."""
    try:
        rule = RowRule(dependence=Dependence.model_validate({"weights": credit}))
        if len(rule.dependence.weights) != len(STAGES):
            raise ValueError(f"it has {len(rule.dependence.weights)} rows")
    except (ValidationError, ValueError) as error:
        fault = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise SettingsError(
            f"The credit is no matrix of the stages: {fault.removeprefix('Value error, ')}.",
            f"Give {len(STAGES)} rows of as many weights, 0 below the diagonal, none negative; "
            f"or use {', '.join(CREDITS)}.",
        ) from error
    return rule
