"""The verify node's work on a run: within its budgets, and never instead of its answer."""

from agent.budgets import OutOfTime, reason_of
from agent.events import UsageCounted
from agent.journaled import Calls
from agent.run import Run


async def verify_run(run: Run) -> None:
    """Check the run's citations; a run whose budget is spent is checked by rules alone."""
    verifier = run.verifying.verifier
    if verifier is None:
        return
    trajectory = run.trajectory("")
    by = run.ended_by if run.cut_in else run.spending.out()
    if by:
        run.verifying.result = verifier.by_rules(trajectory, _why(run, by))
        return
    began = run.spending.seconds
    try:
        verifying = verifier.verify(trajectory, Calls(run.journal), run.listener)
        run.verifying.result, used = await run.spending.bounded(verifying)
    except OutOfTime as end:
        run.verifying.result = verifier.by_rules(trajectory, _why(run, end.by))
        return
    run.usage += used
    run.spending.count(used, run.spending.seconds - began)
    run.listener(UsageCounted(run.usage))


def _why(run: Run, by: str) -> str:
    return f"no model checked the citations, since {reason_of(by, run.spending.budgets)}"
