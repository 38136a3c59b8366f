"""Collected and trained runs over HTTP: which are found, their numbers, what cannot be read."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rubricem.training.show.routes import roots_of, routes
from tests.support.collected import written_run
from tests.support.pages import served

STEPS = (
    {"step": 0, "loss": 0.5, "grad_norm": float("nan")},
    {"step": 1, "loss": 0.25, "grad_norm": 1.5},
)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    roots = tmp_path / "data", tmp_path / "elsewhere"
    async with served(routes, {roots_of: roots}) as client:
        yield client


def train(folder: Path, steps: tuple[dict[str, Any], ...] = STEPS) -> Path:
    folder.mkdir(parents=True)
    record = {"method": "ss-grpo", "model": "/home/me/w.gguf", "bank": "/home/me/b", "rank": 8}
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    return folder


async def got(client: httpx.AsyncClient, path: str) -> Any:
    reply = await client.get(f"/api/{path}")
    assert reply.status_code == 200, reply.text
    return reply.json()


async def names(client: httpx.AsyncClient, kind: str) -> list[str]:
    return [one["name"] for one in (await got(client, kind))[kind]]


async def test_runs_are_found_under_the_data_directory_and_the_named_folders_alone(
    client: httpx.AsyncClient, tmp_path: Path
):
    first = written_run(tmp_path / "data" / "collected" / "first").folder
    written_run(tmp_path / "elsewhere")
    written_run(tmp_path / "hidden" / "other")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "hidden")
    os.utime(first, (1, 1))
    assert await names(client, "collected") == ["elsewhere", "first"]
    listed = (await got(client, "collected"))["collected"][1]
    assert (listed["steps"], listed["questions"], listed["judge"]) == (2, 2, "fake")


async def test_groups_are_told_one_by_one_also_of_a_step_that_goes_on(
    client: httpx.AsyncClient, tmp_path: Path
):
    run = written_run(tmp_path / "data" / "first")
    first, second = (await got(client, "collected/first"))["grid"]
    assert (first["step"], first["rollouts"], first["failed"], first["finished"]) == (0, 2, 1, True)
    assert first["scores"] == {"plan": 0.5, "research": 0.375, "review": 0.5, "answer": 0.625}
    assert second["scores"] == dict.fromkeys(("plan", "research", "review", "answer"))
    judged = run.judgement_of(0, "a")
    assert judged is not None
    run.save_part(2, "c-judged", judged)
    *_, third = (await got(client, "collected/first"))["grid"]
    assert (third["step"], third["rollouts"], third["finished"]) == (2, 2, False)
    assert third["scores"]["answer"] == 0.625
    run.commit(2, {})
    assert len((await got(client, "collected/first"))["grid"]) == 2


async def test_a_training_is_told_step_by_step_without_paths_or_nan(
    client: httpx.AsyncClient, tmp_path: Path
):
    train(tmp_path / "data" / "trained")
    run = await got(client, "trained/trained")
    assert run["steps"] == [
        {"step": 0, "loss": 0.5},
        {"step": 1, "loss": 0.25, "grad_norm": 1.5},
    ]
    assert (run["method"], run["model"], run["record"]["bank"]) == ("ss-grpo", "w.gguf", "b")
    assert run["unit"] == "step" and "/home/me" not in json.dumps(run)
    assert (await got(client, "trained"))["trained"] == [
        {"name": "trained", "method": "ss-grpo", "model": "w.gguf", "steps": 2, "running": False}
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["none", "..%2f..", "%2e%2e", "x" * 200])
async def test_an_unknown_name_is_a_404(client: httpx.AsyncClient, tmp_path: Path, name: str):
    written_run(tmp_path / "data" / "first")
    for kind in ("collected", "trained"):
        assert (await client.get(f"/api/{kind}/{name}")).status_code == 404


async def test_what_is_damaged_is_told_and_holds_nothing_else_up(
    client: httpx.AsyncClient, tmp_path: Path
):
    written_run(tmp_path / "data" / "good")
    bad = written_run(tmp_path / "data" / "bad").folder
    (bad / "manifest.json").write_text("{")
    trained = train(tmp_path / "data" / "t")
    (trained / "metrics.jsonl").write_text('{"step": 0}\n{"step"')
    listed = {one["name"]: one for one in (await got(client, "collected"))["collected"]}
    assert "cannot be read" in listed["bad"]["problem"] and listed["good"]["steps"] == 2
    assert "cannot be read" in (await got(client, "trained"))["trained"][0]["problem"]
    reply = await client.get("/api/trained/t")
    assert reply.status_code == 500 and reply.json()["remedy"]
    assert str(tmp_path) not in reply.text
