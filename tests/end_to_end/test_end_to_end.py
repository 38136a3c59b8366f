"""A question answered by the real embedded model over a small folder, as the command does it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rubricem.agent.cli import main


@pytest.mark.model
@pytest.mark.parametrize(
    ("model", "weights"),
    [
        ("0.5b", "weights_05b"),
        pytest.param("1.5b", "weights_15b", marks=pytest.mark.slow),
    ],
)
def test_a_question_is_answered_end_to_end(
    model: str,
    weights: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
):
    path: Path = request.getfixturevalue(weights)
    monkeypatch.setenv("RUBRICEM_WEIGHTS_DIR", str(path.parent.parent))
    (tmp_path / "cache.md").write_text(
        "# functools.lru_cache\n\nIf maxsize is None, the LRU feature is disabled and the cache "
        "can grow without bound.\n"
    )
    (tmp_path / "heap.md").write_text("# heapq\n\nThe smallest element is always heap[0].\n")
    question = "What does functools.lru_cache do with maxsize None?"
    flags = ("--model", model, "--source", tmp_path, "--tool-calls", "1", "--json")
    # It says what answers; whether so small a model is certain of it is not a claim.
    done = CliRunner().invoke(main, ["ask", question, *map(str, flags), "--format", "short"])
    report = json.loads(done.stdout)
    certain = {0: "finished", 3: "partial"}
    assert (done.stderr, report["status"]) == ("", certain[done.exit_code])
    # With one search allowed, what it would look up further is cut.
    ends = ("",) if done.exit_code == 0 else ("uncertain", "tool_calls")
    assert report["ended_by"] in ends
    assert report["dropped_citations"] == 0
    assert "without bound" in report["answer"]
    assert [stage["stage"] for stage in report["stages"]] == [
        "plan", "research", "review", "answer",
    ]  # fmt: skip
    assert report["citations"]
    for cite in report["citations"]:
        assert cite["source"]["passage"] in "".join(p.read_text() for p in tmp_path.glob("*.md"))
    assert report["usage"]["cached_tokens"] > 0
    assert report["usage"]["cost"] == 0.0
