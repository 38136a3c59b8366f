"""The three shapes of an answer, as told to the policy beside the question."""

from memory.schema import AnswerFormat

INSTRUCTION = {
    AnswerFormat.LONG: "Answer with a structured report as long as the question deserves.",
    AnswerFormat.SHORT: "Answer in one paragraph.",
    AnswerFormat.EXACT: (
        "Give a short justification, and as the very last line of the answer the bare answer "
        "alone: a name, a number, a date or a few words."
    ),
}

EXACT_LINE = "Answer: "
"""what stands before the bare answer where the runner writes the tags"""
