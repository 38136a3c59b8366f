"""A collecting run compiled to rows, with the embedded model's tokeniser where text has no ids."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agent.choice import EmbeddedChoice, choose_policy
from agent.clients import load_embedded
from agent.events import ignore
from agent.rejection import Rule
from agent.settings import load_settings
from agent.weights.resolving import resolve_files
from memory.errors import SettingsError
from memory.schema import Decoding
from training.compiling import Compiled, compiled
from training.exporting import each_row, needs_tokeniser
from training.folder_tokeniser import is_folder, read_tokeniser
from training.recasting import sft_rows
from training.rejecting import breaking
from training.row_rule import SS_GRPO, RowRule
from training.rows import TrainRow
from training.run_directory import RunDirectory
from training.sequences import Tokeniser
from training.teaching import imitation_rows
from training.vocabulary import gguf_vocabulary


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A tokeniser, and which vocabulary its ids are of."""

    tokeniser: Tokeniser
    vocabulary: str

    def known(self, row: TrainRow) -> TrainRow:
        """Others than those for imitation may have their sampler's ids."""
        if row.objective != "sft":
            return row
        return row.model_copy(update={"tokenizer": self.vocabulary})


async def compiled_run(folder: Path, rule: RowRule = SS_GRPO, model: str | None = None) -> Compiled:
    """All rows of a run's finished steps at once, as `each_compiled` gives them."""
    return compiled([found async for found in each_compiled(folder, rule, model)])


async def each_compiled(
    folder: Path,
    rule: RowRule = SS_GRPO,
    model: str | None = None,
    rules: Collection[Rule] = (),
) -> AsyncGenerator[TrainRow | str, None]:
    """The rows of a run's finished steps one after another, with reasons in the place of others.

    `model` names the model that text without ids is encoded for; None: the run's own.
    `rules`: of what is imitated, the rejection rules beyond the first four.
    """
    run = RunDirectory(folder)
    async with _tokeniser(run, model) as loaded:
        async for found in each_row(run, loaded.tokeniser if loaded else None, rule, rules):
            yield loaded.known(found) if loaded and isinstance(found, TrainRow) else found


async def compiled_traces(folder: Path, model: str, rules: Collection[Rule] = ()) -> Compiled:
    """Rows that imitate the accepted rollouts, whoever wrote them, as `model` encodes them.

    `rules`: the rejection rules beyond the first four.
    """
    run = RunDirectory(folder)
    manifest, traces = run.manifest(), run.trajectories()
    broken = breaking(rules)
    async with _loaded(model) as loaded:
        tokeniser = loaded.tokeniser
        if manifest.decoding is Decoding.FREE:
            found = await imitation_rows(traces, tokeniser, broken)
        else:
            found = await sft_rows(traces, tokeniser, tool_calls=manifest.tool_calls, broken=broken)
    return replace(found, rows=tuple(map(loaded.known, found.rows)))


@asynccontextmanager
async def _tokeniser(run: RunDirectory, model: str | None) -> AsyncIterator[_Loaded | None]:
    kept = run.manifest().settings
    if not needs_tokeniser(run) or (kept["base_url"] and not model):
        yield None
        return
    async with _loaded(model or kept["model"]) as loaded:
        yield loaded


@asynccontextmanager
async def _loaded(model: str | None) -> AsyncIterator[_Loaded]:
    if model and is_folder(model):
        own = await asyncio.to_thread(read_tokeniser, Path(model).expanduser())
        yield _Loaded(own, own.vocabulary)
        return
    settings = load_settings({"model": model})
    settings = settings.model_copy(update={"base_url": None})
    choice = choose_policy(settings)
    if not isinstance(choice, EmbeddedChoice):
        raise SettingsError(
            f"{settings.model!r} is no embedded model.", "Name the one to train: --model 0.5b"
        )
    embedded = await load_embedded(settings, choice, ignore)
    try:
        files = await resolve_files(choice.model_name, directory=settings.weights_dir)
        yield _Loaded(embedded, await asyncio.to_thread(gguf_vocabulary, files.path))
    finally:
        await embedded.aclose()
