"""Reflections on a finished run: candidates written by the policy and scored; the best is accepted.

The policy reads the question and the run as it was written, but no score. Of a group it may be
shown the best run and, beside it, the worst: what made the difference is the lesson. If this does
not fit, tool output is shortened first, then everything. A judge that also knows the scores rates
each candidate as guidance. All m candidates can train the policy (GRPO); only the best one with a
valid form and at least a minimum score may enter the bank. Source: RubricEM, arXiv:2605.10899,
section 3.4, appendix D.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rubricem.agent.models.policy import Policy
from rubricem.agent.research.recall import RUBRICS, TAKEAWAYS, harmless
from rubricem.agent.transcript.scaffold import template
from rubricem.judge.base import fit_stages, outcome
from rubricem.judge.evidence import without_repeats
from rubricem.judge.reflection import ReflectionJudge
from rubricem.judge.rubrics.core import together
from rubricem.memory.errors import JudgeError, PolicyError, RubricemError
from rubricem.memory.runs import Rating
from rubricem.memory.schema import (
    NO_USAGE,
    Author,
    Judgement,
    Reflection,
    ReflectionCandidate,
    Sampling,
    Segment,
    Source,
    Stage,
    Trajectory,
    Usage,
    Value,
)
from rubricem.memory.screening import screen
from rubricem.memory.text import digest_of, fit, seed_of, split_thinking, storable

CANDIDATES = 8
TEMPERATURE = 0.7
CUT_OFF = "it was cut off at the limit of {tokens} tokens"
HELD_DRY = 5
"""tokens that a candidate written under a grammar may repeat"""
HEADINGS = ("Critical Requirement", "Analytical Approach", "Communication & Structure", "Pitfalls")
_END = f"</{TAKEAWAYS}>"
_SERVER_CHARACTERS = 60_000
"""of a run shown to a model whose context nobody knows"""
_CHARACTERS_A_TOKEN = 4
_SPARE_TOKENS = 16


class Reflected(Value):
    """What was written on one run."""

    trajectory_id: str
    candidates: tuple[ReflectionCandidate, ...] = ()
    reflection: Reflection | None = None
    notes: tuple[str, ...] = ()
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class Reflector:
    """A policy that reflects on judged runs, and the judge that chooses among what it wrote."""

    policy: Policy
    judge: ReflectionJudge
    tokens: int
    """that a candidate may have; a model that thinks first needs more"""
    m: int = CANDIDATES
    """candidates of its own; 0: only the one that is held to the form"""
    holds: bool = True
    """whether a policy that continues tokens can be held to a grammar"""

    async def __call__(
        self,
        trajectory: Trajectory,
        judgement: Judgement | None,
        seed: int = 0,
        beside: Trajectory | None = None,
    ) -> Reflected:
        """M candidates in order, at most one accepted. Raises PolicyError where all fail.

        The policy is shown the question and the run, and of a worse run `beside` it no more than
        that it came out worse.
        """
        written, failed = await self._write(trajectory, seed, beside)
        found = await self.choose(trajectory, judgement, written, seed, beside=beside)
        told = [f"{len(failed)} of {self.m} failed: {failed[0].told()}"] if failed else []
        return found.model_copy(update={"notes": (*found.notes, *told)})

    async def write(self, trajectory: Trajectory, seed: int = 0) -> list[ReflectionCandidate]:
        """So many candidates, not scored. Raises PolicyError where one fails."""
        written, failed = await self._write(trajectory, seed, None)
        if failed:
            raise failed[0]
        return written

    async def _write(
        self, trajectory: Trajectory, seed: int, beside: Trajectory | None
    ) -> tuple[list[ReflectionCandidate], list[JudgeError | PolicyError]]:
        """The candidates, and the errors of those that failed, which take no other one down.

        Where a model that continues tokens gives none of valid form, one more is written under a
        grammar, for the bank: it is marked, since it was not the policy's own choice alone.
        """
        prompt = await _prompt(self.policy, trajectory, self.tokens, beside)

        async def write(number: int, grammar: str | None = None) -> ReflectionCandidate:
            sampling = Sampling(
                max_tokens=self.tokens,
                temperature=TEMPERATURE,
                grammar=grammar,
                # What is held to a form soon says the same under every heading.
                dry=None if grammar is None else HELD_DRY,
                seed=seed_of(trajectory.question, trajectory.transcript(), seed, number),
            )
            return await self._candidate(trajectory, prompt, sampling)

        tried = await together(outcome(write(number)) for number in range(self.m))
        candidates = [one for one in tried if isinstance(one, ReflectionCandidate)]
        failed = [one for one in tried if not isinstance(one, ReflectionCandidate)]
        if failed and not candidates:
            raise failed[0]
        holds = self.holds and not self.policy.retokenised
        if holds and all(candidate.fault for candidate in candidates):
            candidates.append(await write(self.m, form_grammar()))
        return candidates, failed

    async def choose(
        self,
        trajectory: Trajectory,
        judgement: Judgement | None,
        written: Sequence[ReflectionCandidate],
        seed: int = 0,
        *,
        rating: Rating | None = None,
        earlier: Sequence[Source] = (),
        beside: Trajectory | None = None,
    ) -> Reflected:
        """The candidates scored, and the best of them as an item for the bank.

        `rating` is a person's of the run; `earlier` was read in its conversation before it.
        """
        scored = await self.judge.score(
            trajectory, judgement, written, seed, rating=rating, beside=beside
        )
        marked = mark_best(scored, self.judge.minimum)
        other = beside.sources if beside else ()
        read = dict.fromkeys(source.text for source in (*trajectory.sources, *other, *earlier))
        best = accept(
            marked,
            self.policy.name,
            self.policy.version,
            judgement=judgement,
            source_texts=tuple(read),
        )
        return Reflected(trajectory_id=trajectory.id, candidates=tuple(marked), reflection=best)

    async def _candidate(
        self, trajectory: Trajectory, prompt: Segment, sampling: Sampling
    ) -> ReflectionCandidate:
        held = sampling.grammar is not None
        written = await self.policy.write(template("reflect"), [prompt], sampling, _end, None)
        text, cut_off = storable(written.text), CUT_OFF.format(tokens=self.tokens)
        parsed = Parsed.of(text, cut_off=written.stop_reason in ("length", "repetition"))
        answer = Segment(
            author=Author.POLICY,
            turn=1,
            text=text,
            token_ids=written.token_ids,
            logprobs=written.logprobs,
            retokenised=self.policy.retokenised or written.retokenised or held,
        )
        return ReflectionCandidate(
            trajectory_id=trajectory.id,
            question=trajectory.question,
            segments=(prompt, answer),
            rubrics=parsed.rubrics,
            takeaways=parsed.takeaways,
            fault=parsed.fault,
            held=held,
            unscored_reason=cut_off if written.stop_reason == "length" else "",
        )


def mark_best(
    candidates: Sequence[ReflectionCandidate], minimum: float
) -> list[ReflectionCandidate]:
    """The same candidates, the best one of valid form and enough score marked accepted.

    One that the judge doubts waits for a person, so one without a doubt goes before it.
    """
    totals = [c.score.total if c.score and not c.fault else -1.0 for c in candidates]
    clean = [not (c.score and c.score.suspicion) for c in candidates]
    ranks = [(total >= minimum and clean[i], total) for i, total in enumerate(totals)]
    best = max(range(len(ranks)), key=ranks.__getitem__, default=-1)
    return [
        c.model_copy(update={"accepted": i == best and totals[i] >= minimum})
        for i, c in enumerate(candidates)
    ]


def accept(
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
    safe = screen(best.rubrics, best.takeaways, source_texts)
    suspicion = " ".join(best.score.suspicion.split())
    doubts = (f'The judge doubts it: "{suspicion}".',) if suspicion else ()
    return Reflection(
        id=digest_of(text, 12),
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
        flags=(*safe.flags, *doubts),
        written_at=datetime.now(UTC),
    )


def _end(text: str) -> int | None:
    at = text.rfind(_END)
    return None if at < 0 else at + len(_END)


async def _prompt(
    policy: Policy, trajectory: Trajectory, tokens: int, beside: Trajectory | None
) -> Segment:
    """The question and the run, cut so that what is to be written fits behind it."""
    context = policy.context_tokens
    room = sys.maxsize if context is None else context - tokens - _SPARE_TOKENS
    characters = _SERVER_CHARACTERS if context is None else room * _CHARACTERS_A_TOKEN
    characters, ids = await fit(
        lambda characters: policy.render(
            template("reflect"), message(trajectory, characters, beside)
        ),
        room,
        characters,
        RubricemError(
            "The run does not fit into the model's context, however it is cut.",
            "Raise context_tokens.",
        ),
        least=room // _CHARACTERS_A_TOKEN - 1,
    )
    text = message(trajectory, characters, beside)
    return Segment(author=Author.PROMPT, text=text, token_ids=ids)


def message(trajectory: Trajectory, characters: int, worse: Trajectory | None = None) -> str:
    """The question and the run, or both runs, cut to about so many characters."""
    runs = {"run": trajectory} | (
        {"other_run": without_repeats(trajectory, worse)} if worse else {}
    )
    parts = [f"<question>\n{harmless(trajectory.question)}\n</question>"]
    for tag, run in runs.items():
        stages = (text for _, text in fit_stages(run, Stage, characters // len(runs)))
        parts.append(f"<{tag}>\n{harmless(chr(10).join(filter(None, stages)))}\n</{tag}>")
    told = f"{template('reflect_pair')}\n\n" if worse else ""
    return "\n".join(parts) + f"\n\n{told}{template('reflect_form')}"


def form_grammar() -> str:
    """GBNF that holds a small model to the form: a line for each heading, one or two lessons."""
    lines = " ".join(f'"{heading}: " line "\\n"' for heading in HEADINGS)
    return (
        f'root ::= "<{RUBRICS}>\\n" {lines} "</{RUBRICS}>\\n<{TAKEAWAYS}>\\n" lesson '
        f'lesson? "</{TAKEAWAYS}>"\n'
        'lesson ::= "- " line "\\n"\n'
        # No word is longer than names are: a model that loses the thread puts no more spaces.
        'line ::= [A-Za-z`] word? (" " word){4,35}\n'
        "word ::= [^ <\\n\\[]{1,32}\n"
    )


@dataclass(frozen=True, slots=True)
class Parsed:
    """The two blocks; `fault` says in a sentence why the text is not exactly them."""

    rubrics: str = ""
    takeaways: str = ""
    fault: str = ""

    @classmethod
    def of(cls, text: str, *, cut_off: bool = False) -> "Parsed":
        """The blocks of a reflection, or what is wrong with its form.

        Thinking, and what else stands around the blocks, is no part of it.
        """
        body = re.sub(
            rf"</?(?:{RUBRICS}|{TAKEAWAYS})>",
            lambda tag: tag[0].lower(),
            split_thinking(text)[1],
            flags=re.I,
        )
        found = {
            tag: re.search(rf"<{tag}>(.*?)</{tag}>", body, re.S) for tag in (RUBRICS, TAKEAWAYS)
        }
        blocks = {tag: block[1].strip() for tag, block in found.items() if block}
        fault = "It was cut off before its end." if cut_off else _fault(body, blocks)
        return cls(blocks.get(RUBRICS, ""), blocks.get(TAKEAWAYS, ""), fault)


def _fault(body: str, blocks: Mapping[str, str]) -> str:
    for tag in (RUBRICS, TAKEAWAYS):
        if tag not in blocks:
            return f"There is no whole {tag} block."
        if body.count(f"<{tag}>") > 1 or body.count(f"</{tag}>") > 1:
            return f"There is more than one {tag} block."
        if not blocks[tag]:
            return f"The {tag} block is empty."
        if not re.search(r"\w", re.sub("|".join(HEADINGS), "", blocks[tag])):
            return f"The {tag} block has headings and nothing under them."
    if body.index(f"<{RUBRICS}>") > body.index(f"<{TAKEAWAYS}>"):
        return "The blocks are in the wrong order."
    return ""
