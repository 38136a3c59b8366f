"""The pairwise judge on a local model that was trained to write its reasoning and a verdict.

Where an untrained small model is only read for its probabilities (`judge.pairwise_choice`), one
that `rubricem train judge` trained is asked as it was in training: the same prompt, the same
form, in token ids, and its text ends with its verdict.
"""

from functools import partial

from judge.fitting import fitted
from judge.pairwise import Preference
from judge.pairwise_chat import reason_of
from judge.pairwise_forms import ChainForm, chain_messages, verdict_end
from judge.pairwise_parsing import parse_chain
from memory.errors import RubricemError
from memory.interfaces import Sampling, TokenPolicy
from memory.schema import NO_USAGE

CHAIN_TOKENS = 2048
"""that a judge may write of one pair"""


class ChainComparer:
    """A `Comparer` over a model that continues token ids."""

    def __init__(
        self, model: TokenPolicy, form: ChainForm = "full", max_tokens: int = CHAIN_TOKENS
    ) -> None:
        self._model = model
        self._form = form
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        return self._model.name

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        """What the model writes at temperature 0; the same pair is always read alike."""
        try:
            _, prefix = await fitted(
                self._model,
                partial(chain_messages, self._form, question, first, second),
                self._max_tokens,
            )
            sampling = Sampling(max_tokens=self._max_tokens, temperature=0.0, seed=0)
            reply = await self._model.complete(prefix, sampling, verdict_end)
        except RubricemError as error:
            told = f"{error} {error.remedy}".strip()
            return Preference(None, told, usage=error.usage or NO_USAGE)
        chain = parse_chain(reply.text)
        if chain.verdict is None:
            ended = "it was cut off" if reply.stop_reason == "length" else "it ended"
            reason = f"{self.name} named no winner: {ended} without a verdict."
            return Preference(None, reason, text=reply.text, usage=reply.usage)
        return Preference(
            chain.verdict,
            reason_of(chain, first, second),
            chain=chain,
            text=reply.text,
            usage=reply.usage,
        )
