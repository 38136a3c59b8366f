"""Chat templates that never end are refused or ended; the others render as their makers mean."""

from pathlib import Path

import pytest

from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy
from rubricem.agent.weights import templates
from rubricem.agent.weights.templates import ChatTemplate, template_in
from rubricem.memory.errors import WeightsError
from rubricem.memory.schema import Message
from tests.support import tiny

USUAL = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
ENDLESS = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
LATE = f"{USUAL}{{% if messages|length > 4 %}}{ENDLESS}{{% endif %}}"
STRICT = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + USUAL
)
SILENT = "{% for m in messages if m.role != 'system' %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
SAID = [Message("system", "Be brief."), Message("user", "Who?")]


async def test_a_template_that_loops_only_in_a_long_conversation_is_ended_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "TEMPLATE", LATE)
    monkeypatch.setattr(templates, "SECONDS", 0.3)
    path = tiny.write_tiny(tmp_path / "late.gguf")
    assert template_in(path) == LATE
    policy = await LlamaPolicy.load(path, "late", "v", LlamaConfig(512, threads=1))
    try:
        assert await policy.render(SAID)
        with pytest.raises(
            WeightsError, match=r"template of late\.gguf does not terminate"
        ) as told:
            await policy.render(SAID * 3)
        assert told.value.remedy and await policy.render(SAID), "the next call is served"
    finally:
        await policy.aclose()


@pytest.mark.parametrize(
    "template",
    [
        ENDLESS,
        "{% for a in range(10 ** 12) %}x{% endfor %}",
        "{{ 'x' * 999999999 }}",
        "{% for a in range(9999) %}{{ 'x' * 99999 }}{% endfor %}",
        "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    ],
)
def test_what_never_ends_or_fills_the_memory_is_told_as_such(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "SECONDS", 0.3)
    with pytest.raises(WeightsError, match="chat template of m does not terminate") as told:
        ChatTemplate("m", template, {}).render(SAID)
    assert told.value.remedy


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        (USUAL, "[system] Be brief.\n[user] Who?\n"),
        (STRICT, "[user] Be brief.\n\nWho?\n"),
        (SILENT, "[user] Be brief.\n\nWho?\n"),
        ("{{ bos_token }}{{ messages[1].content | tojson }}{{ strftime_now('') }}", '<s>"Who?"'),
        ("", "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n"
         "<|im_start|>assistant\n"),
    ],
)  # fmt: skip
def test_a_prompt_is_written_by_the_template_and_no_system_text_is_lost(
    template: str, prompt: str
) -> None:
    said = SAID if "bos_token" not in template else [Message("system", "<s>"), SAID[1]]
    assert ChatTemplate("m", template, {"bos_token": "<s>"}).render(said) == prompt
