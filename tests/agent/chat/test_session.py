"""The chat and runs that were asked elsewhere: gone on with, judged, and threads that vanish."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rubricem.agent.chat.commands import judge
from rubricem.agent.chat.session import ChatWatch, Talk, Terminal
from rubricem.agent.models.policy import TokenWriter
from rubricem.agent.research.conversations import ConversationStore
from rubricem.agent.settings import Settings
from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import RubricBuffer, Stage
from tests.agent.serve.test_desk import Deleting
from tests.conftest import refusal, rubricem
from tests.support.judges import FixedReader
from tests.support.policies import researching
from tests.support.scripted_server import ScriptedServer
from tests.support.terminal import FOLLOW_UP, QUESTION, turns, where
from tests.support.values import item, trajectory


def command(
    name: str, server: ScriptedServer, documents: Path, *more: str, line: str = ""
) -> Result:
    return rubricem(name, *more, *where(server, documents), typed=f"{line}\n")


def test_a_run_of_ask_is_gone_on_with_in_a_thread_and_in_the_middle_of_one_in_a_branch(
    documents: Path, data: Path
):
    store = ConversationStore(data)
    with ScriptedServer(turns) as server:
        command("ask", server, documents, QUESTION, "--thread", "mine")
        assert store.list_all().conversations == ()
        done = command("chat", server, documents, "--from", "mine", line=FOLLOW_UP)
        asked = [each.body["messages"][1]["content"] for each in server.requests]
        command("chat", server, documents, "--from", "mine", line=FOLLOW_UP)
    assert f"1  {QUESTION}  (finished)" in done.stdout
    assert any("an unbounded cache [S1]" in message for message in asked)
    first, second = sorted(store.list_all().conversations, key=lambda each: each.created_at)
    assert first.runs[0] == second.runs[0] == "mine" and first.runs[1] != second.runs[1]
    assert len(first.runs) == 2
    assert RunStore(data).load(first.runs[1]).earlier == ("mine",)
    assert second.parent is not None and second.parent.conversation == first.id


@pytest.mark.parametrize(
    "more, said",
    [
        (("--from", "nowhere"), "no run is called 'nowhere'"),
        (("--from", "x", "--resume"), "from a run"),
    ],
)
def test_what_cannot_be_gone_on_after_is_a_sentence(
    documents: Path, data: Path, more: tuple[str, ...], said: str
):
    with ScriptedServer([]) as server:
        assert said in refusal("chat", *more, *where(server, documents))
        assert server.requests == []
    assert ConversationStore(data).list_all().conversations == ()


async def test_a_question_whose_thread_is_deleted_leaves_no_request(tmp_path: Path):
    with ScriptedServer([]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            settings = Settings(data_dir=tmp_path, base_url=server.base_url)
            talk = Talk(researcher, settings, {}, Deleting(tmp_path), Terminal())
            with pytest.raises(SettingsError, match="no conversation"):
                await talk.ask(QUESTION, ChatWatch(lambda event: None, None, None))  # type: ignore[arg-type]
            assert researcher.store.threads() == [] == list((tmp_path / "runs").iterdir())


class Local(FixedReader):
    """A model of this process that weighs and writes nothing of use."""

    def __init__(self) -> None:
        super().__init__(lambda text: (0.5, 0.2, 0.2, 0.1))

    async def complete(self, prefix: Sequence[int], *given: Any, **named: Any) -> Any:
        raise PolicyError("it writes nothing")


async def test_judging_uses_the_embedded_model_that_is_open(tmp_path: Path):
    # There are no weights that could be loaded a second time.
    settings = Settings(data_dir=tmp_path, model=str(tmp_path / "none.gguf"))
    run, model = trajectory("It is."), Local()
    criteria = {stage: (item(f"does {stage}", kept=True),) for stage in Stage}
    buffer = RubricBuffer(question=run.question, version=1, persistent=criteria)
    BufferStore(tmp_path / "buffers").save(buffer)
    with ScriptedServer([]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            researcher.policy = TokenWriter(model)
            researcher.store.create(run.thread, {"ask": {"question": run.question}})
            researcher.store.save(run)
            talk = Talk(researcher, settings, {}, ConversationStore(tmp_path), Terminal(), last=run)
            await judge(talk, "")
    assert model.texts, "the model that is open was asked"
    assert (tmp_path / "runs" / run.thread / "judgement.json").exists()
