"""One try at a claim that its source does not hold: said again from what the source says."""

from agent.policy import Policy
from agent.prompting import template
from agent.reports.printable import one_line
from agent.scaffold import neutralise
from agent.servers.reasoning import split_thinking
from agent.verifying.choice_checker import around
from agent.verifying.pairs import Pair
from memory.interfaces import Sampling
from memory.schema import Author, Segment, Usage
from memory.text import fenced

CHARACTERS = 1500
"""of the passage shown"""
LONGEST = 400
"""characters of a claim written anew"""
SAMPLING = Sampling(max_tokens=400, temperature=0.0, seed=0)


async def rewritten(policy: Policy, pair: Pair) -> tuple[str, Usage]:
    """The claim as the policy writes it from the passage; "" where it says that nothing is there.

    What comes back is a claim like any other and still to be checked.
    """
    system = template("rewrite")
    passage = f"{pair.source.title}\n{around(pair.claim, pair.source.text, CHARACTERS)}"
    message = fenced({"claim": pair.claim, "passage": passage})
    ids = await policy.open(system, message)
    asked = Segment(author=Author.PROMPT, text=message, token_ids=ids)
    said = await policy.write(system, [asked], SAMPLING, None, None)
    return sentence_of(said.text), said.usage


def sentence_of(reply: str) -> str:
    """The first line of a reply as plain text; "" for NONE and for what is too long to be one."""
    _, text = split_thinking(reply)
    line = one_line(next((line for line in text.splitlines() if line.strip()), ""))
    line = neutralise(line.strip("\"'` "))
    return "" if line.upper().rstrip(".") == "NONE" or len(line) > LONGEST else line
