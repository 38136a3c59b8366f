"""What verl is given: advantages as rewards, and whole episodes.

verl's servers as our policy, a whole episode on them, and its rollout as verl takes it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE
from transformers.convert_slow_tokenizer import bytes_to_unicode

from rubricem.agent.models.policy import TokenWriter
from rubricem.agent.research.free import FreeDecoder
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.transcript.question import Ask
from rubricem.agent.weights import templates
from rubricem.memory.errors import PolicyError, WeightsError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Decoding, Message, Sampling, Status, Trajectory
from rubricem.training.verl.plugin import (
    ADVANTAGES,
    REFLECTIONS,
    Told,
    given_advantages,
    response_of,
    token_rewards,
)
from rubricem.training.verl.policy import PIECE, ServerPolicy, write_questions
from tests.agent.weights.test_templates import ENDLESS
from tests.support.collected import two_turns
from tests.support.policies import QUESTION, FixedSearch


def test_tokens_are_rewarded_by_what_their_stages_and_reflections_were_told() -> None:
    told: Told = {"plan": 0.5, ADVANTAGES: "0.5,-1.0,0.0,2.0", REFLECTIONS: "1.0,0.0,-1.0"}
    assert token_rewards([-1, 0, 0, -1, 1, 2, 3], told).tolist() == [0, 0.5, 0.5, 0, -1, 0, 2]
    for number, value in enumerate((1.0, 0.0, -1.0, 0.0)):
        assert token_rewards([0, 0], told, number).tolist() == [value, value]
    assert not token_rewards([0, 3], {}).any(), "nobody judged it"
    mask = torch.tensor([[1.0, 0.0, 1.0]])
    advantages, returns = given_advantages(torch.full((1, 3), 0.5), mask, index=["q"], config=None)
    assert advantages.tolist() == returns.tolist() == [[0.5, 0.0, 0.5]]


END = 3


def of_bytes() -> Tokenizer:
    """One with a token for each byte, from id 10 on."""
    marks = {f"<|{number}|>": number for number in range(10)}
    found = Tokenizer(BPE(marks | {mark: b + 10 for b, mark in bytes_to_unicode().items()}, []))
    found.decoder = ByteLevel()
    return found


class Bytes:
    """A tokenizer of bytes, as one of transformers; id 3 ends a turn."""

    eos_token_id = END
    backend_tokenizer = of_bytes()
    special_tokens_map: Mapping[str, str] = MappingProxyType({})
    chat_template = (
        "{% for m in messages %}{% generation %}{{ m.role }}: {{ m.content }}\n"
        "{% endgeneration %}{% endfor %}{% if tools is none %}assistant: {% endif %}"
    )

    def get_chat_template(self) -> str:
        return self.chat_template

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        return {"input_ids": [byte + 10 for byte in text.encode()]}

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        return bytes(one - 10 for one in ids).decode(errors="replace")


class ScriptedServers:
    """Answers by a script of the prompt's text, no more tokens at a time than are asked for."""

    def __init__(self, script: Callable[[str], str], logprobs: bool = True) -> None:
        self.script, self.logprobs = script, logprobs
        self.calls: list[tuple[str, int]] = []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Any:
        self.calls.append((request_id, sampling_params["max_tokens"]))
        ids = [*Bytes()(self.script(Bytes().decode(prompt_ids)))["input_ids"], END]
        ids = ids[: sampling_params["max_tokens"]]
        return SimpleNamespace(
            token_ids=ids,
            log_probs=[-0.25] * len(ids) if self.logprobs else None,
            stop_reason="completed",
            extra_fields={"global_steps": 4},
        )


def policy(script: Callable[[str], str], logprobs: bool = True) -> ServerPolicy:
    return ServerPolicy(ScriptedServers(script, logprobs), Bytes(), 4096, "model", "4")


def rest_of(whole: str) -> Callable[[str], str]:
    """What is left of a text after the part of it that the prompt ends with."""
    return lambda prompt: whole[len(prompt.partition("|")[2]) :]


async def test_a_turn_is_asked_for_in_pieces_and_ends_where_we_say() -> None:
    text = "é" * 100 + "</call> and what is not wanted" * 10
    servers = ScriptedServers(rest_of(text))
    model = ServerPolicy(servers, Bytes(), 4096, "model", "4")
    prefix = await model.encode("go|")
    end = 100 + len("</call>")
    told: list[str] = []
    written = await model.complete(
        prefix, Sampling(max_tokens=900), lambda t: end if "</call>" in t else None, told.append
    )
    assert written.text == text[:end] == "".join(told) and written.stop_reason == "stop"
    assert written.token_ids == tuple(await model.encode(text[:end]))
    assert written.logprobs == (-0.25,) * len(written.token_ids)
    assert written.token_ends is not None and written.token_ends[-1] == end
    assert [most for _, most in servers.calls] == [PIECE, PIECE], "207 tokens"
    assert len({request for request, _ in servers.calls}) == 1, "one server has the prefix"
    assert model.steps == [4, 4]


async def test_the_models_own_end_and_the_limit_are_told() -> None:
    model = policy(rest_of("short"))
    written = await model.complete(await model.encode("|"), Sampling(max_tokens=50))
    assert (written.text, written.stop_reason) == ("short", "eos")
    assert written.token_ids == await model.encode("short"), "without the end of the turn"
    written = await model.complete(await model.encode("|"), Sampling(max_tokens=3))
    assert (written.text, written.stop_reason) == ("sho", "length")
    rendered = await model.render([Message("user", "hi")])
    assert Bytes().decode(rendered) == "user: hi\nassistant: "


@pytest.mark.parametrize("template", [ENDLESS, "{{ 'x' * 999999999 }}"])
async def test_a_template_that_does_not_end_is_told(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "SECONDS", 0.3)
    monkeypatch.setattr(Bytes, "chat_template", template)
    with pytest.raises(WeightsError, match="template of model does not terminate"):
        await policy(rest_of("")).render([Message("user", "hi")])


async def test_a_server_that_fails_or_tells_no_probabilities_is_a_policy_error() -> None:
    def broken(prompt: str) -> str:
        raise ConnectionError("gone")

    with pytest.raises(PolicyError, match="ConnectionError: gone"):
        await policy(broken).complete((11,), Sampling())
    with pytest.raises(PolicyError, match="no log-probabilities") as error:
        await policy(rest_of("x"), logprobs=False).complete((11,), Sampling())
    assert "calculate_log_probs=True" in error.value.remedy


async def rollout(tmp_path: Path) -> Trajectory:
    """A whole episode of the graph, on scripted servers."""

    researcher = Researcher(
        policy=TokenWriter(policy(whole_episode)),
        decoder=FreeDecoder(Sampling(temperature=1.0), 1),
        decoding=Decoding.FREE,
        search_tool=FixedSearch(),
        store=RunStore(tmp_path),
        template=Ask(QUESTION),
    )
    return await researcher.ask(Ask(QUESTION, seed=1))


def whole_episode(prompt: str) -> str:
    """The next part of a scripted rollout: a turn may be asked for in several pieces."""
    before = prompt.partition("assistant: ")[2]
    first, second = (two_turns(turn, Sampling(seed=1)) for turn in ("", "x"))
    if len(before) < len(first):
        return first[len(before) :]
    written = next((n for n in range(len(second), 0, -1) if before.endswith(second[:n])), 0)
    return second[written:]


async def test_an_episode_on_verls_servers_becomes_a_masked_response(tmp_path: Path) -> None:
    trajectory = await rollout(tmp_path)
    assert trajectory.status is not Status.FAILED, trajectory.reason
    response = response_of(trajectory, 4000)
    ids, mask = response["response_ids"], response["response_mask"]
    whole = Bytes().decode(ids)
    assert "lru_cache" in Bytes().decode(response["prompt_ids"])
    written = Bytes().decode([i for i, on in zip(ids, mask, strict=True) if on])
    assert two_turns("", Sampling(seed=1)) in written
    assert "Least-recently-used" in whole and "Least-recently-used" not in written
    told = (response["response_stages"], mask, response["response_logprobs"])
    pairs = list(zip(*told, strict=True))
    assert {stage for stage, on, _ in pairs if on} == {0, 1, 2, 3}
    assert all(stage == -1 and logprob == 0 for stage, on, logprob in pairs if not on)
    short = response_of(trajectory, 20)
    assert len(short["response_ids"]) == len(short["response_mask"]) == 20
    assert short["prompt_ids"] == response["prompt_ids"]
    forced = trajectory.model_copy(update={"decoding": Decoding.FORCED})
    with pytest.raises(ValueError, match="not those that were sampled"):
        response_of(forced, 20)


def test_questions_that_cannot_be_written_for_verl_are_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.argv", ["policy", str(tmp_path / "no.jsonl"), "out.parquet"])
    with pytest.raises(SystemExit, match="2"):
        write_questions()
    assert capsys.readouterr().err.startswith("error: ") and not list(tmp_path.iterdir())
