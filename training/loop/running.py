"""The loop from beginning to end: every step once, in order, and the page that tells of it."""

from pathlib import Path

from training.loop.plan import LoopPlan
from training.loop.steps import Result, Steps, Tell
from training.loop.story import write_story
from training.loop.work import Loop


async def run_loop(folder: Path, plan: LoopPlan, tell: Tell) -> Path:
    """Do what is not done yet; returns the page. The same call goes on after an interruption."""
    folder = folder.absolute()
    steps = Steps(folder, plan, tell)
    loop = Loop(plan, folder / "data", tell)
    results: dict[str, Result] = {}
    results["trace"] = await steps.once("trace", loop.trace)
    results["before"] = await steps.once("before", lambda at: loop.measure(at, plan.model))
    results["warm"] = await steps.once("warm", lambda at: loop.warm(at, folder / "trace"))
    warm = results["warm"]["checkpoint"]
    results["after"] = await steps.once("after", lambda at: loop.measure(at, warm))
    results["collect"] = await steps.once("collect", lambda at: loop.collect(at, warm))
    results["train"] = await steps.once(
        "train", lambda at: loop.improve(at, folder / "collect", Path(warm))
    )
    trained = results["train"]["checkpoint"]
    results["ask"] = await steps.once("ask", lambda at: loop.ask(at, trained))
    return write_story(folder, plan, results)
