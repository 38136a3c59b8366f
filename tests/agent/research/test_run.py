"""The run: append-only, token exact, journal first, every source numbered once."""

from rubricem.memory.schema import Author, Sampling, Stage, Status
from tests.support.policies import PASSAGES, FixedSearch, Opening, ScriptedPolicy

SAMPLING = Sampling(max_tokens=100)


async def test_ids_of_all_segments_are_the_ids_of_the_whole_text(run_of: Opening):
    run = await run_of(ScriptedPolicy(["plan text"]))
    await run.prompt(Stage.PLAN, "<think>")
    run.keep([(Stage.PLAN, "plan text")], await run.write(Stage.PLAN, SAMPLING))
    ids = [i for s in run.segments for i in s.token_ids or ()]
    assert "".join(map(chr, ids)) == "systemquestion<think>plan text"
    assert run.text == "<think>plan text"


async def test_a_completion_is_cut_into_stages_by_tokens(run_of: Opening):
    run = await run_of(ScriptedPolicy(["plancall"]))
    written = await run.write(Stage.PLAN, SAMPLING)
    run.keep([(Stage.PLAN, "plan"), (Stage.RESEARCH, "call")], written)
    plan, call = run.segments[1:]
    assert (plan.stage, plan.text, plan.token_ids) == (Stage.PLAN, "plan", tuple(map(ord, "plan")))
    assert (call.stage, call.text, call.logprobs) == (Stage.RESEARCH, "call", (-0.5,) * 4)


async def test_the_next_process_gets_finished_calls_from_the_journal(run_of: Opening):
    first, second = ScriptedPolicy(["plan"]), ScriptedPolicy(["never asked"])
    run = await run_of(first)
    written = await run.write(Stage.PLAN, SAMPLING)
    run.journal.close()
    again = await run_of(second)
    assert await again.write(Stage.PLAN, SAMPLING) == written
    assert second.calls == []
    assert again.usage == run.usage


async def test_a_call_under_another_transcript_is_a_new_call(run_of: Opening):
    policy = ScriptedPolicy(["one", "two"])
    run = await run_of(policy)
    await run.write(Stage.PLAN, SAMPLING)
    await run.prompt(Stage.PLAN, "x")
    assert (await run.write(Stage.PLAN, SAMPLING)).text == "two"


async def test_each_call_has_its_own_seed_and_a_rerun_the_same(run_of: Opening):
    seeds = []
    for folder in ("a", "b"):
        policy = ScriptedPolicy(["one", "two"])
        run = await run_of(policy, folder=folder)
        await run.write(Stage.PLAN, SAMPLING)
        await run.prompt(Stage.PLAN, "x")
        await run.write(Stage.PLAN, SAMPLING)
        seeds.append([sampling.seed for _, sampling in policy.calls])
    assert seeds[0] == seeds[1]
    assert seeds[0][0] != seeds[0][1]


async def test_sources_are_numbered_in_order_keep_their_number_and_are_named_again(run_of: Opening):
    search = FixedSearch(PASSAGES[:2])
    run = await run_of(ScriptedPolicy([]), search, passages=2)
    first = await run.search("lru cache")
    again = await run.search("others")
    search.passages = [PASSAGES[1], PASSAGES[2]]
    second = await run.search("other words")
    assert [s.id for s in first.sources] == [s.id for s in again.sources] == ["S1", "S2"]
    assert again.new == frozenset()
    assert [s.id for s in second.sources] == ["S3"]
    assert run.sources["S3"].query == "other words"


async def test_a_discarded_attempt_is_kept_outside_the_transcript(run_of: Opening):
    policy = ScriptedPolicy(["bad", "good"])
    run = await run_of(policy)
    run.discard(Stage.PLAN, await run.write(Stage.PLAN, SAMPLING))
    run.attempt = 1
    await run.write(Stage.PLAN, SAMPLING)
    assert policy.calls[1][0] == ""
    assert [(s.text, s.kept) for s in run.segments[1:]] == [("bad", False)]


async def test_the_first_reason_to_end_early_stands_but_for_a_failure(run_of: Opening):
    run = await run_of(ScriptedPolicy([]))
    run.end_early("first")
    run.end_early("second")
    trajectory = run.trajectory("id")
    assert (trajectory.status, trajectory.reason) == (Status.PARTIAL, "first")
    assert trajectory.segments[0].author is Author.PROMPT
    run.end_early("the server is down", Status.FAILED)
    assert (run.status, run.reason) == (Status.FAILED, "the server is down")


async def test_room_counts_every_kept_token(run_of: Opening):
    run = await run_of(ScriptedPolicy([], context_tokens=100))
    assert run.room() == 100 - len("systemquestion")


async def test_a_failed_search_says_why_and_is_not_remembered_as_an_empty_one(run_of: Opening):
    search = FixedSearch(error="index is gone")
    run = await run_of(ScriptedPolicy([]), search)
    found = await run.search("lru")
    assert (found.sources, found.error) == ((), "index is gone")
    await run.prompt(Stage.RESEARCH, "failed", Author.TOOL)
    search.error = ""
    assert len((await run.search("lru")).sources) == 3


async def test_half_an_emoji_neither_hangs_nor_shifts_the_text(run_of: Opening):
    run = await run_of(ScriptedPolicy(["a\ud83d b"]))
    written = await run.write(Stage.PLAN, SAMPLING)
    assert written.text == "a\ufffd b"
    assert len(written.text) == len(written.token_ids or ())
