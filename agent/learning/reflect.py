"""Reflections on a finished run: candidates by the policy, scored, the best one accepted.

The policy reads the question and the run as it was written, no score; a judge that also knows
the scores says how good each candidate is as guidance. Every candidate can train the policy
(GRPO over the m candidates); only the best of valid form, from a minimum score on, may enter
the bank. Source: RubricEM, arXiv:2605.10899, section 3.4 and appendix D.
"""

import asyncio
import hashlib
import sys
from collections.abc import Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from rubricem.agent.models.policy import Policy
from rubricem.agent.research.recall import END, form_grammar, message, parse_reflection, system
from rubricem.memory.errors import RubricemError
from rubricem.memory.interfaces import Completion, Sampling
from rubricem.memory.schema import (
    Author,
    Judgement,
    Reflection,
    ReflectionCandidate,
    ReflectionScore,
    Segment,
    Trajectory,
)
from rubricem.memory.screening import screened
from rubricem.memory.text import fit, storable

CANDIDATES = 8
TEMPERATURE = 0.7
MAX_TOKENS = 700
CUT_OFF = f"it was cut off at the limit of {MAX_TOKENS} tokens"
HELD_DRY = 5
"""tokens that a candidate written under a grammar may repeat"""
_SERVER_CHARACTERS = 60_000
"""of a run shown to a model whose context nobody knows"""
_CHARACTERS_A_TOKEN = 4
_SPARE_TOKENS = 16


class CandidateJudge(Protocol):
    """Scores candidates of one trajectory; one that it cannot score says why."""

    @property
    def minimum(self) -> float:
        """Total score from which a candidate may enter the bank."""
        ...

    async def score(
        self,
        trajectory: Trajectory,
        judgement: Judgement | None,
        candidates: Sequence[ReflectionCandidate],
        seed: int = 0,
    ) -> tuple[ReflectionCandidate, ...]: ...


async def reflect(
    policy: Policy,
    trajectory: Trajectory,
    judgement: Judgement | None,
    reflection_judge: CandidateJudge,
    m: int = CANDIDATES,
    seed: int = 0,
    *,
    minimum: float | None = None,
) -> list[ReflectionCandidate]:
    """Write m candidates, scored, in order; at most one of them is marked accepted.

    `minimum` None: the judge's own. Raises PolicyError where the policy fails.
    """
    candidates = await write_candidates(policy, trajectory, m, seed)
    scored = await reflection_judge.score(trajectory, judgement, candidates, seed)
    return mark_best(scored, reflection_judge.minimum if minimum is None else minimum)


async def write_candidates(
    policy: Policy, trajectory: Trajectory, m: int = CANDIDATES, seed: int = 0
) -> list[ReflectionCandidate]:
    """So many candidates, not scored. The policy is shown the question and the run, no more.

    Where a model that continues tokens gives none of valid form, one more is written under a
    grammar, for the bank: it is marked, since it was not the policy's own choice alone.
    """
    prompt = await _prompt(policy, trajectory)

    async def write(number: int, grammar: str | None = None) -> ReflectionCandidate:
        sampling = Sampling(
            max_tokens=MAX_TOKENS,
            temperature=TEMPERATURE,
            grammar=grammar,
            # What is held to a form soon says the same under every heading.
            dry=None if grammar is None else HELD_DRY,
            seed=_seed(trajectory, seed, number),
        )
        written = await policy.write(system(), [prompt], sampling, _end, None)
        return _candidate(policy, trajectory, prompt, written, held=grammar is not None)

    candidates = await _all([write(number) for number in range(m)])
    if not policy.retokenised and all(candidate.fault for candidate in candidates):
        candidates.append(await write(m, form_grammar()))
    return candidates


def mark_best(
    candidates: Sequence[ReflectionCandidate], minimum: float
) -> list[ReflectionCandidate]:
    """The same candidates, the best one of valid form and enough score marked accepted."""
    totals = [c.score.total if c.score and not c.fault else -1.0 for c in candidates]
    best = max(range(len(totals)), key=totals.__getitem__, default=-1)
    return [
        c.model_copy(update={"accepted": i == best and totals[i] >= minimum})
        for i, c in enumerate(candidates)
    ]


def accepted(
    candidates: Sequence[ReflectionCandidate],
    policy: str = "",
    policy_version: str = "",
    *,
    judgement: Judgement | None = None,
    source_texts: Sequence[str] = (),
) -> Reflection | None:
    """The marked candidate as an item for the bank, screened, with where it comes from.

    `judgement` and `source_texts` are of the run: who scored it and how, and what it read. The
    same candidate with the same score always has the same id.
    """
    best = next((c for c in candidates if c.accepted and c.score), None)
    if best is None or best.score is None:
        return None
    total = f"{best.score.total:.6f}"
    text = "\0".join((best.trajectory_id, best.question, best.rubrics, best.takeaways, total))
    safe = screened(best.rubrics, best.takeaways, source_texts)
    return Reflection(
        id=hashlib.sha256(text.encode()).hexdigest()[:12],
        question=best.question,
        rubrics=safe.rubrics,
        takeaways=safe.takeaways,
        score=best.score.total,
        trajectory_id=best.trajectory_id,
        policy=policy,
        policy_version=policy_version,
        judge=judgement.judge if judgement else "",
        judge_version=judgement.rubric_version if judgement else "",
        stage_scores=tuple(stage.score for stage in judgement.stages) if judgement else (),
        reflection_score=best.score,
        flags=(*safe.flags, *_doubted(best.score)),
        written_at=datetime.now(UTC),
    )


def _doubted(score: ReflectionScore) -> Iterator[str]:
    """The judge's second opinion on whether it would order its reader about."""
    if words := " ".join(score.suspicion.split()):
        yield f'The judge doubts it: "{words}".'


async def _all(
    calls: Sequence[Coroutine[Any, Any, ReflectionCandidate]],
) -> list[ReflectionCandidate]:
    """What all calls give; where one call fails none is left running."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _end(text: str) -> int | None:
    at = text.rfind(END)
    return None if at < 0 else at + len(END)


def _seed(trajectory: Trajectory, seed: int, number: int) -> int:
    text = f"{trajectory.question}\0{trajectory.transcript()}\0{seed}\0{number}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


async def _prompt(policy: Policy, trajectory: Trajectory) -> Segment:
    """The question and the run, cut so that what is to be written fits behind it."""
    context = policy.context_tokens
    room = sys.maxsize if context is None else context - MAX_TOKENS - _SPARE_TOKENS
    characters = _SERVER_CHARACTERS if context is None else room * _CHARACTERS_A_TOKEN
    characters, ids = await fit(
        lambda characters: policy.open(system(), message(trajectory, characters)),
        room,
        characters,
        RubricemError(
            "The run does not fit into the model's context, however it is cut.",
            "Raise context_tokens.",
        ),
        least=room // _CHARACTERS_A_TOKEN - 1,
        shrink=lambda characters, share: characters * 4 // 5,
    )
    text = message(trajectory, characters)
    return Segment(author=Author.PROMPT, text=text, token_ids=ids)


def _candidate(
    policy: Policy,
    trajectory: Trajectory,
    prompt: Segment,
    written: Completion,
    *,
    held: bool,
) -> ReflectionCandidate:
    text = storable(written.text)
    parsed = parse_reflection(text, cut_off=written.stop_reason in ("length", "repetition"))
    answer = Segment(
        author=Author.POLICY,
        turn=1,
        text=text,
        token_ids=written.token_ids,
        logprobs=written.logprobs,
        retokenised=policy.retokenised or written.retokenised or held,
    )
    return ReflectionCandidate(
        trajectory_id=trajectory.id,
        question=trajectory.question,
        segments=(prompt, answer),
        rubrics=parsed.rubrics,
        takeaways=parsed.takeaways,
        fault=parsed.fault,
        held=held,
        unscored_reason=CUT_OFF if written.stop_reason == "length" else "",
    )
