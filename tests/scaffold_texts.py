"""A small run's turns, as the tests of the scaffold read them."""

from agent.scaffold import Document

PLAN = (
    "<think>eviction</think>\n<structured_plan><deep_analysis>simple</deep_analysis>"
    "<rubric>- order</rubric><research_plan>1. search</research_plan></structured_plan>\n"
)
CALL = "<call_tool>q</call_tool>"
FIRST = PLAN + '<call_tool name="search">lru_cache eviction</call_tool>'
OUTPUT = '\n<tool_output><snippet id="S1">least recently used</snippet></tool_output>\n'
EVALUATION = "<think>enough</think><state_evaluation>order known</state_evaluation>"
REVIEW = (
    "<review><rubric_review>order: S1</rubric_review><writing_plan>one line</writing_plan></review>"
)
ANSWER = '<answer>It evicts <cite id="S1">the oldest</cite>.</answer>'
LAST = EVALUATION + REVIEW + ANSWER


def shape(document: Document) -> list[tuple[str, str]]:
    """Tag and inner text of every block, in order."""
    return [(b.tag, document.inner(b)) for b in document.root.walk() if b is not document.root]
