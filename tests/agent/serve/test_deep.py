"""Deep research over HTTP: what is told of its investigations, which are runs that can be read."""

from pathlib import Path
from typing import Any

from tests.support.pages import PARTS, QUESTION, RunSite, reply, scripted_site

STATES = ["waiting", "working", "finished"]


async def deep(here: RunSite, question: str = QUESTION) -> str:
    return await here.ask(question, effort="deep")


def parts_told(told: list[Any]) -> list[dict[str, Any]]:
    return [event.data for event in told if event.name == "investigation"]


async def test_each_investigation_is_told_in_few_events_and_read_as_a_run(tmp_path: Path):
    async with scripted_site(reply, tmp_path) as here:
        run = await deep(here)
        told = await here.ended(run)
        parts = parts_told(told)
        for number, question in enumerate(PARTS, start=1):
            own = [part for part in parts if part["number"] == number]
            assert len(own) < 12, "not one for each piece of text"
            assert {part["question"] for part in own} == {question}
            assert list(dict.fromkeys(part["state"] for part in own))[-2:] == STATES[1:]
            assert (own[-1]["calls"], own[-1]["passages"]) == (2, 1)
            assert own[-1]["run"] == f"{run}.{number}"
        assert parts_told(await here.ended(run)) == parts, "who comes late is told the same"
        used = [event.data for event in told if event.name == "usage"]
        tokens = [data["prompt_tokens"] + data["completion_tokens"] for data in used]
        assert tokens == sorted(tokens), "what is handed in is counted once"
        assert used[-1]["tool_calls"] == 4
        left = [data["left"]["max_total_tokens"] for data in used if "left" in data]
        assert 0 < left[-1] < left[0] < 1_000_000
        report = (await here.http.get(f"/api/runs/{run}/report")).json()
        [first, _] = report["investigations"]
        assert (first["state"], first["calls"], first["cited"]) == ("finished", 2, 1)
        one = await here.one(first["run"])
        assert (one["part_of"], one["state"], one["question"]) == (run, "ended", PARTS[0])
        assert (await here.http.get(f"/api/runs/{first['run']}/export/md")).status_code == 200
        assert (await here.ended(first["run"]))[-1].name == "end"
        listed = (await here.http.get("/api/runs")).json()["runs"]
        assert [each["run"] for each in listed] == [run]


async def test_a_part_is_rated_and_named_but_not_gone_on_with_or_deleted_alone(tmp_path: Path):
    async with scripted_site(reply, tmp_path) as here:
        run = await deep(here)
        await here.ended(run)
        part = f"/api/runs/{run}.1"
        for method, path in (("POST", "/resume"), ("DELETE", "")):
            refused = await here.http.request(method, f"{part}{path}")
            assert refused.status_code == 409 and "larger research" in refused.json()["error"]
        assert (await here.http.post(f"{part}/rate", json={"rating": 4})).status_code == 200
        await here.http.patch(part, json={"title": "Size"})
        one = await here.one(f"{run}.1")
        assert (one["title"], one["status"]) == ("Size", "finished")
        kept = here.desk.store.folder / run / "runs" / f"{run}.1"
        assert (kept / "rating.json").exists()
        assert [path.name for path in here.desk.store.folder.iterdir()] == [run]


async def test_a_remark_and_the_stop_of_a_part_reach_the_run(tmp_path: Path):
    async with scripted_site(reply, tmp_path) as here:
        run = await deep(here, f"{QUESTION} silently")
        at = f"/api/runs/{run}"
        async for event in here.events(run):
            part = event.data if event.name == "investigation" else {}
            if part.get("number") == 2 and part["calls"]:
                break
        said = await here.http.post(f"{at}/remarks", json={"text": "Also look at licences"})
        assert said.status_code == 202
        assert (await here.http.post(f"{at}/remarks", json={"text": " "})).status_code == 422
        assert (await here.http.post(f"{at}/investigations/9/stop")).status_code == 404
        assert (await here.http.post(f"{at}/investigations/2/stop")).status_code == 200
        told = await here.ended(run)
        heard = [event.data for event in told if event.name == "remarks"]
        assert (heard[0]["said"], heard[0]["heard"]) == (["Also look at licences"], 0)
        assert heard[-1]["heard"] == 1
        last = {part["number"]: part["state"] for part in parts_told(told)}
        assert last == {1: "finished", 2: "partial"}
        assert told[-2].data["status"] == "finished"
        assert (await here.http.post(f"{at}/remarks", json={"text": "x"})).status_code == 409
        other = await here.ask(f"{QUESTION} forever")
        refused = await here.http.post(f"/api/runs/{other}/remarks", json={"text": "x"})
        assert refused.status_code == 409 and "follow-up" in refused.json()["remedy"]
        await here.http.post(f"/api/runs/{other}/stop")
