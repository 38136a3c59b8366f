"""What a training would do, for whoever asks before it begins: nothing is loaded or written.

It refuses what a training would refuse, only sooner, and what could not have been meant.
"""

import asyncio
from pathlib import Path

from rubricem.agent.settings import Settings
from rubricem.agent.weights.store import WeightsStore
from rubricem.memory.errors import SettingsError
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.local.load import MemoryNeed, check_folder, row_limit
from rubricem.training.local.local_config import EngineConfig, Method, TrainConfig
from rubricem.training.local.ranks import Ranks
from rubricem.training.local.session import free_memory, settle_dtype
from rubricem.training.rounds.fit import read_rows, select, windows
from rubricem.training.rounds.rollouts import RoundCollectors, samples_by_torch
from rubricem.training.rounds.rounds import questions_of
from rubricem.training.rounds.rounds_config import RoundsConfig, TrainingJob
from rubricem.training.rounds.update import RoundFolders
from rubricem.training.rows.compile import conversations_in
from rubricem.training.show.console import check_tracker


async def plan_training(job: TrainingJob, method: Method, settings: Settings) -> list[str]:
    """What runs where and what memory it takes, in lines; no time, which nobody has measured.

    Raises SettingsError or WeightsError for what cannot run: a folder without weights, a model that
    is no decoder or does not fit, rows that do not suit the method, too few questions, a source, a
    judge, a tracker or a server that there is not.
    """
    config, ranks = job.config, Ranks.join()
    for tracker in config.trackers:
        await asyncio.to_thread(check_tracker, tracker)
    on_gpu = ranks.device.type == "cuda"
    dtype = await asyncio.to_thread(settle_dtype, config, on_gpu)
    config = config.model_copy(update={"dtype": dtype})
    lines = await asyncio.to_thread(_memory_lines, config, settings, ranks)
    if job.rounds is None:
        assert isinstance(config, TrainConfig)
        return lines + await asyncio.to_thread(_rows_lines, config, method)
    return lines + await asyncio.to_thread(_rounds_lines, config, job.rounds, settings, on_gpu)


def _memory_lines(config: EngineConfig, settings: Settings, ranks: Ranks) -> list[str]:
    path, store = Path(config.model).expanduser(), WeightsStore(settings.weights_dir)
    if path.is_dir():
        check_folder(path)
    elif not path.is_file():
        if store.lacks_model(config.model):
            return [f"model: {config.model} is not on disk, and would be fetched first"]
        path = asyncio.run(store.model(config.model))
    free = free_memory(ranks.device)
    memory = MemoryNeed.of(config, path, ranks.world)
    longest = config.max_row_tokens or row_limit(config, path, free, ranks.world)
    if memory.room(free) < longest:
        raise SettingsError(
            f"a row of {longest:,} tokens takes {memory.token * longest / 1e9:.1f} GB beside the "
            f"{memory.fixed / 1e9:.1f} GB of the model, and {free / 1e9:.1f} GB are free.",
            "Set a smaller max_row_tokens, gradient_checkpointing = true, or more processes.",
        )
    parameters = f"{memory.parameters / 1e9:.2f} billion parameters in {config.dtype}"
    what = "an adapter" if config.adaptation == "lora" else "all weights"
    many = f"{ranks.world} processes by {config.parallel}, each on " if ranks.world > 1 else ""
    return [
        f"model: {config.model}, {parameters}",
        f"trains: {what}, {many}{ranks.device}",
        f"memory of each device: {memory.fixed / 1e9:.3g} GB for the model, its gradients and "
        f"moments, {memory.token * longest / 1e9:.3g} GB for a row of {longest:,} tokens, "
        f"{free / 1e9:.1f} GB are free",
    ]


def _rows_lines(config: TrainConfig, method: Method) -> list[str]:
    lines, files = [], list[Path]()
    for path in config.rows:
        if (run := RunDirectory(path)).exists:
            run.manifest()
            if not run.finished_steps():
                raise SettingsError(f"{path} has no finished step.", "Collect on by its command.")
            lines.append(f"rows: {path}, a run of {run.finished_steps()} finished steps")
        elif method == "sft" and (told := conversations_in(path)):
            lines.append(f"rows: {path}, {len(told)} accepted conversations")
        else:
            files.append(path)
    if files:
        found = select(read_rows(files), method, config.max_row_tokens or 1 << 40)
        steps = "" if lines else f" in {len(windows(found.rows, method, config))} steps"
        lines.append(f"rows: {len(found.rows)} of files{steps}")
    return lines


def _rounds_lines(
    config: EngineConfig, rounds: RoundsConfig, settings: Settings, on_gpu: bool
) -> list[str]:
    lines: list[str] = []
    asked, held_out = questions_of(rounds, lines.append)
    folders = RoundFolders(config.out, config.out / "data")
    RoundCollectors(rounds, config, settings, folders, lines.append).check(len(asked.questions))
    passes = rounds.rounds * rounds.questions_per_round / len(asked.questions)
    torch = f"torch on the {'GPU' if on_gpu else 'processor'} of this process"
    here = torch if samples_by_torch(rounds) else "llama.cpp on the processors of this machine"
    server, name = rounds.judge_base_url or rounds.base_url, rounds.judge_model or rounds.model
    judge = f"{name or 'its only model'} at {server}" if server else f"{name or config.model}, here"
    return [
        *lines,
        f"rounds: {rounds.rounds} of {rounds.questions_per_round} questions, {rounds.group_size} "
        f"rollouts of each; {len(asked.questions)} questions are asked {passes:.1f} times"
        + (f", {len(held_out.questions)} are held out" if held_out else ""),
        f"samples: {f'{rounds.model} at {rounds.base_url}' if rounds.base_url else here}",
        f"searches: {', '.join(rounds.source)}",
        f"judges and scores reflections: {judge}, by {rounds.judge}",
    ]
