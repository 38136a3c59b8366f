"""What runs found, as a judge is shown it, and what code can say of them.

A passage that several searches or runs found is shown once, whole, under a name to which the runs'
tool output refers. If not all fits, passages that nobody cites are left out whole. Then long cited
ones are cut to what stands nearest to the claims that cite them; a run's own text is cut last.

Code measures what a judge may overlook in a long text: how much of a stage is copied from tool
output, how much it says twice, and which claims the check of citations found no support for. A
judge on a server is told these as facts; by themselves they change no score.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from rubricem.judge.base import TAG, closest_span, fit_stages, stage_segments, stage_text
from rubricem.memory.ids import ids_named
from rubricem.memory.language import sentences
from rubricem.memory.schema import (
    BY_RULES,
    AnswerFormat,
    Author,
    Segment,
    Source,
    Stage,
    Trajectory,
)
from rubricem.memory.screening import runs_of, words_of
from rubricem.memory.text import LEFT_OUT, cut, fence, one_line, without_markers

ALL = tuple(Stage)
NOTHING: Mapping[str, str] = {}
_SNIPPET = re.compile(r'<snippet id="([^"<>]*)">\n(.*?)\n</snippet>', re.S)
_CITE = re.compile(r"<cite\b[^<>]*\bids?\s*=\s*[\"']([^\"'<>]*)[\"']")
ORIGIN_CHARACTERS = 240
LONG_PASSAGE = 4000
"""characters of a passage by which criteria are written"""
LEAST_PASSAGES = 4
"""one part in so many is kept for cited passages, however long the runs' own text is"""


@dataclass(frozen=True, slots=True)
class Layout:
    """Runs whose tool output refers to passages, and these passages, within some characters."""

    texts: tuple[str, ...]
    """each run's stages, fenced under their names; as much of one run as of the others"""
    passages: str
    """fenced, in the order of their names; "" if there are none"""
    notes: tuple[str, ...]
    """on each run: by which names its ids stand, where they are not these, and what code saw"""


def needs(runs: Sequence[Trajectory]) -> int:
    """Characters of what must be shown: the runs' own text, and each passage that one cites."""
    bare = [_referring(run, {s.text: s.id for s in _cited(run)}) for run in runs]
    cited = {source.text for run in runs for source in _cited(run)}
    return sum(map(_length, bare)) + sum(map(len, cited))


def show(
    runs: Sequence[Trajectory],
    characters: int,
    stages: Sequence[Stage] = ALL,
    before: Mapping[str, str] = NOTHING,
    group: Sequence[Trajectory] = (),
) -> Layout:
    """The runs' stages, with what they found once before them; without research what one cites.

    `before`: by the text of a passage that was shown already what refers to it. `group`: the runs
    whose passages have names in common, those that most found first, if not these alone: servers
    keep a beginning that several calls share.
    """
    group = group or runs
    found = _once(chain(*(run.sources for run in group)))
    names = {text: source.id for text, source in found.items()}
    if len(group) > 1:
        times = Counter(chain(*(_once(run.sources) for run in group)))
        names = {text: f"P{n}" for n, (text, _) in enumerate(times.most_common(), start=1)}
    claims: dict[str, list[str]] = {}
    for run in runs:
        checks = run.verification.checks if run.verification else ()
        for source in _cited(run):
            said = (check.claim for check in checks if check.source == source.id)
            claims.setdefault(source.text, []).extend(said)
    own = sum(_length(_referring(run, names), stages) for run in runs)
    least = characters // LEAST_PASSAGES
    most = _level([len(text) for text in claims], max(characters - own, least))
    texts = {text: before.get(text) or _near(text, said, most) for text, said in claims.items()}
    room = characters - own - sum(map(len, texts.values()))
    for text, body in _bodies(runs).items() if Stage.RESEARCH in stages else ():
        if text not in texts and len(body) <= room:
            texts[text], room = body, room - len(body)
    # A search often finds parts of a page that is shown whole.
    longest_last = sorted(texts, key=lambda text: len(texts[text]))
    whole = {t: o for t in texts for o in longest_last if t != o and t in texts[o]}
    texts |= {t: f"(stands in passage {names[o]})" for t, o in whole.items()}
    told = {
        f"passage {name}": f"{_origin(found[text])}\n{texts[text]}"
        for text, name in names.items()
        if text in texts
    }
    left = max(characters - sum(map(len, texts.values())), least)
    known = {text: name for text, name in names.items() if text in texts}
    referring = tuple(_referring(run, known) for run in runs)
    keys = [_key(run, known) if len(group) > 1 else "" for run in runs]
    notes = (f"{k}\n{measured(run, stages)}".strip() for k, run in zip(keys, runs, strict=True))
    share = min(1.0, left / max(own, 1))
    fitted = (fit_stages(run, stages, int(share * _length(run, stages))) for run in referring)
    shown = (fence({stage.value: text for stage, text in each}) for each in fitted)
    return Layout(tuple(shown), fence(told), tuple(notes))


def answer_shown(run: Trajectory, characters: int, before: Mapping[str, str] = NOTHING) -> str:
    """The answer, the passages that it cites, and what code says of it, each fenced."""
    text = stage_text(run, Stage.ANSWER)
    evidence = evidence_of(run, characters - len(text), before)
    return f"{fence({'answer': text})}\n\n{evidence}" if evidence else text


def pair_shown(first: Trajectory, second: Trajectory, characters: int) -> tuple[str, str]:
    """Two answers as above; of what both cite the second refers to what stands behind the first."""
    shown = answer_shown(first, characters)
    whole = (source for source in _cited(first) if source.text in shown)
    before = {source.text: f"(as passage {source.id} of reply A)" for source in whole}
    return shown, answer_shown(second, characters, before)


def evidence_of(run: Trajectory, characters: int, before: Mapping[str, str] = NOTHING) -> str:
    """What stands beside an answer: the passages that it cites, and what code says of it."""
    shown = show([run], characters, (Stage.ANSWER,), before)
    return "\n\n".join(filter(None, (shown.passages, *shown.notes)))


def found_in(runs: Sequence[Trajectory]) -> list[Source]:
    """What runs found, each text once; what one cites comes first."""
    cited = (source for run in runs for source in _cited(run))
    return list(_once(chain(cited, *(run.sources for run in runs))).values())


def _once(sources: Iterable[Source]) -> dict[str, Source]:
    """By its text the first source that has it."""
    found: dict[str, Source] = {}
    for source in sources:
        found.setdefault(source.text, source)
    return found


def found_text(found: Sequence[Source], characters: int) -> str:
    """As many of the passages as fit, fenced under numbers; "" if there are none."""
    parts: dict[str, str] = {}
    for number, source in enumerate(found, start=1):
        text = cut(f"{_origin(source)}\n{source.text}", LONG_PASSAGE)
        known = any(source.text in shown for shown in parts.values())
        if len(text) <= characters and not known:
            parts[f"passage {number}"], characters = text, characters - len(text)
    return fence(parts)


def _origin(source: Source) -> str:
    """Its title and where it stands: the file or host is often all that names the product."""
    told = (source.title, source.location, source.place)
    return one_line(", ".join(filter(None, dict.fromkeys(told))), ORIGIN_CHARACTERS)


def _cited(run: Trajectory) -> list[Source]:
    """The sources that review or answer name."""
    written = (_by(run, stage, Author.POLICY) for stage in (Stage.REVIEW, Stage.ANSWER))
    named = {name for part in written for s in part for name in ids_named(s.text)}
    return [source for source in run.sources if source.id in named]


def _length(run: Trajectory, stages: Iterable[Stage] = ALL) -> int:
    return sum(len(stage_text(run, stage)) for stage in stages)


def _bodies(runs: Iterable[Trajectory]) -> dict[str, str]:
    """By the text of a source what runs were shown of it."""
    bodies: dict[str, str] = {}
    for run in runs:
        known = {source.id: source for source in run.sources}
        for segment in (s for stage in Stage for s in _by(run, stage, Author.TOOL)):
            for name, body in _SNIPPET.findall(segment.text):
                # Of one that was shown before there is but a line that says so.
                if "\n" in body and (source := known.get(name)):
                    stands = ", ".join(filter(None, (source.location, source.place)))
                    body = body.removeprefix(f"{source.title}\n").removeprefix(f"{stands}\n")
                    bodies[source.text] = max(body, bodies.get(source.text, ""), key=len)
    return bodies


def _referring(run: Trajectory, names: Mapping[str, str]) -> Trajectory:
    """The run with the names of passages, or that they are left out, in place of their text."""
    known = {source.id: source for source in run.sources}

    def refer(found: re.Match[str]) -> str:
        if (source := known.get(found[1])) is None:
            return found[0]
        name = names.get(source.text)
        origin = _origin(source)
        told = f"passage {name}" if name else f"{origin} (left out: nobody cites it)"
        return f'<snippet id="{source.id}">{told}</snippet>'

    return _with_snippets(run, refer)


def without_repeats(run: Trajectory, other: Trajectory) -> Trajectory:
    """The other run where it is shown behind the first: what both were shown stands there alone."""
    tools = (s.text for s in run.segments if s.author is Author.TOOL)
    known = {body: name for text in tools for name, body in _SNIPPET.findall(text)}

    def refer(found: re.Match[str]) -> str:
        name = known.get(found[2])
        told = f'<snippet id="{found[1]}">the same as {name} of the first run</snippet>'
        return told if name else found[0]

    return _with_snippets(other, refer)


def _with_snippets(run: Trajectory, refer: Callable[[re.Match[str]], str]) -> Trajectory:
    segments = tuple(
        s.model_copy(update={"text": _SNIPPET.sub(refer, s.text)}) if s.author is Author.TOOL else s
        for s in run.segments
    )
    return run.model_copy(update={"segments": segments})


def _key(run: Trajectory, names: Mapping[str, str]) -> str:
    told = [f"{source.id} is {names[source.text]}" for source in _cited(run)]
    return f"Of what it cites, {', '.join(told)}." if told else ""


def _level(lengths: Sequence[int], room: int) -> int:
    """The most characters that each text may have, so that all together fit."""
    for place, length in enumerate(ordered := sorted(lengths)):
        each = room // (len(ordered) - place)
        if length > each:
            return each
        room -= length
    return max(lengths, default=0)


def _near(text: str, claims: Sequence[str], characters: int) -> str:
    """The text, or in so many characters what stands around the sentences nearest to claims."""
    if len(text) <= characters or not claims:
        return cut(text, characters)
    each = max(characters // len(claims) - len(LEFT_OUT), 1)
    parts: list[tuple[int, int]] = []
    for at in sorted(max(text.find(closest_span(claim, text)), 0) for claim in claims):
        start = min(max(at - each // 3, parts[-1][1] if parts else 0), len(text))
        parts.append((start, min(start + each, len(text))))
    return LEFT_OUT.join(text[start:end] for start, end in parts if end > start)


COPIED_WORDS = 12
"""in a row that stand in a tool's output just so"""
LOOKED_AT = 40
"""of a stage that is looked at for copying and repetition"""
COPIED_SHARE, REPEATED_SHARE = 0.5, 0.25
"""of a stage's words from which it is told"""
LEAST_SENTENCE = 5
"""words of a sentence that counts as said twice"""


FORM = {
    AnswerFormat.SHORT: "one paragraph",
    AnswerFormat.EXACT: "a short justification, and in the last line the bare answer alone",
}
"""what an answer was to be that was not to be a report"""
MOST_DOUBTED, DOUBTED_CHARACTERS = 8, 200
"""claims without support that are told, and characters of each"""


def measured(trajectory: Trajectory, stages: Iterable[Stage] = ALL) -> str:
    """What code, or a model that checked, says of a run's stages, to stand below them.

    "" if they have nothing to say. Only what code is sure of is told as measured.
    """
    checked = trajectory.verification
    code, model = observations(trajectory, stages), list(_doubts(trajectory))
    if checked is None or checked.checker == BY_RULES:
        code, model = [*code, *model], []
    told = {"Measured by code:": code, "Doubted by a model that read the passages:": model}
    return "\n".join(
        line for head, said in told.items() if said for line in (head, *(f"- {s}" for s in said))
    )


def observations(trajectory: Trajectory, stages: Iterable[Stage] = ALL) -> list[str]:
    """A line for each thing that code sees in the stages, then on the ids that the answer cites."""
    seen = [said for stage in stages for said in _of_stage(trajectory, stage)]
    if wanted := FORM.get(trajectory.answer_format):
        seen.append(f"answer: the agent was asked for {wanted}")
    cited = cited_in(stage_text(trajectory, Stage.ANSWER))
    if unknown := len(set(cited) - {source.id for source in trajectory.sources}):
        seen.append(f"answer: of the {len(cited)} sources that it cites, no search found {unknown}")
    return seen


def _doubts(trajectory: Trajectory) -> Iterator[str]:
    """Each claim without support, with the reason."""
    checks = trajectory.verification.checks if trajectory.verification else ()
    doubted = [check for check in checks if check.verdict == "unsupported"]
    for check in doubted[:MOST_DOUBTED]:
        # A claim is the run's own text: it must not be able to end its quotation.
        claim, why = (
            cut(without_markers(one_line(text)).replace('"', "'"), DOUBTED_CHARACTERS)
            for text in (check.claim, check.reason)
        )
        yield f'answer: {check.source} is cited for "{claim}": {why or "it does not bear that out"}'


def cited_in(text: str) -> list[str]:
    """The ids that the cites of a text name, each once."""
    found = (ids_named(ids) or re.split(r"[\s,;]+", ids) for ids in _CITE.findall(text))
    return list(dict.fromkeys(name for names in found for name in names if name))


def copied_share(text: str, sources: str) -> float:
    """Share of a text's words that stand in runs of `COPIED_WORDS` in the sources; 0 to 1."""
    words, copied = words_of(text), set[int]()
    known = frozenset(runs_of(words_of(sources), COPIED_WORDS))
    for at, run in enumerate(runs_of(words, COPIED_WORDS)):
        if run in known:
            copied.update(range(at, at + COPIED_WORDS))
    return len(copied) / len(words) if words else 0.0


def repeated_share(text: str) -> float:
    """Share of a text's words in sentences that it has said before; 0 to 1."""
    plain = TAG.sub("\n\n", text).replace("\n", "\n\n")
    said = Counter(sentence.casefold().rstrip(" .!?") for sentence in sentences(plain))
    repeated = sum(
        words * (times - 1)
        for sentence, times in said.items()
        if times > 1 and (words := len(words_of(sentence))) >= LEAST_SENTENCE
    )
    total = len(words_of(text))
    return repeated / total if total else 0.0


def _of_stage(trajectory: Trajectory, stage: Stage) -> Iterator[str]:
    text = "\n".join(s.text for s in _by(trajectory, stage, Author.POLICY))
    if len(words_of(text)) < LOOKED_AT:
        return
    found = "\n".join(s.text for one in Stage for s in _by(trajectory, one, Author.TOOL))
    if (share := copied_share(text, found)) >= COPIED_SHARE:
        yield f"{stage}: {share:.0%} of its words are copied from tool output as they stand there"
    if (share := repeated_share(text)) >= REPEATED_SHARE:
        yield f"{stage}: {share:.0%} of its words are in sentences that it had said before"


def _by(trajectory: Trajectory, stage: Stage, author: Author) -> Iterator[Segment]:
    return (s for s in stage_segments(trajectory, stage) if s.author is author)
