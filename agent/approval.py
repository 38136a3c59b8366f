"""People in the loop: the plan is shown and approved, changed or rejected; one question back.

Both are LangGraph interrupts in nodes that hold nothing else, since an interrupted node runs
again from its start. A decision is in the run's journal before it takes effect: a run that is
killed afterwards does not ask again. What a person writes is put behind the policy's text as a
note; nothing that was sent to the model is changed.
"""

from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from agent.budgets import RunCut
from agent.formats import INSTRUCTION
from agent.prompting import fill, template
from agent.reading import rubric_items
from agent.run import Run
from agent.scaffold import Document, neutralise, parse
from memory.errors import SettingsError
from memory.interfaces import Sampling
from memory.schema import Author, Segment, Stage
from memory.text import storable
from memory.values import Usage, Value

MOST_REJECTED = 5
"""plans that a person may reject before the run ends"""
DOUBT_TOKENS = 120
"""a question back is one sentence"""
_NONE = "none"
V = TypeVar("V", bound=Value)


class Plan(Value):
    """What a person is shown of a plan, and may change."""

    rubric: tuple[str, ...] = ()
    research_plan: str = ""
    query: str = ""
    """the first search"""


class PlanDecision(Value):
    """What a person says of a plan; `plan` is theirs where they edited it."""

    verdict: Literal["approve", "edit", "reject"]
    plan: Plan = Plan()
    reason: str = ""


class Reply(Value):
    """A person's answer to a question back; "" where they had none."""

    text: str = ""


async def approved(run: Run, query: str) -> str | None:
    """Have the plan approved: the first query as it now stands, or None for another plan."""
    plan = plan_of(run.text, query)
    asked = {"ask": "approve_plan", "question": run.ask.question, **plan.model_dump(mode="json")}
    decision = _read(PlanDecision, await decided(run, asked))
    if decision.verdict == "approve":
        return query
    if decision.verdict == "edit":
        await run.prompt(Stage.PLAN, _edited(decision.plan))
        return decision.plan.query.strip() or query
    if run.path.count("plan") >= MOST_REJECTED:
        raise RunCut("interrupt", Stage.PLAN)
    why = neutralise(decision.reason.strip())
    said = f"The person who asked rejected this plan{f': {why}' if why else '.'}"
    await run.prompt(Stage.PLAN, f"\n\n{said}\nWrite another plan and another first search.\n")
    return None


async def clarified(run: Run) -> None:
    """Ask the person what the policy wants to know before it plans."""
    if not run.doubt:
        return
    asked = {"ask": "clarify", "question": run.ask.question, "doubt": run.doubt}
    reply = _read(Reply, await decided(run, asked)).text.strip()
    if reply:
        note = f"Asked in return: {neutralise(run.doubt)}\nThe person answered: {neutralise(reply)}"
        await run.prompt(Stage.PLAN, f"\n\n{note}\n\n")


async def decided(run: Run, asked: dict[str, Any]) -> dict[str, Any]:
    """A person's decision, from the journal or by an interrupt of the graph."""
    key = run.key(f"person\0{asked['ask']}")
    if (kept := run.journal.find(key)) is not None:
        return kept
    from langgraph.types import interrupt

    decision = interrupt(asked)
    kept = decision if isinstance(decision, dict) else {"text": str(decision)}
    await run.journal.append(key, kept)
    return kept


def plan_of(text: str, query: str) -> Plan:
    """The last plan of a transcript."""
    document = parse(text)
    rubric, research = (_last(document, tag) for tag in ("rubric", "research_plan"))
    return Plan(rubric=tuple(rubric_items(rubric)), research_plan=research.strip(), query=query)


async def doubt_of(run: Run) -> str:
    """The policy's question back, outside the transcript; "" where it has none."""
    system = template("clarify")
    message = fill(
        template("clarify_question"),
        {
            "question": neutralise(run.ask.question),
            "format": INSTRUCTION[run.ask.answer_format],
        },
    )
    said = await _aside(run, system, message)
    line = next((line.strip() for line in said.splitlines() if line.strip()), "")
    asks = "?" in line and not line.casefold().startswith(_NONE)
    return line if asks else ""


async def _aside(run: Run, system: str, message: str) -> str:
    """What the policy says to a message that is no part of the transcript; journaled like it."""
    sampling = Sampling(max_tokens=DOUBT_TOKENS, temperature=0.0)

    async def call() -> dict[str, Any]:
        ids = await run.policy.open(system, message)
        head = Segment(author=Author.PROMPT, text=message, token_ids=ids)
        said = await run.policy.write(system, [head], sampling, None, None)
        return {"text": storable(said.text), "usage": said.usage.model_dump(mode="json")}

    reply = await run.calls.write(
        run.key(f"aside\0{message}"), run.key("cut"), Stage.PLAN, call, []
    )
    run.count(Usage.model_validate(reply["usage"]), reply.get("took", 0.0))
    text: str = reply["text"]
    return text


def _last(document: Document, tag: str) -> str:
    blocks = document.find(tag)
    return document.inner(blocks[-1]) if blocks else ""


def _edited(plan: Plan) -> str:
    items = "\n".join(f"- {neutralise(item)}" for item in plan.rubric)
    first = f"\nThe first search is for: {neutralise(plan.query)}\n" if plan.query else "\n"
    return (
        "\n\nThe person who asked has changed the plan. What follows holds now.\n"
        f"<structured_plan>\n<rubric>\n{items}\n</rubric>\n"
        f"<research_plan>{neutralise(plan.research_plan)}</research_plan>\n</structured_plan>"
        f"{first}"
    )


def _read(kind: type[V], decision: dict[str, Any]) -> V:
    try:
        return kind.model_validate(decision)
    except ValidationError as error:
        raise SettingsError(
            f"the decision of the person who asked cannot be read: {error.errors()[0]['msg']}",
            'Send {"verdict": "approve"}, "reject" or "edit" with a plan; or {"text": "..."}.',
        ) from error
