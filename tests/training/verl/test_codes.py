"""Stage-wise GRPO on verl's tensors: the project's own advantages, by way of stage codes.

verl's servers as our policy, a whole episode on them, and its rollout as verl takes it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rubricem.agent.models.policy import TokenWriter
from rubricem.agent.research.free import FreeDecoder
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.transcript.question import Ask
from rubricem.memory.errors import PolicyError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import (
    NO_CRITERIA,
    Decoding,
    Message,
    Sampling,
    Stage,
    StageScore,
    Status,
    Trajectory,
)
from rubricem.training.rows.credit import PAPER, broadcast, identity, stage_advantages
from rubricem.training.verl.groups import metrics_of
from rubricem.training.verl.plugin import (
    ABSENT,
    Told,
    decode,
    encode,
    encode_reflection,
    response_of,
    ss_grpo_advantages,
)
from rubricem.training.verl.policy import PIECE, ServerPolicy
from tests.support.collected import judgement, two_turns
from tests.support.policies import QUESTION, FixedSearch

NAN = float("nan")
STAGES = (
    (-1, 0, 0, -1, 1, 2, 3, 3),
    (0, 1, 1, -1, -1, 2, 3),
    (0, 0, 1, 3, 3, 3, 3, 3, 3),
    (0, 1, 2, 3),
)
SCORES = ((0.2, 0.0, 1.0, 0.5), (0.9, 0.5, None, 1.0), (0.4, 1.0, 0.0, 0.0), (0.1, 0.3, 0.6, 0.7))
QUESTIONS = ["one", "one", "one", "two"]


def batch(absent: tuple[int, int] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes and the mask of the responses above, padded on the right."""
    codes, masks = [], []
    for number, (stages, scores) in enumerate(zip(STAGES, SCORES, strict=True)):
        told: Told = {stage.value: score for stage, score in zip(Stage, scores, strict=True)}
        for k, stage in enumerate(Stage):
            told |= {stage.value: None, ABSENT: stage.value} if (number, k) == absent else {}
        codes.append(encode(stages, told))
        masks.append(torch.tensor([float(stage >= 0) for stage in stages]))
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(codes, batch_first=True), pad(masks, batch_first=True)


@pytest.mark.parametrize("dependence", [PAPER, identity(), broadcast()])
def test_advantages_on_verls_tensors_are_those_of_the_project(dependence: object) -> None:
    codes, mask = batch((0, 1))
    found, returns = ss_grpo_advantages(codes, mask, QUESTIONS, dependence)  # type: ignore[arg-type]
    scores = np.array([[NAN if s is None else s for s in row] for row in SCORES[:3]])
    absent = np.zeros((3, 4), dtype=np.bool_)
    absent[0, 1] = True
    wanted = dependence.returns(scores, absent)  # type: ignore[arg-type]
    values = stage_advantages(wanted)
    for row, stages in enumerate(STAGES[:3]):
        for place, stage in enumerate(stages):
            told = values[row, stage] if stage >= 0 else 0.0
            assert float(found[row, place]) == pytest.approx(told, abs=1e-4), (row, place)
            known = np.nan_to_num(wanted[row, stage]) if stage >= 0 else 0.0
            assert float(returns[row, place]) == pytest.approx(known, abs=1e-5)
        assert not found[row, len(stages) :].any(), "padding"
    assert np.abs(values).max() > 0.5


def test_reflections_are_compared_with_one_another_and_filling_with_nothing() -> None:
    """Three candidates of 0, 1 and an unknown score beside the rollouts of their question."""
    codes, mask = batch()
    alone, _ = ss_grpo_advantages(codes, mask, QUESTIONS, PAPER)
    scores = (0.0, 1.0, None)
    width = codes.shape[1]
    pad = torch.nn.functional.pad
    rows = [pad(encode_reflection(n + 2, s), (0, width - n - 2)) for n, s in enumerate(scores)]
    masks = [pad(torch.ones(n + 2), (0, width - n - 2)) for n in range(3)]
    empty = torch.zeros(1, width)  # verl fills a batch up with copies that have no policy token
    both = torch.cat([codes, torch.stack(rows), empty])
    whole = torch.cat([mask, torch.stack(masks), empty])
    found, returns = ss_grpo_advantages(both, whole, [*QUESTIONS, *["one"] * 4], PAPER)
    torch.testing.assert_close(found[:4], alone, msg="the rollouts learn as without them")
    assert found[4, :3].tolist() == pytest.approx([-1.0, -1.0, 0.0], abs=1e-4)
    assert found[5, :4].tolist() == pytest.approx([1.0, 1.0, 1.0, 0.0], abs=1e-4)
    assert not found[6].any() and not found[7].any()
    assert returns[5, :3].tolist() == [1.0, 1.0, 1.0]


def test_a_score_of_zero_is_told_from_an_unknown_and_an_absent_one() -> None:
    scores = {"plan": 0.0, "research": None, "review": None, "answer": 1.0, ABSENT: "review"}
    codes = encode([0, 1, 2, 3, 3], scores)
    assert codes.tolist() == [5.0, 11.0, 12.5, 18.0, 16.0]
    found = decode(codes.unsqueeze(0), torch.ones(1, 5), 4)
    assert found.stages.tolist() == [[0, 1, 2, 3, 3]]
    np.testing.assert_array_equal(found.scores, [[0.0, NAN, NAN, 1.0]])
    assert found.absent.tolist() == [[False, False, True, False]]


@pytest.mark.parametrize("spoilt", [0.25, -1.0, 40.0])
def test_rewards_that_are_no_codes_are_refused(spoilt: float) -> None:
    codes, mask = batch()
    codes[0, 6] += spoilt
    with pytest.raises(ValueError, match="use_kl_in_reward"):
        ss_grpo_advantages(codes, mask, QUESTIONS, PAPER)
    with pytest.raises(ValueError, match="use_kl_in_reward"):
        ss_grpo_advantages(torch.zeros_like(codes), mask, QUESTIONS, PAPER)
    for score in (1.5, float("inf"), float("-inf"), NAN):
        with pytest.raises(ValueError, match="no stage score"):
            encode([0], {"plan": score})


END = 3


class Bytes:
    """A tokenizer of bytes, as one of transformers; id 3 ends a turn."""

    eos_token_id = END

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        return {"input_ids": [byte + 10 for byte in text.encode()]}

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        return bytes(one - 10 for one in ids).decode(errors="replace")

    def apply_chat_template(self, chat: list[dict[str, str]], **options: Any) -> str:
        return "".join(f"{m['role']}: {m['content']}\n" for m in chat) + "assistant: "


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


async def test_stage_scores_go_to_verl_as_numbers_and_come_back(tmp_path: Path) -> None:
    trajectory = await rollout(tmp_path)
    judged = judgement(trajectory, [0.5, None, None, 0.0])
    absent = StageScore(stage=Stage.REVIEW, score=None, unscored_reason=NO_CRITERIA)
    stages = tuple(absent if s.stage is Stage.REVIEW else s for s in judged.stages)
    numbers = metrics_of(judged.model_copy(update={"stages": stages}))
    known = {"plan": 0.5, "research": None, "review": None, "answer": 0.0}
    assert numbers == known | {ABSENT: "review"}
    assert encode([0] * 4, numbers).tolist() == [5.5, 7.0, 4.5, 5.0]
    assert encode([0] * 4, {}).tolist() == [7.0] * 4
