"""Servers follow the weights: by their engines' interfaces, or by a command of one's own."""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy
from rubricem.agent.weights.checkpoints import NOTE, Checkpoint, note_of
from rubricem.memory.errors import PolicyError
from rubricem.memory.schema import Author, Sampling, Segment
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.session import open_session
from rubricem.training.rounds import rollouts
from rubricem.training.rounds.rollouts import (
    Sampled,
    SamplingServer,
    SamplingServers,
    refresh_server,
)
from rubricem.training.rounds.rounds_config import RoundsConfig
from rubricem.training.rounds.update import RoundFolders, copy_files
from rubricem.training.statistics import meaning_apart
from tests.support.banks import WordEmbedder, bank_in, reflection
from tests.support.rows import Parts, config_of, policy_rows, quiet
from tests.support.token_servers import Engine
from tests.support.waiting import wait_for

KINDS = ("vllm-lora", "vllm-weights", "sglang-lora", "sglang-weights")
VERSION = "ss-grpo-3-abcdef012345"
SAMPLING = Sampling(max_tokens=16, seed=1)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints" / "000003"
    folder.mkdir(parents=True)
    note = Checkpoint(base="base", base_sha256="", adapter_sha256="abcdef012345", method="ss-grpo",
                      step=3, rank=4, alpha=8.0)  # fmt: skip
    (folder / "checkpoint.json").write_text(note.model_dump_json())
    (folder / "adapter_config.json").write_text("{}")
    return folder


def test_what_a_round_samples_from_knows_its_base_from_where_it_lies(
    checkpoint: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base.gguf"
    note = note_of(checkpoint).model_copy(update={"base": str(base)}).beside(checkpoint)
    (checkpoint / NOTE).write_text(note.model_dump_json())
    folders = RoundFolders(tmp_path / "out", tmp_path / "data")
    folders.keep_policy(0, checkpoint)
    assert note_of(folders.policy(0)).base == note_of(checkpoint).base == str(base)
    assert note_of(folders.policy(0)).version == VERSION
    assert (folders.policy(0) / "adapter_config.json").samefile(checkpoint / "adapter_config.json")


@pytest.mark.parametrize("broken", ["adapter_config.json", "checkpoint.json", "missing"])
def test_a_damaged_copy_of_what_a_round_samples_from_is_made_anew(
    checkpoint: Path, tmp_path: Path, broken: str
) -> None:
    folders = RoundFolders(tmp_path / "out", tmp_path / "data")
    folders.keep_policy(0, checkpoint)
    copy = folders.policy(0) / broken.replace("missing", "adapter_config.json")
    copy.unlink()  # it is the checkpoint's own file by another name
    if broken != "missing":
        copy.write_text("{")
    folders.keep_policy(0, checkpoint)
    assert (folders.policy(0) / "adapter_config.json").read_text() == "{}"
    assert note_of(folders.policy(0)).version == VERSION


def test_a_round_goes_on_with_the_checkpoint_that_it_began_with(
    checkpoint: Path, tmp_path: Path
) -> None:
    folders = RoundFolders(tmp_path / "out", tmp_path / "data")
    folders.keep_policy(0, checkpoint)
    note = note_of(checkpoint).model_copy(update={"step": 4})
    (checkpoint / NOTE).write_text(note.model_dump_json())
    folders.keep_policy(0, checkpoint)
    assert note_of(folders.policy(0)).version == VERSION, "another one would be another run"


@pytest.fixture
def three(request: pytest.FixtureRequest) -> Iterator[list[Engine]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Engine(request.param)) for _ in range(3)]


def pool_of(engines: Sequence[Engine], out: Path, told: list[str]) -> SamplingServers:
    servers = [SamplingServer(one.base_url, one.kind, "base") for one in engines]
    return SamplingServers(servers, out, told.append)


def served(engine: Engine) -> bool:
    return VERSION in (engine.version, *engine.adapters)


@pytest.mark.parametrize("three", KINDS, indirect=True)
async def test_each_server_has_the_checkpoint_and_says_so(
    three: list[Engine], checkpoint: Path, tmp_path: Path
) -> None:
    told: list[str] = []
    servers, kind = pool_of(three, tmp_path, told), three[0].kind
    named = {"vllm-lora": VERSION, "sglang-lora": f"base:{VERSION}"}
    async with servers.serving(checkpoint) as (name, addresses):
        assert name == named.get(kind, "base")
        assert addresses == tuple(one.base_url for one in three)
        assert all(map(served, three)) and not any(one.paused for one in three)
        place = str(tmp_path / "served" / VERSION)
        assert {one.adapters.get(VERSION, one.weights) for one in three} == {place}
        asked = [len(one.asked) for one in three]
        async with servers.serving(checkpoint) as (again, _):
            assert again == name, "held-out questions are asked of the same"
        assert served(three[0]) and max(len(one.asked) for one in three) <= asked[0] + 1
    assert told[0].startswith(f"3 of 3 servers have {VERSION}")
    assert not any(one.adapters for one in three), "what nobody samples is forgotten"
    assert not Path(place).exists()


@pytest.mark.parametrize("three", ["vllm-lora"], indirect=True)
async def test_two_who_begin_with_one_checkpoint_give_it_to_a_server_once(
    three: list[Engine], checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a round and the held-out questions do, also while a third lets it go."""
    told: list[str] = []
    servers, copied = pool_of(three, tmp_path, told), copy_files

    def slow(checkpoint: Path, place: Path) -> None:
        copied(checkpoint, place)
        time.sleep(0.05)

    monkeypatch.setattr(rollouts, "copy_files", slow)
    used = asyncio.Event()

    async def sampling() -> None:
        async with servers.serving(checkpoint):
            assert all(map(served, three)) and (tmp_path / "served" / VERSION).is_dir()
            await used.wait()
            assert all(map(served, three)) and (tmp_path / "served" / VERSION).is_dir()

    begun = [asyncio.create_task(sampling()) for _ in range(2)]
    await asyncio.to_thread(wait_for, lambda: len(told) == 2 or begun[0].done() or begun[1].done())
    assert len(told) == 2 and all(line.startswith("3 of 3 servers have") for line in told)
    used.set()
    await asyncio.sleep(0)
    await asyncio.gather(*begun, sampling())
    assert not any(one.adapters for one in three)


@pytest.mark.parametrize("three", KINDS, indirect=True)
async def test_a_refresh_that_half_fails_leaves_those_out_and_tries_them_again(
    three: list[Engine], checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "TRIED_AGAIN", 0.05)
    told: list[str] = []
    changing = {
        "vllm-lora": "POST /v1/load_lora_adapter", "vllm-weights": "POST /collective_rpc",
        "sglang-lora": "POST /load_lora_adapter",
        "sglang-weights": "POST /update_weights_from_disk",
    }  # fmt: skip
    three[0].failing = {changing[three[0].kind]}
    async with pool_of(three, tmp_path, told).serving(checkpoint) as (_, addresses):
        assert addresses[2] == three[0].base_url, "those that have it are asked first"
        assert [served(one) for one in three] == [False, True, True]
        assert not three[0].paused, "a server is not left paused"
        assert any("left out" in line and "out of memory" in line for line in told)
        three[0].failing = set()
        await asyncio.to_thread(wait_for, lambda: any("again" in line for line in told))
        assert served(three[0])
        three[1].restarted()
        await asyncio.to_thread(wait_for, lambda: served(three[1]))
    for one in three:
        one.failing = {changing[one.kind]}
        one.restarted()
    with pytest.raises(PolicyError, match=r"was not given the checkpoint: .*500: .*out of memory"):
        async with pool_of(three, tmp_path, told).serving(checkpoint):
            raise AssertionError("nobody serves it")


@pytest.mark.parametrize("three", ["vllm-weights"], indirect=True)
async def test_a_server_of_another_kind_is_told_as_such(
    three: list[Engine], checkpoint: Path, tmp_path: Path
) -> None:
    wrong = SamplingServer(three[0].base_url, "sglang-weights", "base")
    with pytest.raises(PolicyError, match=r"said 404|is no server of sglang-weights"):
        async with SamplingServers([wrong], tmp_path, quiet).serving(checkpoint):
            raise AssertionError("it is vLLM")
    away = SamplingServer("http://127.0.0.1:9/v1", "vllm-lora", "base")
    with pytest.raises(PolicyError, match=r"127.0.0.1:9 did not answer \(ConnectError\)"):
        async with SamplingServers([away], tmp_path, quiet).serving(checkpoint):
            raise AssertionError("nobody is there")


async def test_llama_server_itself_applies_the_adapter_that_it_was_started_with(
    tiny: Path, tmp_path: Path
) -> None:
    """The real one; loading while it runs is its router's, which is not in the package."""
    config = config_of(tmp_path, tiny, policy_rows(4))
    async with open_session(config, "ss-grpo", quiet) as session:
        session.step(policy_rows(4), 0.01)
        newest = session.save()
    served = tmp_path / "served" / "adapter.gguf"
    served.parent.mkdir()
    served.write_bytes((newest / "adapter.gguf").read_bytes())
    policy = await LlamaPolicy.load(tiny, "tiny", "v", LlamaConfig(512, adapter=served))
    try:
        key = policy._http.headers["authorization"].removeprefix("Bearer ")
        root = str(policy._http.base_url).rstrip("/")
        mine = SamplingServer(f"{root}/v1", "llama-adapter", str(tiny), key)
        await mine._post("/lora-adapters", [{"id": 0, "scale": 0.0}])
        assert not await mine.serves(VERSION, served)
        async with SamplingServers([mine], tmp_path, quiet).serving(newest) as (name, _):
            assert name == str(tiny)
            assert await mine.serves(VERSION, served)
        with pytest.raises(PolicyError, match=r"is no router, and loads .* only as it begins"):
            await mine.take(VERSION, newest, tmp_path / "other.gguf")
    finally:
        await policy.aclose()


async def test_the_last_line_that_is_printed_is_the_name_to_ask_for(tmp_path: Path) -> None:
    said = await refresh_server(["echo", "loading\n{checkpoint}"], tmp_path, "[rounds]")
    assert said == str(tmp_path)
    with pytest.raises(PolicyError, match="was not given the checkpoint: No such file"):
        await refresh_server([str(tmp_path / "none")], tmp_path, "[rounds]")


async def test_a_command_that_nobody_waits_for_any_more_is_ended(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    command = ["sh", "-c", f"echo $$ > {begun}.part; mv {begun}.part {begun}; exec sleep 3600"]
    waiting = asyncio.ensure_future(refresh_server(command, tmp_path, "[rounds]"))
    await asyncio.to_thread(wait_for, begun.exists)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    # It would give the server a checkpoint that is no more asked for.
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)


@pytest.mark.parametrize("three", ["vllm-weights", "sglang-weights"], indirect=True)
async def test_calls_end_before_weights_are_replaced_and_each_tells_by_which_it_was_sampled(
    three: list[Engine], checkpoint: Path, tmp_path: Path
) -> None:
    rounds = RoundsConfig(
        questions="q", rounds=3, base_url=tuple(one.base_url for one in three), model="base",
        refresh=three[0].kind, in_flight="keep", judge_base_url="http://127.0.0.1:9/v1",
    )  # fmt: skip
    config = EngineConfig(out=tmp_path / "out", model="base")
    sampled = Sampled(rounds, config, RoundFolders(config.out, tmp_path), quiet)
    async with sampled.open():
        newest = sampled.newest
        assert newest is not None
        await newest.replace(None, 0)
        policy = await newest.policy(None)
        prompt = [
            Segment(author=Author.PROMPT, text="", token_ids=await policy.render("", "Count."))
        ]

        async def said() -> str:
            return (await policy.write("", prompt, SAMPLING, None, None)).policy_version

        assert await said() == ""
        async with newest.hold() as weights:
            replacing = asyncio.ensure_future(newest.replace(checkpoint, 1))
            await weights.leaving.wait()
            coming = asyncio.ensure_future(said())
            await asyncio.sleep(0.05)
            assert not replacing.done() and not any(map(served, three)), "a call is in flight"
        await replacing
        assert all(map(served, three))
        version = await coming
        assert version.endswith(f"@{VERSION}") and policy.version not in ("", version)
        assert (newest.updates_of(policy.version), newest.updates_of(version)) == (0, 1)
        sampled_by = [version for one in three for _, version in one.sampled]
        assert sorted(sampled_by) == ["default", VERSION]
        assert (await newest.policy(policy.version)).version == policy.version, (
            "of a run that goes on"
        )
        await newest.replace(checkpoint, 2)
        assert newest.updates_of(version) == 1, "a round that trained nothing replaces nothing"


async def test_a_server_that_was_not_refreshed_is_found_by_its_version(tmp_path: Path):
    parts = Parts(tmp_path, 4)
    open_round = parts.open_round

    def same(number: int, batch: Any) -> Any:
        # Its policy names itself as in the first round, whatever it was given.
        (parts.folders.policy(number) / "weights").unlink(missing_ok=True)
        return open_round(number, batch)

    parts.open_round = same  # type: ignore[method-assign]
    await parts.rounds().run()
    lines = parts.updates.lines
    assert [line["staleness/max"] for line in lines[:3]] == [0, 1, 2]
    assert [line["rows/policy"] for line in lines] == [4, 4, 4, 0], "three updates old"
    assert lines[3]["dropped/older than 2 updates"] == 8


def sampled(folder: Path, **rounds: Any) -> Sampled:
    config = RoundsConfig(questions="q.jsonl", rounds=2, **rounds)
    return Sampled(config, EngineConfig(out=folder), RoundFolders(folder, folder / "data"), print)


async def test_the_banks_model_is_used_once_it_is_loaded_and_no_other(tmp_path: Path):
    one, model = sampled(tmp_path), WordEmbedder()
    assert await one.embedder() is None, "no bank is open"
    one.bank = bank_in(tmp_path, model)
    assert await one.embedder() is None, "nothing was looked up by meaning"
    await one.bank.put(reflection("What is a cache?", "r"))
    assert await one.bank.search("heap")
    assert await one.embedder() is model


@pytest.mark.model
async def test_a_model_that_is_asked_for_is_opened_once_without_a_bank(
    tmp_path: Path, minilm: Path
):
    one = sampled(tmp_path, embed_answers=True, reflections=0)
    embedder = await one.embedder()
    assert embedder is not None and await one.embedder() is embedder
    near = meaning_apart(
        ["Caches evict the oldest entry.", "A cache drops what is oldest."], embedder
    )
    far = meaning_apart(["Caches evict the oldest entry.", "Rome is a city in Italy."], embedder)
    assert near is not None and far is not None and 0 <= near < far <= 2
