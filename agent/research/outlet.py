"""What a run may do that reaches beyond reading: what it may send, and which tools may act.

Once a run has read private text, a query leaves for a public service only if each of its words
stands in the question or in public text that was shown, or is common; and if it does not put
together what stands together in private text alone. What leaves are then the checked words, folded
and once each, since signs, capitals and repetitions could carry something, too. An address leaves
only if the question or a public text has it. Anything else needs a person's word. A choice among
words that may leave says something as well, more so where a public page lists many: a few bits a
query, which no rule over words can stop.

A tool that acts (its server does not mark it as read-only) is called only where the settings name
it as unasked, or where a person allows it before the run has read any text of others. An order in
such text can therefore not have a tool called, whatever the model makes of it. Decisions are made
in the graph's `consent` node, one at a time; calls only look them up.
"""

import tomllib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain
from typing import Any, Literal

from rubricem.agent.sources.fetch import addresses_in, normal
from rubricem.agent.sources.mcp_client import Equipped
from rubricem.agent.transcript.question import ALWAYS, NEVER, RUN, Found, Permission
from rubricem.memory.language import WORD, language_of, sentences, words_in

TOGETHER = 3
"""words of one private sentence that do not leave together"""
LONG_NUMBER = 4
"""digits of a number that is looked for in all digits of a query"""
SPELLED = 3
"""letters that stand alone in a query, from which they may spell something"""
_NUMBERS = "zero one two three four five six seven eight nine"
_DIGITS = {word: str(digit) for digit, word in enumerate(_NUMBERS.split())}


@dataclass
class _Texts:
    """Texts of one kind, and their words by the language of a query."""

    texts: list[str] = field(default_factory=list)
    _forms: dict[str, tuple[int, set[str]]] = field(default_factory=dict)

    def forms(self, language: str) -> set[str]:
        known, forms = self._forms.get(language, (0, set()))
        for text in self.texts[known:]:
            forms |= words_in(text, language)
        self._forms[language] = len(self.texts), forms
        return forms

    def sentences(self, language: str) -> Iterator[frozenset[str]]:
        return chain.from_iterable(_sentences_of(text, language) for text in self.texts)

    def with_digits(self) -> set[str]:
        """The words that have digits, as they are written."""
        return set().union(*map(_with_digits, self.texts))

    def numbers(self) -> set[str]:
        digits = ("".join(filter(str.isdigit, word)) for word in self.with_digits())
        return {each for each in digits if len(each) >= LONG_NUMBER}


@dataclass
class Outlet:
    """What one run has shown its policy, by kind, and what may leave it therefore."""

    allows: Callable[[str, str], bool] = lambda service, text: False
    """whether a person allowed that this is sent to this service"""
    public: _Texts = field(default_factory=_Texts)
    """and what the person said who asked"""
    private: _Texts = field(default_factory=_Texts)
    lent: int = 0
    """private texts that only its lead was shown"""
    _coming: list[tuple[_Texts, str]] = field(default_factory=list)
    """shown since the policy wrote the calls that are being made"""

    def say(self, *texts: str) -> None:
        self.public.texts += texts

    def hold(self, *texts: str) -> None:
        """Note private texts beside passages, such as an earlier report or a lesson."""
        if told := "\n".join(texts).strip():
            self._coming.append((self.private, told))

    def see(self, found: Found, *, private: bool = False) -> None:
        """Note what a call has shown; `private`: also its words beside the passages are."""
        held = private or not all(source.public for source in found.sources)
        for source in found.sources:
            kind = self.public if source.public else self.private
            where = (source.location, *source.copies)
            self._coming.append(
                (kind, "\n".join((source.title, *where, source.place, source.text)))
            )
        if private:
            self.hold(found.note, found.error)
        if told := "\n".join(claim.text for claim in found.claims).strip():
            self._coming.append((self.private if held else self.public, told))

    def turn(self) -> None:
        """What was shown so far counts for what the policy has written after it."""
        for kind, text in self._coming:
            kind.texts.append(text)
        self._coming.clear()

    @property
    def guards(self) -> bool:
        """Whether private text was shown."""
        shown = len(self.private.texts) > self.lent
        return shown or any(kind is self.private for kind, _ in self._coming)

    def below(self, question: str, services: Sequence[str]) -> "Outlet":
        """That of an investigation by these services: it knows what its question may tell of."""
        public, private = (_Texts([*each.texts]) for each in (self.public, self.private))
        made = Outlet(self.allows, public, private, lent=len(private.texts))
        if not self.refusal(question, services):
            made.say(question)
            made.lent *= not self.strange(question)
        return made

    def refusal(self, text: str, services: Sequence[str]) -> str:
        """Why one of them may not be sent a text; "": all may."""
        return next((why for each in services if (why := self.let_out(each, text)[1])), "")

    def let_out(self, service: str, text: str, *, address: bool = False) -> tuple[str, str]:
        """What may be sent, and "" or the reason why nothing may."""
        if not self.private.texts or self.allows(service, text):
            return text, ""
        if address:
            return text, "" if self._is_told(text) else "Its address stands in no public text."
        if strange := self.strange(text):
            told = ", ".join(strange)
            return text, f"Not sent to {service}, since private text was read: {told}. {REMEDY}"
        return " ".join(dict.fromkeys(_words(text))), ""

    def strange(self, text: str) -> list[str]:
        """The words for which a text may not leave; those that may not do so together are one."""
        if not self.private.texts:
            return []
        written, code = _words(text), language_of(text) or "en"
        private, (plain, common) = self.private.forms(code), _known_words()
        free = self.public.forms(code) | plain | (common - private)
        found = [
            word
            for word in written
            if not words_in(_bare(word), code) <= free
            or (any(map(str.isdigit, word)) and not self._stands(word))
        ]
        letters = [w for w in written if len(w) == 1 and w.isalpha() and w not in "ai"]
        found += letters if len(letters) >= SPELLED else []
        digits = "".join(_DIGITS.get(w, "".join(filter(str.isdigit, w))) for w in written)
        found += [n for n in self.private.numbers() - self.public.numbers() if n in digits]
        found += [each for each in addresses_in(text) if not self._is_told(each)]
        if not found:
            together = self._together(words_in(text, code) - plain, code)
            joined = dict.fromkeys(word for word in written if words_in(word, code) & together)
            found = [" with ".join(joined)] if joined else []
        return list(dict.fromkeys(found or ([] if written else ["signs"])))

    def _is_told(self, address: str) -> bool:
        """Whether the whole address stands in text that may leave."""
        return any(normal(address) in addresses_in(each) for each in self.public.texts)

    def _stands(self, word: str) -> bool:
        """Whether a word with digits stands in text that may leave as it is written here."""
        return word in self.public.with_digits()

    def _together(self, words: frozenset[str], code: str) -> frozenset[str]:
        """Words that stand in one sentence of private text, and in none of other text."""
        for sentence in self.private.sentences(code):
            shared = words & sentence
            told = map(shared.issubset, self.public.sentences(code))
            if len(shared) >= TOGETHER and not any(told):
                return shared
        return frozenset()


@lru_cache(2**12)  # all that a run was shown is asked for each of its queries
def _sentences_of(text: str, language: str) -> tuple[frozenset[str], ...]:
    return tuple(words_in(sentence, language) for sentence in sentences(text))


@lru_cache(2**12)
def _with_digits(text: str) -> frozenset[str]:
    return frozenset(word for word in _words(text) if any(map(str.isdigit, word)))


REMEDY = (
    "Ask in words of the question or of public passages, or in common ones, and without what only "
    "private text puts together."
)


def _words(text: str) -> list[str]:
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'"))


def _bare(word: str) -> str:
    """A word without what an apostrophe may hide: any word before n't has the form of "not"."""
    return word.removesuffix("'s").replace("'", "")


@cache
def _known_words() -> tuple[frozenset[str], frozenset[str]]:
    """Words that everybody's questions have: the plain ones, and all others."""
    table = tomllib.loads((files("rubricem.memory") / "common_words.toml").read_text("utf-8"))
    plain, common = (words_in(table[name], "en") for name in ("plain", "common"))
    return plain, common


FOREIGN = (
    "It acts, and nothing that acts is called once text of sources was read, unless the settings "
    "name it as unasked."
)
NOBODY = "It acts, and nobody is here who could allow it."
REFUSED = "The person who asked did not allow it."

What = Literal["act", "send"]


@dataclass
class Consents:
    """What was allowed in one run, by what is done and where."""

    attended: bool = False
    """whether there is a person who can be asked"""
    _turn: int = 0
    _run: dict[tuple[What, str], bool] = field(default_factory=dict)
    """decided for the rest of the run: whether it is allowed"""
    _once: dict[tuple[What, str], str] = field(default_factory=dict)
    """by what was to be done in this turn: why not; "": it is allowed"""

    def begin(self, turn: int) -> None:
        """What was allowed once is over with its turn."""
        if turn != self._turn:
            self._turn, self._once = turn, {}

    def asked(self, tools: Equipped | None, action: str, *, read: bool) -> dict[str, Any] | None:
        """What a person is to be asked before a call; None: it is decided, or needs nobody.

        `read`: whether the run has read text of others.
        """
        name, _, written = action.partition(" ")
        key: tuple[What, str] = "act", action
        if tools is None or key in self._once or not tools.acts(name):
            return None
        known = self._run.get(("act", name))
        if read:
            self._once[key] = FOREIGN
        elif known is not None or tools.is_allowed(name):
            self._once[key] = "" if known is not False else REFUSED
        elif not self.attended:
            self._once[key] = NOBODY
        else:
            choices = ["once", RUN, ALWAYS, NEVER]
            return permit("act", name, written, choices)
        return None

    def asked_to_send(self, to: str, text: str) -> dict[str, Any] | None:
        """What a person is to be asked before private text may leave; None: nothing."""
        if not self.attended or ("send", text) in self._once or ("send", to) in self._run:
            return None
        return permit("send", to, text, ["once", RUN, NEVER])

    def allows(self, service: str, text: str) -> bool:
        """Whether a person allowed that this text is sent to a service, or any is to it."""
        run = (to for (what, to), allowed in self._run.items() if what == "send" and allowed)
        if any(service in to.split(", ") for to in run):
            return True
        once = (about for (what, about), why in self._once.items() if what == "send" and not why)
        return any(text in about for about in once)

    def take(self, asked: Mapping[str, Any], about: str, said: Permission) -> None:
        """Keep a person's decision; `about`: the action or the text that it is on."""
        what, to = asked["what"], asked["to"]
        allowed = said.verdict != NEVER
        self._once[what, about] = "" if allowed else REFUSED
        if said.verdict != "once":
            self._run[what, to] = allowed

    def refusal(self, action: str) -> str:
        """Why a tool that acts may not be called; "": it may."""
        return self._once.get(("act", action), NOBODY)


def permit(what: What, to: str, text: str, choices: list[str]) -> dict[str, Any]:
    """A question to a person: may this be done?"""
    return {"ask": "permit", "what": what, "to": to, "text": text, "choices": choices}
