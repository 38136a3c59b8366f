"""Parts that installed packages bring: the page's own, found by their entry points and used."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rubricem.agent.models.opening import embedder_in
from rubricem.agent.sources.choice import is_folder, open_source
from rubricem.judge.build import Wanted, build_judge, identify_judge
from rubricem.memory.errors import SettingsError, import_extra
from rubricem.memory.schema import RubricBuffer, Stage, TrajectoryGroup, is_left_out
from rubricem.memory.text import prompt
from tests.conftest import ROOT
from tests.support.values import Fixed, trajectory

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's module, with an installed package's entry points."""
    code, points = (text for _, text in BLOCK.findall(PAGE))
    (tmp_path / "our_parts.py").write_text(code)
    folder = tmp_path / "ours-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.2\n")
    named = re.sub(r'project\.entry-points\."(.*?)"', r"\1", points).replace('"', "")
    head = "[rubricem.sources]\n"
    (folder / "entry_points.txt").write_text(
        named.replace(head, f"{head}broken = our_parts:Missing\n")
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    prompt.cache_clear()
    yield tmp_path
    prompt.cache_clear()
    sys.modules.pop("our_parts", None)


async def test_the_pages_own_parts_are_found_by_name_and_do_what_they_say(installed: Path) -> None:
    [found] = await open_source("tickets", installed).search("what evicts", 3)
    assert (found.title, is_folder("tickets")) == ("#12", False)
    vectors = (await embedder_in(installed, name="letters")).embed(["ab", "zz"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    assert identify_judge("short") == "short ours 1.2"
    group = TrajectoryGroup(question="q", trajectories=(trajectory("An answer."),))
    model: Any = None
    judged = await build_judge("short", model, Wanted()).judge(group, RubricBuffer(question="q"))
    assert judged.judgements[0].score(Stage.ANSWER) == 1.0
    assert is_left_out(judged.judgements[0].at(Stage.PLAN)), "it is in no sum"
    closed = build_judge("short", model, Wanted(), {Stage.ANSWER: lambda: Fixed(0.0)})
    judged = await closed.judge(group, RubricBuffer(question="q"))
    assert judged.judgements[0].score(Stage.ANSWER) == 0.0
    assert prompt("agent", "plain").startswith("You answer in one sentence")


def test_a_part_that_cannot_be_made_is_told_with_the_package_that_brings_it(
    installed: Path,
) -> None:
    with pytest.raises(SettingsError, match=r"'broken' of rubricem\.sources .our_parts:M"):
        open_source("broken", installed)
    code = (installed / "our_parts.py").read_text()
    (installed / "our_parts.py").write_text(f'{code}\nPLAIN = "You are {{{{nobody}}}}."\n')
    sys.modules.pop("our_parts", None)
    importlib.invalidate_caches()
    with pytest.raises(SettingsError, match=r"agent\.plain of a package has the field \{\{nobody"):
        prompt("agent", "plain")


def test_a_package_that_cannot_be_loaded_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "too_large.py").write_text("raise ImportError('cannot allocate memory')")
    with pytest.raises(SettingsError, match="cannot be loaded: cannot allocate memory") as told:
        import_extra("too_large", "memory")
    assert "Free some memory" in told.value.remedy
    with pytest.raises(SettingsError, match="needs not-there, which is not installed"):
        import_extra("not_there", None)
