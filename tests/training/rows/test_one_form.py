"""One run has one sequence of tokens, whoever writes it down: ids of four forms, in two templates.

The templates are those of Qwen2.5 and Qwen3 as TRL has them; Qwen3's changes thinking that is
written otherwise, and drops that of earlier turns behind any message but a tool's.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rubricem.agent.models.policy import ChatWriter, TokenWriter
from rubricem.agent.research.free import FreeDecoder
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.transcript.question import Ask
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Author, Decoding, Sampling, Status, Trajectory
from rubricem.training.rows.compile import ExportedConversation, imitation_row
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import FolderTokeniser, read_tokeniser, token_sequence
from rubricem.training.verl.policy import ServerPolicy
from tests.support.judges import ScriptedChat
from tests.support.policies import QUESTION, FixedSearch, answer, plan, search
from tests.support.tiny import write_tokenizer


def thinking(turn: str) -> str:
    """The turn with its thinking on lines of its own, as Qwen3 samples it."""
    thought, rest = turn.removeprefix("<think>").split("</think>\n", 1)
    return f"<think>\n{thought}\n</think>\n\n{rest}"


TURNS = [thinking(turn) for turn in (plan(), search("lru_cache eviction"), answer())]
START, END = "<|im_start|>assistant\n", "<|im_end|>"


class Servers:
    """verl's rollout servers, which write the script's turn from where the prompt ends."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: dict[str, Any]
    ) -> Any:
        said = self.tokenizer.decode(prompt_ids)
        left = TURNS[said.count(START) - 1].removeprefix(said.rpartition(START)[2])
        ids = self.tokenizer(left)["input_ids"][: sampling_params["max_tokens"]]
        return SimpleNamespace(
            token_ids=ids, log_probs=[-0.1] * len(ids), stop_reason="completed", extra_fields={}
        )


def template(name: str) -> str:
    return (files("trl") / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


async def sampled(tokeniser: FolderTokeniser, folder: Path) -> Trajectory:
    servers = Servers(tokeniser.tokenizer)
    researcher = Researcher(
        policy=TokenWriter(ServerPolicy(servers, tokeniser.tokenizer, 30_000, "model", "1")),
        decoder=FreeDecoder(Sampling(temperature=1.0), 1),
        decoding=Decoding.FREE,
        search_tool=FixedSearch(),
        store=RunStore(folder),
        template=Ask(QUESTION),
    )
    run = await researcher.ask(Ask(QUESTION, seed=1))
    assert run.status is Status.FINISHED and run.tool_calls == 2, run.reason
    return run


async def sent(run: Trajectory) -> list[dict[str, str]]:
    """The messages that a chat server is sent for the last turn, and its reply."""
    chat = ScriptedChat([""])
    last = max(i for i, s in enumerate(run.segments) if s.author is not Author.POLICY)
    before, reply = run.segments[: last + 1], run.segments[last + 1 :]
    await ChatWriter(chat).write(run.system, before, Sampling(), None, None)
    said = [{"role": m.role, "content": m.content} for m in chat.asked[0]]
    return [*said, {"role": "assistant", "content": "".join(s.text for s in reply)}]


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3"])
async def test_four_forms_of_a_run_are_the_same_tokens(name: str, tmp_path: Path):
    write_tokenizer(tmp_path / "m", template=template(name))
    (tmp_path / "m" / "config.json").write_text('{"model_type": "qwen2"}', encoding="utf-8")
    tokeniser = read_tokeniser(tmp_path / "m")
    run = await sampled(tokeniser, tmp_path)

    def rendered(messages: Any) -> list[int]:
        text = tokeniser.tokenizer.apply_chat_template(messages, tokenize=False)
        return list(tokeniser.tokenizer(text.rstrip("\n"), add_special_tokens=False)["input_ids"])

    verl = token_sequence(run.segments)
    bare = [s.model_copy(update={"token_ids": None, "logprobs": None}) for s in run.segments]
    plain = run.model_copy(update={"segments": tuple(bare)})
    talk = ExportedConversation.of(plain)
    trl = await imitation_row(plain, tokeniser)
    assert verl is not None and isinstance(trl, TrainRow)
    assert isinstance(talk, ExportedConversation)
    end = tokeniser.tokenizer.convert_tokens_to_ids(END)
    whole = [*verl.ids, end]
    assert verl.sampled and tokeniser.tokenizer.decode(whole).count(END) == 7
    assert list(trl.ids) == whole
    assert rendered([message.model_dump() for message in talk.messages]) == whole
    assert rendered(await sent(plain)) == whole
    trained = [i for i, on in zip(trl.ids, trl.loss_mask, strict=True) if on]
    assert tokeniser.tokenizer.decode(trained) == "".join(f"{turn}{END}" for turn in TURNS)
    by_trl = tokeniser.tokenizer.apply_chat_template(
        [message.model_dump() for message in talk.messages],
        chat_template=template(f"{name}_training"),
        return_assistant_tokens_mask=True,
        return_dict=True,
    )
    pairs = zip(whole, by_trl["assistant_masks"], trl.loss_mask, strict=False)
    beside = [whole[at] for at, (_, theirs, ours) in enumerate(pairs) if theirs != ours]
    newline = tokeniser.tokenizer("\n")["input_ids"][0]
    assert set(beside) == {newline}, "TRL trains the line ends of the template as well"
