"""What models write in the place of the scaffold's tags, and what it is read as."""

import json

import pytest

from rubricem.agent.models.turns import read_turn
from rubricem.agent.transcript.scaffold import ToolCall, answer_text, citations, parse, tool_calls
from tests.support.policies import answer, plan

Q = "lru_cache maxsize"
ARGUMENTS = json.dumps({"query": Q})
CALL = {"name": "search", "arguments": {"query": Q}}


def hermes(call: object) -> str:
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


@pytest.mark.parametrize(
    "text",
    [
        f'<call_tool name="search">{Q}</call_tool>',
        f'<call_tool name="search">{ARGUMENTS}</call_tool>',
        f'<call_tool name="search">{json.dumps(CALL)}</call_tool>',
        f'<call_tool name="search" query="{Q}"></call_tool>',
        f"<call_tool>{ARGUMENTS[:-2]}</call_tool>",
        hermes(CALL),
        hermes({"name": "search", "arguments": ARGUMENTS}),
        hermes({"name": "functions.search:0", "parameters": {"q": Q}}),
        hermes({"type": "function", "function": {"name": "search", "arguments": ARGUMENTS}}),
        hermes(CALL).removesuffix("</tool_call>"),
        f'<tool_call name="search">{Q}</tool_call>',
        f"<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>{Q}</arg_value>\n</tool_call>",
        f"<tool_call><function=search><parameter=query>\n{Q}\n</parameter></function></tool_call>",
        f'<function_calls><invoke name="search"><parameter name="query">{Q}</parameter></invoke>',
        f"<tool_use><name>search</name><query>{Q}</query></tool_use>",
        f"<search>{Q}</search>",
        f'<tool_call>search(query="{Q}")</tool_call>',
        f"```json\n{json.dumps(CALL)}\n```",
        f"```json\n[{json.dumps(CALL)[:-1]},}},\n]\n```",
        f"I will look it up.\n{json.dumps({'action': 'search', 'action_input': Q})}",
        f"[TOOL_CALLS][{json.dumps(CALL)}]",
        f"[TOOL_CALLS]search[ARGS]{ARGUMENTS}",
        f"<|python_tag|>{json.dumps({'name': 'search', 'parameters': {'query': Q}})}",
        "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>function"
        f"<\uff5ctool\u2581sep\uff5c>search\n```json\n{ARGUMENTS}\n```"
        "<\uff5ctool\u2581call\u2581end\uff5c>",
        "<|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>"
        f"{ARGUMENTS}<|tool_call_end|>",
        "<|channel|>commentary to=functions.search <|constrain|>json<|message|>"
        f"{ARGUMENTS}<|call|>",
        f"<|start|>assistant to=functions.search<|channel|>commentary<|message|>{ARGUMENTS}",
    ],
)
def test_a_call_is_one_in_whatever_form_it_comes(text: str):
    before = plan().partition("<call_tool")[0]
    for turn in (text, before + text, f"{before}{text}\n\nI wait for what it finds."):
        [call] = tool_calls(read_turn(turn))
        assert (call.name, " ".join(call.query.split())) == ("search", Q)
    assert parse(read_turn(before + text)).last("research_plan") == "Read the documentation."


def test_all_calls_of_a_turn_are_read_in_their_order_and_nothing_behind_them():
    queries = hermes([{"name": "search", "arguments": {"queries": ["a", "b"]}}, CALL])
    later = '<call_tool name="open_page">{"id": "S3", "words": "price"}</call_tool>'
    turn = read_turn(f"{plan('first')}\n{queries}\n{later}\n{answer()}")
    assert [(c.name, c.query) for c in tool_calls(turn)] == [
        ("search", "first"), ("search", "a"), ("search", "b"), ("search", Q),
        ("open_page", "S3 price"),
    ]  # fmt: skip
    assert not answer_text(parse(turn))


def test_arguments_narrow_a_search_and_go_as_they_are_to_a_tool_of_a_server():
    narrow = {"name": "search", "arguments": {"query": Q, "year": 2023, "none": None}}
    assert tool_calls(read_turn(hermes(narrow))) == [ToolCall("search", Q, {"year": "2023"})]
    own = hermes({"name": "issues", "arguments": {"state": "open", "most": 3}})
    [call] = tool_calls(read_turn(own, tools={"issues"}))
    assert (call.name, json.loads(call.query)) == ("issues", {"state": "open", "most": 3})


def test_a_call_that_is_only_spoken_of_is_none():
    spoken = f"<think>I could write {hermes(CALL)} or <search>x</search>.</think>"
    assert tool_calls(read_turn(spoken + answer())) == []
    coded = f"<answer>Write `{hermes(CALL)}` in HTML: <search>x</search> [S1].</answer>"
    assert parse(read_turn(coded)).last("answer") == coded[8:-9]


GOOD = plan()
THOUGHT = "Look it up."


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```xml\n{GOOD}\n```",
        f"Sure! Here is my plan.\n\n{GOOD}\n\nI wait.",
        f"## Plan\n\n**Thinking**\n{GOOD}",
        GOOD.replace("<think>", ""),
        GOOD.replace("</think>", ""),
        GOOD.replace("<think>", "").replace("</think>", ""),
        GOOD.replace("<think>", "Of </call_tool> and <answer> later. "),
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final"
        f"<|message|>{GOOD.partition('</think>')[2]}<|return|>",
        f"analysis{THOUGHT}assistantfinal{GOOD.partition('</think>')[2]}",
        GOOD.replace("<", "&lt;").replace(">", "&gt;"),
        GOOD.replace("_", "\\_"),
        f"{GOOD}<|im_end|>",
    ],
    ids=[
        "as it should be", "fence", "words around it", "headings", "half a thought",
        "open thought", "thought without tags", "thought of tags", "channels",
        "channels without marks", "escaped", "escaped names", "mark of the end",
    ],
)  # fmt: skip
def test_a_turn_is_one_in_whatever_it_is_wrapped(text: str):
    document = parse(read_turn(text))
    assert [block.tag for block in document.blocks] == ["think", "structured_plan", "call_tool"]
    assert THOUGHT in document.last("think")
    assert document.last("structured_plan") == parse(GOOD).last("structured_plan")
    assert not document.find_unpaired()


REPORT = "# Caches\n\nIt grows without bound [S1].\n\n```c\nint a;\n```\n"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (f"<answer>{REPORT}", REPORT),
        ("<answer>It is <cite id=\"S1\">so", 'It is <cite id="S1">so</cite>'),
        (REPORT, REPORT),
        (f"```markdown\n{REPORT.partition('```')[0]}\n```", REPORT.partition("```")[0]),
        (f"<think>Done.</think>\n{REPORT}", REPORT),
        (f"<review>All met: S1.</review>\n{REPORT}</answer>", REPORT),
        ("<answer>\n```markdown\nIt grows [S1].\n```\n</answer>", "It grows [S1]."),
        (hermes({"name": "answer", "arguments": {"text": "It grows [S1]."}}), "It grows [S1]."),
        (hermes({"name": "final_answer", "arguments": f"<answer>{REPORT}</answer>"}), REPORT),
        ("I cannot help with that.", ""),
        ("It grows [S9].", ""),
    ],
)  # fmt: skip
def test_text_that_cites_what_was_shown_is_the_answer(text: str, read: str):
    assert answer_text(parse(read_turn(text, known={"S1"}))).strip() == read.strip()


def test_what_a_server_cut_off_stays_open():
    document = parse(read_turn('<answer>It is <cite id="S1">so', cut=True))
    assert not document.find("answer")[0].closed and len(citations(document)) == 1


def test_a_tool_of_another_server_is_called_by_the_name_that_servers_take():
    call = '<tool_call>{"name": "wiki__page", "arguments": {"title": "a"}}</tool_call>'
    (block,) = parse(read_turn(call, tools=["wiki.page"])).find("call_tool")
    assert block.attributes["name"] == "wiki.page"
    (block,) = parse(read_turn(call)).find("call_tool")
    assert block.attributes["name"] == "search", "no such tool is there"
