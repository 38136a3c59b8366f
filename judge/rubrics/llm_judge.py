"""A rubric whose score a language model writes.

The template holds {action} and {observation}. Without a pattern of one's own the reply is read
as people write scores: with a sign, a percent sign, a denominator, a decimal comma.
"""

import copy
import re
from collections.abc import Mapping
from string import Formatter
from typing import Any

from judge.rubrics.base import Rubric
from judge.rubrics.llm_client import Completer, asked
from judge.rubrics.score_reading import score_in
from memory.text import without_markers

_FIELDS = ("action", "observation")
_FIELD = re.compile(r"\{(action|observation)\}")


class LLMJudge(Rubric):
    """The number in the model's reply, divided by `scale`; `default_score` where there is none.

    `score_pattern` is a regular expression: its first group, or all of it where it has none, is
    the number at its first match. `normalize` then holds the score within 0 and 1; the default
    score is given as it is, and may be NaN for unknown. `scale` is the best score that the
    prompt allows, such as 10. What the client raises is raised.
    """

    def __init__(
        self,
        prompt_template: str,
        client: Completer,
        *,
        score_pattern: str | None = None,
        default_score: float = 0.0,
        normalize: bool = True,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.prompt_template = prompt_template
        self.default_score = default_score
        self.normalize = normalize
        self.scale = scale
        self._client = client
        self._score_pattern = _compiled(score_pattern)

    async def forward(self, action: Any, observation: Any) -> float:
        prompt = _filled(self.prompt_template, {"action": action, "observation": observation})
        score = self._read(await asked(self._client, prompt))
        if score is None:
            return self.default_score
        score /= self.scale
        return min(max(score, 0.0), 1.0) if self.normalize else score

    def __deepcopy__(self, memo: dict[int, Any]) -> "LLMJudge":
        # A client is a connection, which copies share.
        memo[id(self._client)] = self._client
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def _read(self, reply: str) -> float | None:
        if self._score_pattern is None:
            return score_in(reply)
        found = self._score_pattern.search(reply)
        if found is None:
            return None
        try:
            return float(found[1] if found.lastindex else found[0])
        except (TypeError, ValueError):
            return None

    def state_dict(self) -> dict[str, Any]:
        pattern = self._score_pattern
        return {
            "prompt_template": self.prompt_template,
            "score_pattern": None if pattern is None else pattern.pattern,
            "default_score": self.default_score,
            "normalize": self.normalize,
            "scale": self.scale,
            **super().state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.prompt_template = state.get("prompt_template", self.prompt_template)
        self.default_score = state.get("default_score", self.default_score)
        self.normalize = state.get("normalize", self.normalize)
        self.scale = state.get("scale", self.scale)
        if "score_pattern" in state:
            self._score_pattern = _compiled(state["score_pattern"])


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    return None if pattern is None else re.compile(pattern)


def _filled(template: str, values: Mapping[str, Any]) -> str:
    """The prompt. Braces that are no field, as in an example of JSON, stay as they are."""
    filled = (
        template.format(**values)
        if _is_format(template)
        else _FIELD.sub(lambda field: str(values[field[1]]), template)
    )
    return without_markers(filled)


def _is_format(template: str) -> bool:
    """Whether str.format can fill it, so that {{ and fields such as {action.text} count."""
    try:
        names = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError:
        return False
    return all(re.split(r"[.\[]", name, maxsplit=1)[0] in _FIELDS for name in names)
