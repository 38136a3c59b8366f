"""Models and retrievers of LangChain, as they are, in whole runs and in single calls."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel as Fake
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.retrievers import BaseRetriever
from pydantic import SecretStr

from rubricem import SettingsError, research
from rubricem.agent.models.langchain import LangChainChat
from rubricem.agent.models.limits import Limiter
from rubricem.agent.models.turns import own_functions
from rubricem.agent.reports.rules import LexicalChecker
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import model_of
from rubricem.memory.errors import PolicyError
from tests.support.policies import ASKED, QUESTION, QUICK, RUN, SAMPLING, plan


class Chunks(FakeMessagesListChatModel):
    """Streams the given chunks; an exception among them is raised, a float is waited for."""

    responses: Any = ()
    chunks: Any
    model_name: str = "given"
    key: SecretStr = SecretStr("sk-very-secret")

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self.bind(tools=tools)

    async def _astream(self, *given: Any, **more: Any) -> AsyncIterator[ChatGenerationChunk]:
        for each in self.chunks.pop(0):
            if isinstance(each, Exception):
                raise each
            if isinstance(each, float):
                await asyncio.sleep(each)
            else:
                yield ChatGenerationChunk(message=AIMessageChunk(**{"content": "", **each}))


def over(*chunks: Any, **options: Any) -> LangChainChat:
    return LangChainChat(Chunks(chunks=[*chunks]), limiter=Limiter(2), retry=QUICK, **options)


async def test_text_thinking_calls_usage_and_the_end_are_read_from_its_chunks():
    used = {"input_tokens": 40, "output_tokens": 2, "total_tokens": 42}
    calls = [("search", '{"query":'), (None, '"x"}')]
    parts = [
        {"content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "It is"}]},
        {"additional_kwargs": {"reasoning_content": " So."}, "usage_metadata": used},
        *({"tool_call_chunks": [{"name": n, "args": a, "id": n, "index": 0}]} for n, a in calls),
        {"usage_metadata": {**used, "input_token_details": {"cache_read": 30}}},
        {"response_metadata": {"stop_reason": "max_tokens"}},
    ]
    said = await over(parts, prices={"given": (1.0, 0.5, 2.0)}).chat(ASKED, SAMPLING)
    assert (said.reasoning, said.stop_reason) == ("Hm. So.", "length")
    assert said.text.startswith("It is") and '"name": "search"' in said.text
    assert (said.usage.prompt_tokens, said.usage.cached_tokens) == (80, 30)
    assert said.usage.cost == pytest.approx((50 + 15 + 8) / 1e6)
    whole = AIMessage("", tool_calls=[{"name": "search", "args": {"query": "y"}, "id": "a"}])
    plain = LangChainChat(FakeMessagesListChatModel(responses=[whole]), limiter=Limiter(1))
    assert '\\"y\\"' in (await plain.chat(ASKED, SAMPLING)).text


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ValueError("no sk-very-secret here, invalid"), "ValueError: no [key] here"),
        (ValueError("maximum context length is 8"), "no longer fits the context"),
        (5.0, "sent nothing for 0.2 s"),
        ({"content": " "}, "empty reply"),
    ],
)
async def test_what_goes_wrong_is_one_sentence_without_its_key(fault: Any, said: str):
    with pytest.raises(PolicyError) as failed:
        await over(*[[fault]] * 4, timeout=0.2).chat(ASKED, SAMPLING)
    assert said in str(failed.value) and "very-secret" not in str(failed.value)


async def test_tools_are_bound_until_they_are_refused():
    chat = over([ValueError("it does not support tools")], [{"content": "one"}])
    said = await chat.chat(ASKED, replace(SAMPLING, tools=json.dumps(own_functions(pages=True))))
    assert (said.text, chat._calls_tools) == ("one", False)


class Notes(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        if "fail" in query:
            raise KeyError("the index is gone")
        text = "With maxsize None it is an unbounded cache, so the cache grows without limit."
        blank = Document(" \n", metadata={"source": "blank.md"})
        return [
            blank,
            Document(f"{text} \ud83d", metadata={"source": "notes.md", "title": "Notes"}),
        ]


async def test_a_programs_own_model_retriever_and_checker_answer_a_question(data: Path):
    own = {"source": [Notes()], "checker": LexicalChecker(), "thread": "mine", "data_dir": data}
    for turns in ((plan("fail now"), *RUN[1:]), ()):  # the second time the journal answers
        report = await research(QUESTION, model=Fake(messages=iter(turns)), **own)
        assert (report.text, report.usage.calls) == ("It is an unbounded cache [1].", 3)
    assert [(s.title, s.location) for s in report.sources] == [("Notes", "notes.md")]
    assert report.trajectory.policy == "GenericFakeChatModel@langchain"
    assert "citations checked by lexical rules: 1 not checked" in report.markdown


async def test_a_model_is_opened_by_the_name_of_its_provider(monkeypatch: pytest.MonkeyPatch):
    models, found = pytest.importorskip("langchain.chat_models"), dict[str, Any]()
    gone = "an object of the program that asked"
    for name, why in (("nobody:m", "'nobody:m'"), ("anthropic:m", "install"), ("own:Gone", gone)):
        with pytest.raises(SettingsError, match=why):
            await model_of(Settings(model=name)).model_names()  # type: ignore[union-attr]

    def opened(name: str, **options: Any) -> Any:
        found.update(options, name=name)
        return Chunks(chunks=[])

    monkeypatch.setattr(models, "init_chat_model", opened)
    body = {"temperature": 0.3, "top_k": 4}
    choice = model_of(Settings(model="anthropic:m", extra_body=body))
    async with choice.open_policy() as policy:
        assert (policy.name, policy.context_tokens) == ("given@langchain", None)
    async with choice.open_judge() as judge:
        assert (judge.name, judge.context_tokens) == ("given@langchain", 32_768)
    assert found == {"name": "anthropic:m", "temperature": 0.3, "top_k": 4}
