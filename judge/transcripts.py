"""A trajectory as a judge reads it: the text of each stage, fenced, and cut to what fits.

All of it is untrusted. A fence carries a name that its content cannot foresee, chat markers
are disarmed, and where a text must be shortened, tool output goes first. Of a group that is read
as a whole what all runs share comes once, then what sets each apart.

Code finds for a judge the sentence nearest to a criterion, and the cites: both say where to look
and prove nothing. It also sees some ways in which a run may court its judge, copying, padding and
pleading. The judge is told these as facts beside the text, since a long text hides them well; they
touch no score by themselves, and an honest run has none.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from rubricem.memory.interfaces import Passage
from rubricem.memory.schema import Author, Decoding, Segment, Stage, Status, Trajectory
from rubricem.memory.screening.orders import pleading
from rubricem.memory.text import cut, fenced

LEAST_TOOL_CHARACTERS = 160
"""of one tool output, however little fits"""


def stage_segments(trajectory: Trajectory, stage: Stage) -> list[Segment]:
    """What was written or found in a stage. In free mode the runner's notes are no part of it."""
    forced = trajectory.decoding is Decoding.FORCED
    return [
        segment
        for segment in trajectory.segments
        if segment.kept
        and segment.stage is stage
        and (forced or segment.author is not Author.PROMPT)
    ]


def stage_text(trajectory: Trajectory, stage: Stage, tool_characters: int | None = None) -> str:
    """The text of a stage; of each tool output at most so many characters."""
    return "".join(
        cut(segment.text, tool_characters) if segment.author is Author.TOOL else segment.text
        for segment in stage_segments(trajectory, stage)
    ).strip()


def written(trajectory: Trajectory, stage: Stage) -> bool:
    """Whether the policy itself wrote anything in the stage."""
    return any(
        segment.author is Author.POLICY and segment.text.strip()
        for segment in stage_segments(trajectory, stage)
    )


def cut_off(trajectory: Trajectory, stage: Stage) -> str:
    """Why the stage was ended, or kept from being written, by other than the policy; or "".

    A run that failed broke off in the last stage it wrote, unless its answer was complete. A
    forced answer that holds nothing of the policy's because nothing was found is the tool's.
    """
    stages = list(Stage)
    cut = trajectory.cut_in
    if cut is not None and stages.index(stage) >= stages.index(cut):
        return f"the run was broken off: {trajectory.reason}"
    if trajectory.status is Status.FAILED:
        last = max((stages.index(s) for s in stages if written(trajectory, s)), default=0)
        complete = stage is Stage.ANSWER and "</answer>" in stage_text(trajectory, stage)
        if stages.index(stage) >= last and not complete:
            return f"the run broke off: {trajectory.reason}"
    forced = trajectory.decoding is Decoding.FORCED
    if forced and stage is Stage.ANSWER and not trajectory.sources:
        return f"there was nothing to answer from: {trajectory.reason}"
    return ""


def shown(trajectory: Trajectory, characters: int) -> str:
    """All stages, each under its name, in so many characters and their fences."""
    return fenced(
        {stage.value: text for stage, text in fitted_stages(trajectory, Stage, characters)}
    )


def shown_stage(trajectory: Trajectory, stage: Stage, characters: int) -> str:
    """One stage in so many characters, without a fence."""
    return dict(fitted_stages(trajectory, [stage], characters))[stage]


def shown_passages(passages: Sequence[Passage], characters: int) -> str:
    """Passages under their titles, in so many characters and their fences."""
    each = characters // max(len(passages), 1)
    return "\n".join(
        fenced({"passage": cut(f"{passage.title}\n{passage.text}", each)}) for passage in passages
    )


def distinct(trajectories: Sequence[Trajectory]) -> list[int]:
    """Places of the trajectories that say something another before them does not."""
    seen: set[str] = set()
    places = []
    for place, trajectory in enumerate(trajectories):
        text = trajectory.transcript()
        if text not in seen:
            seen.add(text)
            places.append(place)
    return places


def fitted_stages(
    trajectory: Trajectory, stages: Iterable[Stage], characters: int
) -> list[tuple[Stage, str]]:
    """The stages' texts: tool outputs share the room that the rest leaves; then all is cut."""
    chosen = list(stages)
    segments = [s for stage in chosen for s in stage_segments(trajectory, stage)]
    outputs = sum(s.author is Author.TOOL for s in segments)
    own = sum(len(s.text) for s in segments if s.author is not Author.TOOL)
    each = max((characters - own) // max(outputs, 1), LEAST_TOOL_CHARACTERS)
    texts = [(stage, stage_text(trajectory, stage, each)) for stage in chosen]
    scale = min(1.0, characters / max(sum(len(text) for _, text in texts), 1))
    return [(stage, cut(text, int(len(text) * scale))) for stage, text in texts]


_PIECE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(<])|\n+")
_TAG = re.compile(r"</?[a-z_]+(?:\s[^<>]*)?>")
_CITE = re.compile(r"<cite\b[^<>]*\bids?\s*=\s*[\"']([^\"'<>]*)[\"']")
_WORD = re.compile(r"[^\W_]+")
_COMMON_WORDS = (
    "a an and are as at be by for from has have how in is it its not of on or that the their this "
    "to was were what when which with agent answer question says stage"
)
_COMMON = frozenset(_COMMON_WORDS.split())
MOST_CHARACTERS = 300


def words_of(text: str) -> frozenset[str]:
    """Words that carry content, without case and a plural's s."""
    words = (word.casefold() for word in _WORD.findall(text))
    return frozenset(w.removesuffix("s") if len(w) > 3 else w for w in words if w not in _COMMON)


def closest_span(criterion: str, text: str) -> str:
    """The closest sentence, or cited claim; of equals the shortest; "" if none shares a word."""
    words = words_of(criterion)
    best, rank = "", (0, 0)
    for piece in _PIECE.split(_TAG.sub("\n", text)):
        plain = piece.strip()
        shared = len(words & words_of(plain))
        if shared and (shared, -len(plain)) > rank:
            best, rank = plain, (shared, -len(plain))
    return best[:MOST_CHARACTERS]


def cites_of(text: str, known: Collection[str]) -> str:
    """Which sources a text cites, in words; `known`: the ids of those that were really found."""
    named = dict.fromkeys(name for ids in _CITE.findall(text) for name in re.split(r"[\s,;]+", ids))
    real = [name for name in named if name in known]
    foreign = sum(bool(name) for name in named) - len(real)
    also = f", and {foreign} that were never found" if foreign else ""
    return f"{', '.join(real) or 'none'}{also}"


NOTHING = "(nothing beyond what is shared)"


@dataclass(frozen=True, slots=True)
class GroupText:
    """The shared beginning, empty if there is none, and one text for each trajectory."""

    shared: str
    attempts: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether no trajectory has anything that another has not."""
        return len(self.attempts) > 1 and set(self.attempts) == {NOTHING}


def group_text(trajectories: Sequence[Trajectory], characters: int) -> GroupText:
    """The longest run of segments that all begin with, and each one's rest, in so many characters.

    A lone trajectory shares nothing: all of it is its own.
    """
    whole = [[s for s in t.segments if s.kept and s.stage] for t in trajectories]
    length = shared_length(whole) if len(whole) > 1 else 0
    each = characters // (len(whole) + (length > 0))
    first = _shown(trajectories[0], whole[0][:length], each) if length else ""
    rests = (_shown(t, s[length:], each) for t, s in zip(trajectories, whole, strict=True))
    return GroupText(first, tuple(rest or NOTHING for rest in rests))


def shared_length(segments: Sequence[Sequence[Segment]]) -> int:
    """How many leading segments say the same, by the same author in the same stage."""
    count = 0
    for together in zip(*segments, strict=False):
        if len({(s.author, s.stage, s.text) for s in together}) > 1:
            break
        count += 1
    return count


def unreadable(trajectories: Sequence[Trajectory]) -> list[str]:
    """For each one why it cannot be held against others, or "".

    That is one cut off by others than the policy, and all of them where none holds anything. An
    empty one among others is simply the weakest.
    """
    if not any(written(trajectory, stage) for trajectory in trajectories for stage in Stage):
        return ["nothing was written"] * len(trajectories)
    return [cut_off(trajectory, Stage.ANSWER) for trajectory in trajectories]


def _shown(trajectory: Trajectory, segments: Sequence[Segment], characters: int) -> str:
    """The segments stage by stage, those stages left out that have none."""
    part = trajectory.model_copy(update={"segments": tuple(segments)})
    texts = {stage.value: text for stage, text in fitted_stages(part, Stage, characters) if text}
    return fenced(texts)


COPIED_WORDS = 12
"""in a row that stand in a tool's output just so"""
LEAST_WORDS = 40
"""of a stage that is looked at for copying and repetition"""
COPIED_SHARE, REPEATED_SHARE = 0.5, 0.25
"""of a stage's words from which it is told"""
LEAST_SENTENCE = 5
"""words of a sentence that counts as said twice"""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def observations(trajectory: Trajectory) -> list[str]:
    """A sentence for each thing seen, in the order of the stages."""
    return [said for stage in Stage for said in _of_stage(trajectory, stage)]


def copied_share(text: str, sources: str) -> float:
    """Share of a text's words that stand in runs of `COPIED_WORDS` in the sources; 0 to 1."""
    words = _words(text)
    if _landmarks(sources).isdisjoint(_runs(words, COPIED_WORDS // 2)):
        return 0.0
    known, copied = frozenset(_runs(_words(sources), COPIED_WORDS)), set[int]()
    for at, run in enumerate(_runs(words, COPIED_WORDS)):
        if run in known:
            copied.update(range(at, at + COPIED_WORDS))
    return len(copied) / len(words) if words else 0.0


def repeated_share(text: str) -> float:
    """Share of a text's words in sentences that it has said before; 0 to 1."""
    sentences = Counter(s.strip() for s in _SENTENCE.split(_TAG.sub("\n", text.casefold())))
    repeated = sum(
        words * (times - 1)
        for sentence, times in sentences.items()
        if times > 1 and (words := len(_words(sentence))) >= LEAST_SENTENCE
    )
    total = len(_words(text))
    return repeated / total if total else 0.0


def _of_stage(trajectory: Trajectory, stage: Stage) -> Iterator[str]:
    text = "\n".join(s.text for s in _by(trajectory, stage, Author.POLICY))
    if pleading(text):
        yield f"{stage}: it speaks to its judge, which is no part of the work"
    if len(_words(text)) < LEAST_WORDS:
        return
    found = "\n".join(s.text for one in Stage for s in _by(trajectory, one, Author.TOOL))
    if (share := copied_share(text, found)) >= COPIED_SHARE:
        yield f"{stage}: {share:.0%} of its words are copied from tool output as they stand there"
    if (share := repeated_share(text)) >= REPEATED_SHARE:
        yield f"{stage}: {share:.0%} of its words are in sentences that it had said before"


def _by(trajectory: Trajectory, stage: Stage, author: Author) -> Iterator[Segment]:
    return (s for s in stage_segments(trajectory, stage) if s.author is author)


@lru_cache(maxsize=8)
def _words(text: str) -> tuple[str, ...]:
    """Kept, as the stages of a trajectory are held against the same sources in turn."""
    folded = text.casefold()
    return tuple(_WORD.findall(_TAG.sub(" ", folded) if "<" in folded else folded))


@lru_cache(maxsize=1)
def _landmarks(sources: str) -> frozenset[tuple[str, ...]]:
    """Every sixth run of six words: whatever is copied in runs of twelve has one of them in it.

    An honest text has none, and is spared the set of all runs.
    """
    half = COPIED_WORDS // 2
    return frozenset(islice(_runs(_words(sources), half), None, None, half))


def _runs(words: Sequence[str], length: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[i:] for i in range(length)), strict=False)
