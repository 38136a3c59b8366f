"""The verify stage: checks every citation of an answer, and in repair mode repairs what fails.

A chat server is asked about a batch of claims per call and replies with verdicts as validated JSON;
the rule that numbers, names and quotations must occur in the cited text overrides its reply, so no
passage can talk the model out of it. From an embedded model the probability of "Yes" is read both
ways and combined with the rules' log-odds; it is not asked about a pair that the rules find at
fault or far from the passage. If the model fails or may not be called any more, the rules check
instead, and the result says so.

The transcript is not changed: the result is stored beside it. Every model call goes through the
run's journal.
"""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, Self

from pydantic import BaseModel

from rubricem.agent.models.policy import JournaledCalls, JournaledPolicy, Policy, call_scope
from rubricem.agent.reports.cited import Cited, CitedAnswer, cited_answer
from rubricem.agent.reports.rules import (
    ENOUGH,
    IN_PART,
    NAME,
    TOO_FEW,
    Checker,
    ClaimFinding,
    Findings,
    LexicalChecker,
    Pair,
    bids,
    chance,
    evidence,
    lexical_finding,
    log_odds,
    shares_of_clauses,
    statements_of,
)
from rubricem.agent.transcript.events import Listener, SourceProgress, ignore
from rubricem.agent.transcript.scaffold import neutralise, template
from rubricem.agent.transcript.words import closest_sentence
from rubricem.agent.weights.catalogue import catalogue
from rubricem.memory.asking import Bill, ask_json, chance_of_yes, check_numbers, usage_of_error
from rubricem.memory.errors import PolicyError
from rubricem.memory.language import plain_letters
from rubricem.memory.schema import (
    NO_USAGE,
    AnswerFormat,
    Author,
    ChatModel,
    ChoiceReader,
    CitationCheck,
    Message,
    Repair,
    Sampling,
    Segment,
    Trajectory,
    Usage,
    Verification,
)
from rubricem.memory.text import fence, one_line, split_thinking

CHARACTERS = 1200
"""shown of a passage"""
CLAIM_CHARACTERS = 800
SAYS = "Does the passage say what the claim says?"
SAYS_MORE = "Does the claim say anything that the passage does not say?"
LEAST_ODDS = -1.5
"""below these log-odds of the rules the model is not asked"""
MODEL_WEIGHT, MODEL_LEAN = 1.8, -0.5
"""weight of the difference of both log-odds of Yes, and bias: a logistic fit to the 1.5B's replies
on 46 claims of WiCE's development set, from the half on which thresholds may be tuned; half of the
fitted bias (-1.0) was as good there and doubts fewer claims that hold"""
TINY = 1e-4
SUPPORTED = 0.5


class ChoiceChecker:
    """A `Checker` over a `ChoiceReader`."""

    def __init__(self, reader: ChoiceReader) -> None:
        self._reader = reader

    @property
    def name(self) -> str:
        return f"{self._reader.name} and lexical rules"

    async def check(self, pairs: Sequence[Pair]) -> Findings:
        found, chances = [], []
        with Bill() as bill:
            for pair in pairs:
                finding, probability = ClaimFinding("unsupported", pair.fault()), 0.0
                if pair.verbatim():
                    finding, probability = ClaimFinding("supported"), 1.0
                elif not finding.reason:
                    probability, used = await self.probability(pair)
                    finding = finding_at(pair, probability)
                    bill.usage += used
                found.append(finding)
                chances.append(probability)
        return Findings(tuple(found), bill.usage, tuple(chances))

    async def probability(self, pair: Pair) -> tuple[float, Usage]:
        """`held_by` with this reader, and the usage."""
        usage = NO_USAGE

        async def ask(messages: Sequence[Message]) -> float:
            nonlocal usage
            yes, used = await chance_of_yes(self._reader, messages)
            usage += used
            return yes

        return await judge_support(pair, ask), usage


async def judge_support(pair: Pair, ask: Callable[[Sequence[Message]], Awaitable[float]]) -> float:
    """The probability in [0, 1] that the passage says the claim, by rules and model together.

    On some texts a small model is biased to Yes, whatever it is asked. It is therefore asked the
    opposite as well, where its bias is the same and cancels in the difference. `ask` returns the
    model's probability of Yes, in [0, 1].
    """
    odds = log_odds(pair)
    if odds < LEAST_ODDS:
        return chance(odds)
    system, shown = Message("system", template("verify_choice")), question(pair)
    for asked, sign in ((SAYS, 1), (SAYS_MORE, -1)):
        yes = await ask([system, Message("user", f"{shown}{asked} Yes or No?")])
        odds += sign * MODEL_WEIGHT * math.log(max(yes, TINY) / max(1 - yes, TINY))
    return chance(odds + MODEL_LEAN)


def finding_at(pair: Pair, probability: float) -> ClaimFinding:
    """The finding for a probability; with a clause missing from the passage never "supported"."""
    told = shares_of_clauses(pair)
    whole = min(told) >= TOO_FEW
    if whole and probability >= SUPPORTED:
        return ClaimFinding("supported")
    if probability >= SUPPORTED or (not whole and max(told) >= ENOUGH):
        return ClaimFinding("partial", IN_PART)
    said = f"rules and model hold it {probability:.0%} likely that the source says this"
    return ClaimFinding("unsupported", said)


def question(pair: Pair) -> str:
    """Passage and claim, to precede the question; of a long text only the evidence."""
    text = pair.source.text
    if len(text) > CHARACTERS:
        text = around(pair.claim, "\n".join(evidence(pair.claim, text)) or text, CHARACTERS)
    shown = {"passage": f"{pair.source.title}\n{text}"}
    return f"{fence(shown)}\n{fence({'claim': pair.claim[:CLAIM_CHARACTERS]})}\n"


def passage(pair: Pair, characters: int) -> str:
    """The title of the source, and at most `characters` of its text, around the claim."""
    return f"{pair.source.title}\n{around(pair.claim, pair.source.text, characters)}"


def around(claim: str, text: str, characters: int) -> str:
    """The text, cut to `characters` around the sentence closest to the claim."""
    if len(text) <= characters:
        return text
    closest = closest_sentence(claim, text)
    middle = text.find(closest) + len(closest) // 2 if closest else 0
    start = min(max(middle - characters // 2, 0), len(text) - characters)
    return text[start : start + characters]


BATCH_CHARACTERS = 4000
"""shown of a passage"""
REASON_CHARACTERS = 200


class GivenClaimVerdict(BaseModel):
    """The verdict on one claim, as written by the model."""

    number: int
    reason: str = ""
    quote: str = ""
    verdict: Literal["supported", "partial", "unsupported"]


class GivenClaimVerdicts(BaseModel):
    """The reply to a batch."""

    verdicts: list[GivenClaimVerdict]


class ChatChecker:
    """A `Checker` over a `ChatModel`; each call of `check` is one batch."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    async def check(self, pairs: Sequence[Pair]) -> Findings:
        messages = [Message("system", template("verify")), Message("user", list_pairs(pairs))]
        reply, usage = await ask_json(
            self._model,
            messages,
            GivenClaimVerdicts,
            check=lambda reply: check_numbers((v.number for v in reply.verdicts), len(pairs)),
            failure=PolicyError,
        )
        faults = await asyncio.to_thread(lambda: [pair.must_occur() for pair in pairs])
        given = sorted(reply.verdicts, key=lambda v: v.number)
        found = []
        for pair, wrong, one in zip(pairs, faults, given, strict=True):
            reason = " ".join(one.reason.split())[:REASON_CHARACTERS].rstrip(".")
            quote = verbatim(one.quote, pair.source.text)
            said = ClaimFinding(one.verdict, "" if one.verdict == "supported" else reason, quote)
            found.append(ClaimFinding("unsupported", wrong) if wrong else said)
        return Findings(tuple(found), usage)


LONGEST_QUOTE = 600
"""characters of what a checker quotes"""


def verbatim(quote: str, text: str) -> str:
    """The part of a text that a quote repeats, as it stands there; "" if it does not.

    White space does not count, nor do quotation marks around it, nor how letters are drawn.
    """
    words = quote.strip("\"'\u201c\u201d\u2018\u2019 .").split()
    if not words or len(quote) > LONGEST_QUOTE:
        return ""
    if found := re.search(r"\s+".join(map(re.escape, words)), text):
        return found[0]
    if quote.isascii() and text.isascii():
        return ""
    spans = [word.span() for word in re.finditer(r"\S+", text)]
    plain = [plain_letters(text[start:end]).replace(" ", "") for start, end in spans]
    sought = "".join(f" {plain_letters(word).replace(' ', '')}" for word in words)
    before, there, _ = "".join(f" {word}" for word in plain).partition(sought)
    first = before.count(" ")
    return text[spans[first][0] : spans[first + len(words) - 1][1]] if there else ""


def list_pairs(pairs: Sequence[Pair]) -> str:
    """The passages, each once, then the numbered claims."""
    shown = dict.fromkeys((pair.source.id, passage(pair, BATCH_CHARACTERS)) for pair in pairs)
    passages = [fence({f"passage {source}": text}) for source, text in shown]
    claims = [
        f"Claim {number}, citing passage {pair.source.id}:\n{fence(_claim_shown(pair))}"
        for number, pair in enumerate(pairs, start=1)
    ]
    return "\n\n".join([*passages, *claims])


def _claim_shown(pair: Pair) -> dict[str, str]:
    return {"claim": pair.claim, **({"it stands in": pair.context} if pair.context else {})}


REWRITE_CHARACTERS = 1500
"""shown of the passage"""
LONGEST = 400
SAMPLING = Sampling(max_tokens=400, temperature=0.0, seed=0)


async def rewrite(policy: Policy, pair: Pair) -> tuple[str, Usage]:
    """The claim rewritten by the policy from the passage; "" if it says that nothing is there.

    The result is a claim like any other and still has to be checked.
    """
    system = template("rewrite")
    message = fence({"claim": pair.claim, "passage": passage(pair, REWRITE_CHARACTERS)})
    ids = await policy.render(system, message)
    asked = Segment(author=Author.PROMPT, text=message, token_ids=ids)
    said = await policy.write(system, [asked], SAMPLING, None, None)
    # The first line as plain text; if it is too long, it is not a claim.
    _, text = split_thinking(said.text)
    line = one_line(next((line for line in text.splitlines() if line.strip()), ""))
    line = neutralise(line.strip("\"'` "))
    unfit = line.upper().rstrip(".") == "NONE" or len(line) > LONGEST
    return "" if unfit else line, said.usage


BATCH = 8
"""claims checked in one call to a server"""

Mode = Literal["mark", "repair"]
CheckerChoice = Literal["auto", "lexical"]
Found = Mapping[Pair, ClaimFinding]


@dataclass
class _Work:
    """One answer being verified: its checker, and the findings so far."""

    checker: Checker
    policy: Policy | None
    usage: Usage = NO_USAGE
    note: str = ""
    found: dict[Pair, ClaimFinding] = field(default_factory=dict)

    async def check(self, pairs: Sequence[Pair]) -> None:
        """Check pairs not checked yet, in batches sorted by source: claims share passages."""
        left = [pair for pair in dict.fromkeys(pairs) if pair not in self.found]
        new = sorted(left, key=lambda pair: (len(pair.source.id), pair.source.id))
        batches = [new[i : i + BATCH] for i in range(0, len(new), BATCH)]
        for batch, said in zip(
            batches, await asyncio.gather(*map(self._batch, batches)), strict=True
        ):
            self.usage += said.usage
            self.found |= dict(zip(batch, said.each, strict=True))

    async def _batch(self, pairs: Sequence[Pair]) -> Findings:
        try:
            return await self.checker.check(pairs)
        except PolicyError as error:
            self.note = f"some citations were checked by {NAME} alone: {error}"
            return Findings(tuple(map(lexical_finding, pairs)), usage_of_error(error))

    def holds(self, pair: Pair) -> bool:
        return bool(pair.claim) and self.found[pair].verdict == "supported"

    async def rewrite(self, pair: Pair) -> str:
        """The rewritten claim, still to be checked; "" if there is none or it is unchanged."""
        if self.policy is None:
            return ""
        try:
            text, used = await rewrite(self.policy, pair)
        except PolicyError as error:
            self.note = f"not every claim could be rewritten: {error}"
            self.usage += usage_of_error(error)
            return ""
        self.usage += used
        return text if text != pair.claim else ""


def can_tell(policy: Policy) -> bool:
    """Whether a model's Yes or No on a text is informative; the smallest's is known not to be."""
    known = next((w for w in catalogue() if policy.version.startswith(w.folder)), None)
    return known is None or known.checks_claims


class AnswerVerifier:
    """Checks citations with the policy's own model, or by rules alone without a policy."""

    def __init__(self, mode: Mode, policy: Policy | None) -> None:
        self._mode: Mode = mode
        self.policy = policy

    @classmethod
    def choose(
        cls, policy: Policy, mode: Literal["off", "mark", "repair"], checker: CheckerChoice
    ) -> Self | None:
        """None if nothing is to be checked. The checker `lexical` asks no model.

        A model that is known to judge claims no better than the rules is not asked, either.
        """
        if mode == "off":
            return None
        asked = checker == "auto" and can_tell(policy)
        return cls(mode, policy if asked else None)

    async def verify(
        self, trajectory: Trajectory, calls: JournaledCalls, listener: Listener = ignore
    ) -> tuple[Verification, Usage]:
        """Check every pair of the answer; calls are journaled under the run's thread.

        A failure of the model raises nothing: the rules check then.
        """
        answer = cited_answer(trajectory)
        pairs = pairs_of(answer)
        work = _work(self.policy, calls)
        if pairs:
            listener(SourceProgress(f"checking the citations ({len(pairs)}): {work.checker.name}"))
        with call_scope(trajectory.thread):
            await work.check(pairs)
            repairs = await self._repair(trajectory, work)
        checker = work.checker.name
        return self._outcome(
            checker, work.note, _lower_doubted(work.found, answer), repairs
        ), work.usage

    def by_rules(self, trajectory: Trajectory, why: str) -> Verification:
        """Check by lexical rules, without any call; repair removes claims, as it cannot rewrite."""
        answer = cited_answer(trajectory)
        found = _lower_doubted({pair: lexical_finding(pair) for pair in pairs_of(answer)}, answer)
        failed = _find_unsupported(trajectory, found) if self._repairing(trajectory) else ()
        repairs = tuple(Repair(claim=pairs[0].claim) for pairs in failed)
        return self._outcome(NAME, why, found, repairs)

    def _outcome(
        self, checker: str, note: str, found: Found, repairs: tuple[Repair, ...]
    ) -> Verification:
        checks = tuple(
            CitationCheck(
                source=pair.source.id, claim=pair.claim, context=pair.context, **asdict(finding)
            )
            for pair, finding in found.items()
        )
        return Verification(
            mode=self._mode, checker=checker, note=note, checks=checks, repairs=repairs
        )

    def _repairing(self, trajectory: Trajectory) -> bool:
        return self._mode == "repair" and trajectory.answer_format is not AnswerFormat.EXACT

    async def _repair(self, trajectory: Trajectory, work: _Work) -> tuple[Repair, ...]:
        """The repairs of the claims that none of their sources supports."""
        if not self._repairing(trajectory):
            return ()
        failed = list(_find_unsupported(trajectory, work.found))
        texts = await asyncio.gather(*(work.rewrite(pairs[0]) for pairs in failed))
        anew = [
            [Pair(text, pair.source, pair.beside, pair.context) for pair in pairs]
            for text, pairs in zip(texts, failed, strict=True)
        ]
        await work.check([pair for pairs in anew for pair in pairs if pair.claim])
        return tuple(
            Repair(claim=old[0].claim, became=new[0].claim if any(map(work.holds, new)) else "")
            for old, new in zip(failed, anew, strict=True)
        )


DOUBTED = "the model that wrote it is not certain of it"


def _lower_doubted(found: Found, answer: CitedAnswer) -> Found:
    """The findings, with claims that their own model doubts at most partially supported."""
    doubted = ClaimFinding("partial", DOUBTED)
    held = (pair for pair, one in found.items() if one.verdict == "supported")
    return {**found, **{pair: doubted for pair in held if pair.claim in answer.doubted}}


def pairs_of(answer: CitedAnswer) -> tuple[Pair, ...]:
    """The (claim, source) pairs of an answer, each once.

    Orders to the reader in a source count as nothing that it states, unless the claim quotes one.
    """
    pairs = dict[Pair, None]()
    for piece in (piece for piece in answer.pieces if isinstance(piece, Cited)):
        for citation in piece.citations:
            quoted = bids(citation.claim)
            held = [c.source if quoted else statements_of(c.source) for c in piece.citations]
            own = held.pop(piece.citations.index(citation))
            pairs[Pair(citation.claim, own, tuple(held), citation.context)] = None
    return tuple(pairs)


def _work(policy: Policy | None, calls: JournaledCalls) -> _Work:
    """The checker for the policy's model, with its calls and the rewriting journaled."""
    if policy is not None:
        policy = JournaledPolicy(policy, calls)
        if policy.chat:
            return _Work(ChatChecker(policy.chat), policy)
        if policy.reader:
            return _Work(ChoiceChecker(policy.reader), policy)
    return _Work(LexicalChecker(), None)


def _find_unsupported(trajectory: Trajectory, found: Found) -> Iterator[list[Pair]]:
    """The pairs of each claim that no source supports even partially; each claim once."""
    verdicts = {(p.source.id, p.claim, p.context): (p, f.verdict) for p, f in found.items()}
    seen: set[str] = set()
    for piece in cited_answer(trajectory).pieces:
        if isinstance(piece, Cited) and piece.citations[0].claim not in seen:
            seen.add(piece.citations[0].claim)
            pairs = [verdicts[c.id, c.claim, c.context] for c in piece.citations]
            if all(verdict == "unsupported" for _, verdict in pairs):
                yield [pair for pair, _ in pairs]
