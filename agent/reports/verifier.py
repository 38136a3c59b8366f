"""The verify stage: checks every citation of an answer, and in repair mode repairs what fails.

A chat server is asked about a batch of claims per call and replies with verdicts as validated JSON;
the rule that numbers, names and quotations must occur in the cited text overrides its reply, so no
passage can talk the model out of it. From an embedded model the probability of "Yes" is read both
ways; it is not asked about a pair that the rules find at fault or far from the passage. If the
model fails or may not be called any more, the rules check instead, and the result says so.

The transcript is not changed: the result is stored beside it. Every model call goes through the
run's journal. Another model than the policy's, or a checker of one's own, may check in its place.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, TypeAdapter

from rubricem.agent.models.policy import (
    JournaledCalls,
    JournaledChat,
    JournaledPolicy,
    Policy,
    call_scope,
)
from rubricem.agent.reports.cited import (
    Cited,
    CitedAnswer,
    answer_of,
    cited_answer,
    cites_only,
    claim_of,
    pieces_in,
    said_in,
    statements,
)
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
    apart,
    bids,
    evidence,
    lexical_finding,
    shares_of_clauses,
    statements_of,
)
from rubricem.agent.transcript.events import Listener, SourceProgress, ignore
from rubricem.agent.transcript.scaffold import citations, parse, template
from rubricem.agent.transcript.words import closest_sentence
from rubricem.agent.weights.catalogue import catalogue
from rubricem.memory.asking import (
    Bill,
    Numbered,
    Verdicts,
    ask_entries,
    chance_of_yes,
    usage_of_error,
)
from rubricem.memory.errors import PolicyError, boundary
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
    Source,
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
SUPPORTED = 0.5


class ChoiceChecker:
    """A `Checker` over a `ChoiceReader`."""

    def __init__(self, reader: ChoiceReader) -> None:
        self._reader = reader

    @property
    def name(self) -> str:
        return f"{self._reader.name} and lexical rules"

    async def check(self, pairs: Sequence[Pair]) -> Findings:
        found = []
        with Bill() as bill:
            for pair in pairs:
                if fault := pair.fault():
                    found.append(ClaimFinding("unsupported", fault))
                elif pair.verbatim():
                    found.append(ClaimFinding("supported"))
                else:
                    probability, used = await self.probability(pair)
                    found.append(finding_at(pair, probability))
                    bill.usage += used
        return Findings(tuple(found), bill.usage)

    async def probability(self, pair: Pair) -> tuple[float, Usage]:
        """How far the passage says the claim and no less, in [0, 1]; 0 if it has few of its words.

        On some texts a small model is biased to Yes, whatever it is asked. It is therefore asked
        the opposite as well, where its bias is the same and cancels in the difference.
        """
        if _idle(pair):
            return 0.0, NO_USAGE
        chances, usage = list[float](), NO_USAGE
        system, shown = Message("system", template("verify_choice")), question(pair)
        for asked in (SAYS, SAYS_MORE):
            messages = [system, Message("user", f"{shown}{asked} Yes or No?")]
            yes, used = await chance_of_yes(self._reader, messages)
            chances.append(yes)
            usage += used
        return (1 + chances[0] - chances[1]) / 2, usage


def finding_at(pair: Pair, probability: float) -> ClaimFinding:
    """The finding for a probability; with a clause missing from the passage never "supported"."""
    told = shares_of_clauses(pair)
    whole = min(told) >= TOO_FEW
    if whole and probability >= SUPPORTED:
        return ClaimFinding("supported")
    if probability >= SUPPORTED or (not whole and max(told) >= ENOUGH):
        return ClaimFinding("partial", IN_PART)
    said = f"the model holds it {probability:.0%} likely that the source says this"
    return ClaimFinding("unsupported", said)


def question(pair: Pair) -> str:
    """Passage and claim, to precede the question; of a long text only the evidence."""
    text = pair.source.text
    if len(text) > CHARACTERS:
        text = around(pair.claim, "\n".join(evidence(pair.claim, text)) or text, CHARACTERS)
    shown = {"passage": f"{pair.source.title}\n{text}"}
    return f"{fence(shown)}\n{fence({'claim': pair.claim[:CLAIM_CHARACTERS]})}\n"


def passage(pair: Pair, characters: int) -> str:
    """What tells which source it is, and at most `characters` of its text, around the claim.

    The folder or host is often all that names the product that a manual is about.
    """
    source, text = pair.source, around(pair.claim, pair.source.text, characters)
    told = (source.title, source.location, source.place, text)
    return "\n".join(filter(None, dict.fromkeys(told)))


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


Said = Literal["supported", "partial", "unsupported"]


class GivenClaimVerdict(Numbered):
    """The verdict on one claim, as written by the model."""

    reason: str = ""
    quote: str = ""
    verdict: Annotated[Said, BeforeValidator(lambda said: str(said).lower())]


class ChatChecker:
    """A `Checker` over a `ChatModel`; each call of `check` is one batch."""

    def __init__(self, model: ChatModel, today: str = "", *, ruled: bool = True) -> None:
        """`today`: a sentence with the date. `ruled`: whether rules may overrule the model."""
        self._model, self._today, self._ruled = model, today, ruled

    @property
    def name(self) -> str:
        return self._model.name

    async def check(self, pairs: Sequence[Pair]) -> Findings:
        faults = [""] * len(pairs)
        if self._ruled:
            faults = await asyncio.to_thread(lambda: [p.must_occur(names=False) for p in pairs])
        open_ = [pair for pair, wrong in zip(pairs, faults, strict=True) if not wrong]
        asked = await self._ask(open_) if open_ else Findings(())
        said = iter(asked.each)
        each = (ClaimFinding("unsupported", wrong) if wrong else next(said) for wrong in faults)
        return Findings(tuple(each), asked.usage)

    async def _ask(self, pairs: Sequence[Pair]) -> Findings:
        system = template("verify") + self._today
        messages = [Message("system", system), Message("user", list_pairs(pairs))]
        claims = list(dict.fromkeys(map(_asked, pairs)))
        names = [str(number) for number in range(1, len(claims) + 1)]
        form = Verdicts[GivenClaimVerdict]
        read = await ask_entries(self._model, messages, form, names, failure=PolicyError)
        found, given = list[ClaimFinding](), dict(zip(claims, read.found, strict=True))
        for pair in pairs:
            if (one := given[_asked(pair)]) is None:
                found.append(ClaimFinding("unchecked", read.fault))
                continue
            reason = " ".join(one.reason.split())[:REASON_CHARACTERS].rstrip(".")
            quote = verbatim(one.quote, pair.source.text)
            said = ClaimFinding(one.verdict, "" if one.verdict == "supported" else reason, quote)
            told = quote or apart(pair.claim, pair.source.text, pair.context, pair.asked)
            if said.verdict == "supported" and pair.beside and not told and _idle(pair):
                some = any(shares_of_clauses(pair))
                said = ClaimFinding("partial", FEW) if some else ClaimFinding("unsupported", IDLE)
            found.append(said)
        return Findings(tuple(found), read.usage)


IDLE = "the claim stands without this source, which says nothing of it"
FEW = "the claim stands with its other sources; this one has few of its words"


def _idle(pair: Pair) -> bool:
    """Whether a source shares too little with any part of the claim to hold it."""
    return max(shares_of_clauses(pair), default=0.0) < TOO_FEW


class JournaledChecker:
    """A `Checker` of somebody's own, whose findings are stored, so that none is asked for again."""

    def __init__(self, own: Checker, calls: JournaledCalls) -> None:
        self._own, self._calls, self.name = own, calls, one_line(str(own.name))

    async def check(self, pairs: Sequence[Pair]) -> Findings:
        async def ask() -> dict[str, Any]:
            with boundary(PolicyError, f"the checker {self.name}"):
                found = await self._own.check(pairs)
                if len(found.each) != len(pairs):
                    raise ValueError(f"{len(found.each)} findings for {len(pairs)} claims")
                return dict(_FINDINGS.dump_python(found, mode="json"))

        asked = "\0".join(["check", self.name, *map(repr, pairs)])
        return _FINDINGS.validate_python(await self._calls.once(asked, ask))


_FINDINGS = TypeAdapter(Findings)
LONGEST_QUOTE = 600
"""characters of what a checker quotes"""


def verbatim(quote: str, text: str) -> str:
    """The part of a text that a quote repeats, as it stands there; "" if it does not.

    White space does not count, nor do quotation marks around it that the text has not, nor how
    letters are drawn. Its last word is whole.
    """
    if len(quote) > LONGEST_QUOTE:
        return ""
    spans = [word.span() for word in re.finditer(r"\S+", text)]
    plain = "".join(f" {plain_letters(text[a:b]).replace(' ', '')}" for a, b in spans)
    for said in (quote, quote.strip("\"'\u201c\u201d\u2018\u2019 .")):
        words = said.split()
        sought = "".join(f" {plain_letters(word).replace(' ', '')}" for word in words)
        before, there, _ = plain.partition(sought) if words else ("", "", "")
        if there:
            first = before.count(" ")
            return text[spans[first][0] : spans[first + len(words) - 1][1]]
    return ""


Asked = tuple[str, str, tuple[str, ...]]
"""a claim with its context, and the ids of all its sources"""


def _asked(pair: Pair) -> Asked:
    return pair.claim, pair.context, tuple(sorted(s.id for s in (pair.source, *pair.beside)))


def list_pairs(pairs: Sequence[Pair]) -> str:
    """The passages, each once, then the numbered claims, each with all its sources together."""
    cited = [replace(pair, source=each) for pair in pairs for each in (pair.source, *pair.beside)]
    shown = dict.fromkeys((pair.source.id, passage(pair, BATCH_CHARACTERS)) for pair in cited)
    passages = [fence({f"passage {source}": text}) for source, text in shown]
    first = {_asked(pair): pair for pair in reversed(pairs)}
    claims = [
        f"Claim {number}, citing {_claim_shown(first[asked], asked[2])}"
        for number, asked in enumerate(dict.fromkeys(map(_asked, pairs)), start=1)
    ]
    return "\n\n".join([*passages, *claims])


def _claim_shown(pair: Pair, ids: Sequence[str]) -> str:
    named = f"passage {ids[0]}" if len(ids) == 1 else f"passages {', '.join(ids)} together"
    shown = {"claim": pair.claim} | ({"it stands in": pair.context} if pair.context else {})
    return f"{named}:\n{fence(shown)}"


REWRITE_CHARACTERS = 1500
"""shown of each passage"""
LONGEST = 400
"""characters of a sentence that was written anew, beyond those of the old one"""
SAMPLING = Sampling(max_tokens=400, temperature=0.0, seed=0)
THINKING = 4096  # tokens, with which a server's model may think before it writes a sentence


_ENDED = re.compile(r"[.!?,;:\s]*(</cite>)?[.!?,;:\s]*$")


def _in_place_of(said: str, line: str, ids: Sequence[str]) -> str:
    """What was written in the place of a statement, ended as that was; "" if it will not do."""
    if "|" not in said:  # it may be a cell of a table
        line = line.replace("|", "/")
    cited = citations(parse(f"<answer>{line}</answer>"))
    if not {i for cite in cited for i in cite.ids} <= {*ids}:
        return ""
    if line and not cited:
        line = f'<cite id="{", ".join(dict.fromkeys(ids))}">{line}</cite>'
    end = "" if said[-1:].isalnum() else said[-1:]
    return _ENDED.sub(lambda found: (found[1] or "") + end, line, count=1)


BATCH = 8
"""claims checked in one call to a server"""

Mode = Literal["mark", "repair"]
Found = Mapping[Pair, ClaimFinding]


@dataclass
class _Work:
    """One answer being verified: its checker, and the findings so far."""

    checker: Checker
    policy: Policy | None
    """None: nothing is written anew"""
    today: str = ""
    usage: Usage = NO_USAGE
    note: str = ""
    found: dict[Pair, ClaimFinding] = field(default_factory=dict)
    ruled: set[Pair] = field(default_factory=set)
    """those that the rules checked, since the checker failed"""
    why: str = ""
    """how it failed"""

    async def check(self, pairs: Sequence[Pair]) -> None:
        """Check pairs not checked yet, in batches sorted by source: claims share passages.

        A claim on several sources is asked about once, with all of them.
        """
        claims = defaultdict[Asked, list[Pair]](list)
        for pair in dict.fromkeys(pairs):
            if pair not in self.found:
                claims[_asked(pair)].append(pair)
        each = sorted(claims.values(), key=lambda one: (len(one[0].source.id), one[0].source.id))
        batches = [[*chain(*each[i : i + BATCH])] for i in range(0, len(each), BATCH)]
        for batch, said in zip(
            batches, await asyncio.gather(*map(self._batch, batches)), strict=True
        ):
            self.usage += said.usage
            self.found |= dict(zip(batch, said.each, strict=True))

    async def _batch(self, pairs: Sequence[Pair]) -> Findings:
        try:
            return await self.checker.check(pairs)
        except PolicyError as error:
            self.ruled, self.why = self.ruled | {*pairs}, str(error)
            return Findings(tuple(map(lexical_finding, pairs)), usage_of_error(error))

    def notes(self) -> str:
        """What the model did not do, and why; "" where it did all."""
        which = f"{len(self.ruled)} of {len(self.found)}"
        if len(self.ruled) == len(self.found):
            which = "the"
        ruled = f"{which} citations were checked by {NAME} alone: {self.why}" if self.ruled else ""
        return "; ".join(filter(None, (ruled, self.note)))

    async def rewrite(self, statement: str, failed: Sequence[Pair]) -> str:
        """A statement of the answer written anew by the policy, its claims in cite tags.

        `failed`: its claims without support, on every source that it cites. The result still has
        to be checked; "": there is none. A model that exchanges messages is shown the tags and all
        sources.
        """
        policy, said = self.policy, said_in(statement)
        if policy is None:
            return ""
        if policy.chat:
            system, sampling = template("rewrite_cited"), replace(SAMPLING, max_tokens=THINKING)
            told = {"sentence": one_line(statement), "it stands in": failed[0].context or said}
            told["claims without support"] = "\n".join(dict.fromkeys(p.claim for p in failed))
            shown = {pair.source.id: passage(pair, REWRITE_CHARACTERS) for pair in failed}
            told |= {f"passage {source}": text for source, text in shown.items()}
        else:
            system, sampling = template("rewrite"), SAMPLING
            told = {"claim": said, "passage": passage(failed[0], REWRITE_CHARACTERS)}
        system, message = system + self.today, fence(told)
        try:
            ids = await policy.render(system, message)
            asked = Segment(author=Author.PROMPT, text=message, token_ids=ids)
            written = await policy.write(system, [asked], sampling, None, None)
        except PolicyError as error:
            self.note = f"not every claim could be rewritten: {error}"
            self.usage += usage_of_error(error)
            return ""
        self.usage += written.usage
        # The first line; if it is too long, it is no sentence.
        lines = split_thinking(written.text)[1].splitlines()
        line = one_line(next(filter(str.strip, lines), "")).strip("\"'` ")
        if line.upper().rstrip(".") == "NONE" or len(line) > LONGEST + len(statement):
            return ""
        return _in_place_of(said, cites_only(line), [pair.source.id for pair in failed])


def can_tell(policy: Policy) -> bool:
    """Whether a model's Yes or No on a text is informative; the smallest's is known not to be."""
    known = next((w for w in catalogue() if policy.version.startswith(w.folder)), None)
    return known is None or known.checks_claims


class AnswerVerifier:
    """Checks citations with the policy's own model, or by rules alone without a policy."""

    def __init__(
        self, mode: Mode, policy: Policy | None, own: Checker | ChatModel | None = None
    ) -> None:
        """`own`: who checks in the policy's place, which then only rewrites."""
        self._mode: Mode = mode
        self.policy, self._own = policy, own

    @classmethod
    def choose(
        cls, policy: Policy, mode: Mode | Literal["off"], checker: str | Checker | ChatModel
    ) -> Self | None:
        """None if nothing is to be checked. `lexical` asks no model, `auto` the policy's.

        A model that is known to judge claims no better than the rules is not asked, either.
        """
        if mode == "off":
            return None
        if not isinstance(checker, str):
            return cls(mode, policy, checker)
        return cls(mode, policy if checker == "auto" and can_tell(policy) else None)

    async def verify(
        self,
        trajectory: Trajectory,
        calls: JournaledCalls,
        listener: Listener = ignore,
        today: str = "",
    ) -> tuple[Verification, Usage]:
        """Check every pair of the answer; calls are journaled under the run's thread.

        `today`: the run's day, in words, which a model on a server is told. A failure of the model
        raises nothing: the rules check then.
        """
        answer = cited_answer(trajectory)
        pairs = pairs_of(answer)
        today = f"\n\nToday is {today}." if today else ""
        work = _work(self.policy, self._own, calls, today)
        if pairs:
            listener(SourceProgress(f"checking the citations ({len(pairs)}): {work.checker.name}"))
        with call_scope(trajectory.thread):
            await work.check(pairs)
            repairs = await self._repair(trajectory, work)
        checker = NAME if work.ruled == {*work.found} and pairs else work.checker.name
        found = _lower_doubted(work.found, answer)
        return self._outcome(checker, work.notes(), found, repairs), work.usage

    async def passes(
        self, claim: str, source: Source, asked: str, thread: str, calls: JournaledCalls
    ) -> bool:
        """Whether `verify` would find a claim in its source, at least in part, if it stood there.

        True where the model fails, too.
        """
        work, pairs = _work(self.policy, self._own, calls), _pairs(claim, [source], "", asked)
        with call_scope(thread):
            await work.check(pairs)
        return bool(work.ruled) or work.found[pairs[0]].verdict != "unsupported"

    def by_rules(
        self,
        trajectory: Trajectory,
        why: str,
        rule: Callable[[Pair], ClaimFinding] = lexical_finding,
    ) -> Verification:
        """Check by lexical rules, without any call; repair removes claims, as it cannot rewrite."""
        answer = cited_answer(trajectory)
        found = _lower_doubted({pair: rule(pair) for pair in pairs_of(answer)}, answer)
        failed = _failing(trajectory, found) if self._repairing(trajectory) else ()
        repairs = tuple(Repair(claim=said_in(u), statement=True) for u, _, whole in failed if whole)
        return self._outcome(NAME, why, found, repairs)

    @classmethod
    async def verify_together(
        cls, checker: Checker, runs: Sequence[Trajectory]
    ) -> tuple[list[Trajectory], Usage]:
        """The runs with all their claims checked in one call. Raises PolicyError if it fails."""
        pairs = [pairs_of(cited_answer(run)) for run in runs]
        every = list(dict.fromkeys(pair for each in pairs for pair in each))
        # Each run numbers its sources for itself.
        texts = dict.fromkeys(s.text for pair in every for s in (pair.source, *pair.beside))
        names = {text: f"S{number}" for number, text in enumerate(texts, start=1)}

        def named(source: Source) -> Source:
            return source.model_copy(update={"id": names[source.text]})

        asked = [
            replace(pair, source=named(pair.source), beside=tuple(map(named, pair.beside)))
            for pair in every
        ]
        said = await checker.check(asked) if asked else Findings(())
        found, checked = dict(zip(every, said.each, strict=True)), []
        for run, each in zip(runs, pairs, strict=True):
            own = _lower_doubted({pair: found[pair] for pair in each}, cited_answer(run))
            kept = cls("mark", None)._outcome(checker.name, "", own, ())
            checked.append(run.model_copy(update={"verification": kept}))
        return checked, said.usage

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
        """The repairs of statements with a claim that none of its sources supports.

        What cannot be rewritten is removed; if other claims of its statement hold, it stays marked.
        """
        if not self._repairing(trajectory):
            return ()
        failed = list(_failing(trajectory, work.found))
        texts = await asyncio.gather(*(work.rewrite(unit, pairs) for unit, pairs, _ in failed))
        tried = [
            Repair(claim=said_in(unit), became=text, statement=True)
            for text, (unit, _, whole) in zip(texts, failed, strict=True)
            if text or whole
        ]
        made = Verification(mode="repair", checker="", repairs=tuple(tried))
        after = trajectory.model_copy(update={"verification": made})
        await work.check(pairs_of(cited_answer(after)))
        whole = {said_in(unit) for unit, _, whole in failed if whole}
        for place, one in enumerate(tried):
            claims = _judged(one.became, after, work.found)
            told = [{work.found[pair].verdict for pair in pairs} for pairs in claims]
            if not told or not all("supported" in verdicts for verdicts in told):
                tried[place] = one.model_copy(update={"became": ""})
        return tuple(one for one in tried if one.became or one.claim in whole)


DOUBTED = "the model that wrote it is not certain of it"


def _lower_doubted(found: Found, answer: CitedAnswer) -> Found:
    """The findings, with what their own model doubts at most partially supported, unless quoted."""
    doubted = ClaimFinding("partial", DOUBTED)
    lowered = ("supported", "unchecked")
    held = (p for p, one in found.items() if one.verdict in lowered and not p.verbatim())
    return {**found, **{pair: doubted for pair in held if pair.claim in answer.doubted}}


def pairs_of(answer: CitedAnswer) -> tuple[Pair, ...]:
    """The (claim, source) pairs of an answer, each once.

    Orders to the reader in a source count as nothing that it states, unless the claim quotes one.
    """
    pairs = dict[Pair, None]()
    for piece in (piece for piece in answer.pieces if isinstance(piece, Cited)):
        first, sources = piece.citations[0], [c.source for c in piece.citations]
        pairs |= dict.fromkeys(_pairs(first.claim, sources, first.context, answer.question))
    return tuple(pairs)


def _pairs(claim: str, sources: Sequence[Source], context: str, asked: str) -> list[Pair]:
    """Those of one claim."""
    held = list(sources) if bids(claim) else [*map(statements_of, sources)]
    return [
        Pair(claim, own, (*held[:place], *held[place + 1 :]), context, asked)
        for place, own in enumerate(held)
    ]


def _work(
    policy: Policy | None, own: Checker | ChatModel | None, calls: JournaledCalls, today: str = ""
) -> _Work:
    """Who checks, with its calls and the rewriting journaled."""
    policy = policy and JournaledPolicy(policy, calls)
    if isinstance(own, Checker):
        return _Work(JournaledChecker(own, calls), policy, today)
    chat = JournaledChat(own, calls) if own else policy and policy.chat
    if chat:
        return _Work(ChatChecker(chat, today), policy, today)
    if policy and policy.reader:
        return _Work(ChoiceChecker(policy.reader), policy)
    return _Work(LexicalChecker(), None)


def _judged(statement: str, trajectory: Trajectory, found: Found) -> list[list[Pair]]:
    """The pairs of each claim of a statement, as they were checked."""
    said = said_in(statement)
    return [
        [
            pair
            for pair in found
            if (pair.claim == claim_of(piece.text) and pair.source.id in piece.ids)
            and said in (pair.context or said)
        ]
        for piece in pieces_in(statement, trajectory)
        if piece.ids
    ]


def _failing(trajectory: Trajectory, found: Found) -> Iterator[tuple[str, list[Pair], bool]]:
    """Each statement with a claim that no source supports even partially, once.

    Those claims follow, on every source of the statement, and whether all of its claims are such.
    """
    answer, seen = answer_of(trajectory), set[str]()
    for start, end in statements(answer):
        unit, said = answer[start:end], said_in(answer[start:end])
        claims = [] if said in seen else _judged(unit, trajectory, found)
        failed = [ps for ps in claims if {found[p].verdict for p in ps} == {"unsupported"}]
        if failed:
            seen.add(said)
            sources = {p.source.id: p.source for ps in (*failed, *claims) for p in ps}.values()
            pairs = [replace(ps[0], source=each, beside=()) for ps in failed for each in sources]
            yield unit, pairs, len(failed) == len(claims)
