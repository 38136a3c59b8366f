"""What a chat model wrote, read as a turn of the scaffold, whatever form it gave it.

Chat models wrap turns in fences and friendly words, think without a tag or with half of one, write
the channels of gpt-oss as text, leave closing tags out, and call tools in the form that they were
trained on: a server's own `tool_calls` (which arrive here as Hermes' `<tool_call>{json}`), JSON in
our tag, elements with parameters, the marks of Mistral, Kimi, DeepSeek and Llama. All of that
becomes the scaffold's own tags here, so that everything behind reads one form. Only texts of
models that exchange messages are rewritten: where token ids count, a turn stays as it was sampled.

What a turn lacks is not judged here. The text of thoughts, reviews and answers is never changed.
"""

import html
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rubricem.agent.transcript.scaffold import ScaffoldDocument, TaggedBlock, neutralise, parse

SEARCH, OPEN_PAGE_CALL, READ_CALL = "search", "open_page", "read"
ANSWERS = ("answer", "final_answer", "report", "submit_answer")
"""tools that models invent to hand in a report"""
DOT = "__"  # for the dot in the name of a tool, which servers do not take
NAME_KEYS = ("name", "tool", "tool_name", "function", "action", "recipient_name")
ARGUMENT_KEYS = (
    "arguments", "parameters", "args", "input", "action_input", "tool_input", "params", "kwargs",
)  # fmt: skip
QUERY_KEYS = (
    "query", "queries", "q", "search_query", "search_queries", "question", "keywords", "text",
    "input", "id", "url", "address", "page",
)  # fmt: skip
"""arguments that hold what is looked for, the likeliest first"""

_CHANNEL = re.compile(
    r"((?:<\|start\|>[^<]*)?<\|channel\|>[^<]*(?:<\|constrain\|>[^<]*)?)<\|message\|>(.*?)"
    r"(?:<\|(?:end|return|call)\|>|(?=<\|(?:start|channel)\|>)|\Z)",
    re.S,
)
_RECIPIENT = re.compile(r"\bto=([\w.-]+)")
_BARE_CHANNELS = re.compile(
    r"analysis(?=[^\w\s]|[A-Z]|\s)(.*?)assistant\s?(?:final|commentary)", re.S
)
"""what is left of two channels where a server drops their marks"""
_MARK = r"<[|\uff5c][^<>|\uff5c\n]{1,64}[|\uff5c]>|</?s>|<(?:eos|bos|(?:start|end)_of_turn)>"
_EDGE_MARKS = re.compile(rf"\A(?:\s*(?:{_MARK}))+|(?:(?:{_MARK})\s*)+\Z")
_ELEMENT = re.compile(
    r"<(tool_call|function_call|tool_use|function|invoke|search)\b([^<>]*?)"
    r"(?:/>|>(.*?)(?:</\1\s*>|\Z))",
    re.S | re.I,
)
_MARKED = re.compile(
    r"(?:<[|\uff5c](?:tool[\u2581_]call[\u2581_]begin|python_tag)[|\uff5c]>|\[TOOL_CALLS\])\s*"
    r"(?:function\s*<[|\uff5c]tool[\u2581_]sep[|\uff5c]>)?\s*([\w.:-]*)"
    r"(?:<[|\uff5c][^<>]{1,64}[|\uff5c]>|\[ARGS\]|[^{\[<]){0,40}(?=[{\[])"
)
_NAMED = re.compile(r"""(?:\bname\s*=\s*|^\s*=\s*|<function=)["']?([\w.:-]+)""")
_PARAMETER = re.compile(
    r"<parameter(?:=|\s+name=)[\"']?([\w-]+)[\"']?\s*>(.*?)</parameter>"
    r"|<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>"
    r"|<(\w+)>([^<]*)</\5>",
    re.S,
)
_AS_PYTHON = re.compile(r"\s*([\w.]+)\((?:\s*\w+\s*=)?\s*[\"'](.*?)[\"']\s*[,)]", re.S)
_LEFT_OF_JSON = re.compile(r'"(?:query|q|search_query|url|id)"\s*:\s*"((?:[^"\\]|\\.)*)')
_END_OF_THOUGHT = re.compile(r"<\s*(/?)\s*(?:think|thinking|scratchpad)\s*>", re.I)
_FENCE_LINE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[\w-]*[ \t]*$", re.M)
_HEADING_LINE = re.compile(r"^[ \t]*(?:#{1,6}[ \t].*|\*\*[^*\n]*\*\*:?|__[^_\n]*__:?)[ \t]*$", re.M)
_ESCAPED_NAME = re.compile(r"(</?[a-z]+)\\_(?=[a-z]+\b)")
"""of a tag, as Markdown writes an underscore"""
_ESCAPED_TAG = re.compile(r"&lt;/?(?:think|structured_plan|call_tool|review|answer)\b")
FENCED = re.compile(r"\s*```(?:markdown|md|xml)?[ \t]*\n(.*)\n```\s*", re.S)
_CITED = re.compile(r"""(?:[\[(\u3010]\^?\s?|\]:\s?|\bid\s*=\s*["']?)([sS][_-]?\d+)\b""")


def read_turn(
    text: str,
    *,
    tools: Collection[str] = (),
    known: Collection[str] = (),
    cut: bool = False,
) -> str:
    """The turn in the scaffold's own tags; words before, between and behind them are left out.

    `tools`: those of MCP servers, which take JSON as it is. `known`: the ids that were shown; text
    without tags that cites one is the answer. `cut`: the text breaks off, and what is open there
    stays so. Text in which nothing is found is returned as it is.
    """
    text = _without_channels(_ESCAPED_NAME.sub(r"\1_", text))
    if _ESCAPED_TAG.search(text) and not parse(text).blocks:
        text = html.unescape(text)
    text = _with_whole_thought(text)
    text = _EDGE_MARKS.sub("", _with_own_calls(text, tools))
    return _tidy(text, known, cut)


def as_function(
    name: str, told: str, arguments: Mapping[str, str], required: Sequence[str]
) -> dict[str, Any]:
    """A tool in the form in which servers take them; `arguments`: the type of each."""
    kinds = {each: {"type": kind} if kind != "any" else {} for each, kind in arguments.items()}
    takes = {"type": "object", "properties": kinds, "required": [*required]}
    named = {"name": name.replace(".", DOT), "description": told, "parameters": takes}
    return {"type": "function", "function": named}


def own_functions(*, pages: bool) -> list[dict[str, Any]]:
    """The tools of every run: the search, and where sources can be opened that as well."""
    told = [
        (SEARCH, "query", "Searches the sources; the same as a call_tool in tags."),
        (OPEN_PAGE_CALL, "id", 'Opens a source, or reads on: "S3", "S3 from 12", an address.'),
    ]
    return [as_function(n, said, {a: "string"}, [a]) for n, a, said in told[: 1 + pages]]


def _without_channels(text: str) -> str:
    def message(found: re.Match[str]) -> str:
        head, body = found[1], found[2]
        if to := _RECIPIENT.search(head):
            return f"<tool_call>{json.dumps({'name': to[1], 'arguments': body})}</tool_call>\n"
        return f"<think>{neutralise(body)}</think>\n" if "analysis" in head else body

    text = _CHANNEL.sub(message, text)
    if bare := _BARE_CHANNELS.match(text):
        text = f"<think>{neutralise(bare[1])}</think>\n{text[bare.end() :]}"
    return text


def _with_whole_thought(text: str) -> str:
    """The text with the opening tag of its first thought, where only the closing one stands."""
    first = _END_OF_THOUGHT.search(text)
    if first is None or not first[1]:
        return text
    thought = text[: first.start()]
    if parse(thought).find("answer") and not parse(text[first.end() :]).blocks:
        return text  # an answer that speaks of the tag
    return f"<think>{neutralise(thought.strip())}</think>{text[first.end() :]}"


def _with_own_calls(text: str, tools: Collection[str]) -> str:
    """The text with each call, in whatever form, as our own element."""
    held = [(b.start, b.end) for b in parse(text).blocks if b.tag in ("think", "answer")]

    def outside(at: int) -> bool:
        return not any(start <= at < end for start, end in held)

    def element(found: re.Match[str]) -> str:
        if not outside(found.start()):
            return found[0]
        return _element_call(found[1].lower(), found[2], found[3] or "", tools) or found[0]

    changed = _ELEMENT.sub(element, text)
    if changed == text:
        changed = _with_marked_calls(text, tools, outside)
    document = parse(changed)
    for block in reversed(document.find("call_tool")):
        inner = document.inner(block).strip()
        if inner[:1] in ("{", "[") and block.attributes.get("name") not in tools:
            call = _json_calls(inner, tools, block.attributes.get("name", SEARCH))
            changed = changed[: block.start] + call + changed[block.end :]
    return changed if parse(changed).find("call_tool") else _with_bare_call(changed, tools)


def _element_call(tag: str, head: str, body: str, tools: Collection[str]) -> str:
    """The call that an element is; "" if it is none."""
    named = _NAMED.search(head) or _NAMED.search(body[: body.find(">") + 1])
    name = named[1] if named else SEARCH if tag == SEARCH else ""
    if (at := _start_of_json(body)) >= 0:
        return _json_calls(body[at:], tools, name)
    pairs = {
        (m[1] or m[3] or m[5]).strip(): (m[2] or m[4] or m[6] or "").strip()
        for m in _PARAMETER.finditer(body)
    }
    if pairs:
        name = name or body.partition("<")[0].strip()
        return _written(name or pairs.pop("name", SEARCH), pairs, tools)
    if python := _AS_PYTHON.match(body):
        return _written(python[1], python[2], tools)
    named = re.search(r"\bquery\s*=\s*[\"']([^\"']*)", head)
    query = body.strip() or (named[1] if named else "")
    return _written(name or SEARCH, query, tools) if query else ""


def _with_marked_calls(text: str, tools: Collection[str], outside: Any) -> str:
    """The calls of models that mark them by special tokens, or by a word in brackets."""
    written, at = "", 0
    for mark in _MARKED.finditer(text):
        if mark.start() < at or not outside(mark.start()):
            continue
        value, end = _first_json(text, mark.end())
        written += text[at : mark.start()] + _calls_of(value, tools, mark[1])
        at = end
    return written + text[at:]


def _with_bare_call(text: str, tools: Collection[str]) -> str:
    """A call that stands as JSON behind everything else, in a fence or not."""
    document = parse(text)
    behind = document.blocks[-1].end if document.blocks else 0
    at = _start_of_json(text, behind)
    if at < 0 or document.find("answer"):
        return text
    value, end = _first_json(text, at)
    known = {SEARCH, OPEN_PAGE_CALL, READ_CALL, *tools}
    each = value if isinstance(value, list) else [value]
    if not all(isinstance(one, dict) and _name_of(one) in known for one in each) or not each:
        return text
    return text[:at] + _calls_of(value, tools, SEARCH) + text[end:]


def _start_of_json(text: str, at: int = 0) -> int:
    return min((i for c in "{[" if (i := text.find(c, at)) >= 0), default=-1)


def _first_json(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins there and its end; where it is broken, its text to the end."""
    try:
        return json.JSONDecoder(strict=False).raw_decode(text, at)
    except (ValueError, RecursionError):
        whole = re.sub(r",(\s*[}\]])", r"\1", text[at:])
        return (whole if whole == text[at:] else _first_json(whole, 0)[0]), len(text)


def _json_calls(text: str, tools: Collection[str], name: str) -> str:
    return _calls_of(_first_json(text, 0)[0], tools, name)


def _calls_of(value: Any, tools: Collection[str], name: str) -> str:
    """The calls that a JSON value holds; `name`: of the tool, where it does not say."""
    if isinstance(value, list):
        return "\n".join(_calls_of(each, tools, name) for each in value)
    if not isinstance(value, dict):
        left = _LEFT_OF_JSON.search(value) if isinstance(value, str) else None
        return _written(name or SEARCH, left[1] if left else str(value), tools)
    if isinstance(value.get("function"), dict):
        value = value["function"]
    named = _name_of(value)
    given = next((value[key] for key in ARGUMENT_KEYS if key in value), None)
    if given is None or not (named or name):
        given = {key: held for key, held in value.items() if key not in NAME_KEYS or not named}
    if isinstance(given, str) and given.lstrip()[:1] in ("{", "["):
        given, _ = _first_json(given.lstrip(), 0)
    return _written(named or name or SEARCH, given, tools)


def _name_of(value: Mapping[str, Any]) -> str:
    return next((value[k] for k in NAME_KEYS if isinstance(value.get(k), str)), "")


def _written(name: str, given: Any, tools: Collection[str]) -> str:
    """Our own element for a call; one for each query of a list."""
    name = name.strip().removeprefix("functions.").partition(":")[0]
    name = next((tool for tool in tools if tool.replace(".", DOT) == name), name)
    if name.lower() in ANSWERS and name not in tools:
        text = str(next(iter(given.values()), "") if isinstance(given, dict) else given)
        return text if parse(text).find("answer") else f"<answer>{text}</answer>"
    if name in tools:
        written = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        return f'<call_tool name="{name}">{neutralise(written)}</call_tool>'
    name = OPEN_PAGE_CALL if name.lower() in (OPEN_PAGE_CALL, READ_CALL) else SEARCH
    rest: dict[str, Any] = {}
    if not isinstance(given, dict):
        queries = given if isinstance(given, list) else [given]
    elif name == OPEN_PAGE_CALL:
        queries = [" ".join(str(held) for held in given.values())]
    else:
        key = next((k for k in QUERY_KEYS if given.get(k)), next(iter(given), ""))
        held = given.get(key, "")
        queries = held if isinstance(held, list) else [held]
        rest = {
            k: v for k, v in given.items() if k != key and isinstance(v, str | int | float | list)
        }
    more = "".join(f' {k}="{_plain(v)}"' for k, v in rest.items() if str(k).isidentifier())
    lines = (" ".join(str(query).split()) for query in queries)
    return "\n".join(
        f'<call_tool name="{name}"{more}>{neutralise(line)}</call_tool>' for line in lines if line
    )


def _plain(value: Any) -> str:
    return "".join(c for c in str(value) if c not in "\"'<>&")


def _tidy(text: str, known: Collection[str], cut: bool) -> str:
    document = parse(text)
    if not document.blocks:
        whole = FENCED.fullmatch(text)
        return _as_answer(whole[1] if whole else text, known, cut) or text
    return "".join(_parts(document, known, cut)).strip()


def _parts(document: ScaffoldDocument, known: Collection[str], cut: bool) -> Iterator[str]:
    """The blocks of a turn, each closed; and as a thought or an answer what stands around them."""
    text, blocks = document.text, _until_called(document.blocks)
    head = _words(document, 0, blocks[0].start)
    if head and not document.find("think"):
        yield f"<think>{neutralise(head)}</think>\n"
    for block in blocks:
        yield _closed(document, block, cut) + "\n"
    last = blocks[-1]
    if last.tag in ("call_tool", "answer") or any(b.tag == "answer" for b in blocks):
        return
    tail = _words(document, last.end, len(text))
    yield _as_answer(tail, known, cut)


def _until_called(blocks: tuple[TaggedBlock, ...]) -> list[TaggedBlock]:
    """The blocks up to the last call; behind a call no answer can rest on what it will find."""
    calls = [i for i, block in enumerate(blocks) if block.tag == "call_tool"]
    ends = [i for i, block in enumerate(blocks) if block.tag in ("answer", "tool_output")]
    before = [i for i in calls if not ends or i < ends[0]]
    if before:
        return list(blocks[: before[-1] + 1])
    kept = [block for block in blocks if block.tag != "tool_output"]
    return kept or list(blocks)


def _words(document: ScaffoldDocument, start: int, end: int) -> str:
    """What stands between blocks, without fences and without tags that close nothing."""
    text = document.text[start:end]
    for at in reversed([at for at in document.orphans if start <= at < end]):
        after = document.text.find(">", at) + 1 or end
        text = text[: at - start] + text[after - start :]
    lines = text.strip().splitlines()
    fences = [bool(_FENCE_LINE.fullmatch(line)) for line in lines]
    # A fence around the whole goes; those of code within it stay.
    if lines and fences[0] and (sum(fences) % 2 or fences[-1]):
        del lines[0], fences[0]
    if lines and fences[-1] and sum(fences) % 2:
        del lines[-1]
    text = "\n".join(lines)
    return text.strip() if _HEADING_LINE.sub("", text).strip(" \n\t`*_#") else ""


def _as_answer(text: str, known: Collection[str], cut: bool) -> str:
    """The text as the answer, if it cites something that was shown, or as a review by its marks."""
    review = f"<review>\n<rubric_review>{text.strip()}</rubric_review>\n</review>"
    if parse(review).review_marks():
        return review
    named = {found.upper().replace("_", "").replace("-", "") for found in _CITED.findall(text)}
    if not named & set(known):
        return ""
    return f"<answer>{text.strip()}" + ("" if cut else "\n</answer>")


def _closed(document: ScaffoldDocument, block: TaggedBlock, cut: bool) -> str:
    """The block with the closing tags that it lacks, but for those still open where it is cut."""
    text, end = document.text[block.start : block.end], len(document.text)
    lacking = [each for each in block.walk() if not each.closed and not (cut and each.end == end)]
    for each in sorted(lacking, key=lambda b: (-b.inner_end, -b.start)):
        at = each.inner_end - block.start
        text = f"{text[:at].rstrip()}</{each.tag}>{text[at:]}" if each is not block else text
    if block in lacking:
        text = f"{text.rstrip()}\n</{block.tag}>"
    inner = FENCED.fullmatch(document.inner(block)) if block.tag == "answer" else None
    if inner and "```" not in inner[1] and block.closed:
        text = f"<answer>\n{inner[1]}\n</answer>"
    return text
