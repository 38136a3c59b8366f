"""Every slash command, in the order in which help lists them."""

from agent.chat import answers, beside, threads
from agent.chat.slash import Command

COMMANDS: dict[str, Command] = {
    "plan": Command(
        answers.plan,
        "show the plan; on: decide on plans before they are followed",
        "[on|off]",
        lambda talk: (("on", "decide on each plan"), ("off", "follow plans unseen")),
    ),
    "sources": Command(answers.sources, "list what was found, and what is cited"),
    "cite": Command(
        answers.cite, "show a citation: claim, verdict, passage, page", "N", answers.citations
    ),
    "bank": Command(
        beside.bank, "what earlier runs taught: recalled here, or near to words", "[WORDS]"
    ),
    "judge": Command(answers.judge, "score the stages of the latest run"),
    "rate": Command(
        answers.rate,
        "rate the answer, 1 to 5, for whoever judges what it taught",
        "N [COMMENT]",
        lambda talk: (("1", "of no use"), ("3", ""), ("5", "just what was asked for")),
    ),
    "budget": Command(
        beside.budget, "show or set what a question may take", "[NAME VALUE]", beside.budgets
    ),
    "export": Command(
        answers.export,
        "write the report into a file",
        "md|html|json|FILE",
        lambda talk: (("md", "Markdown"), ("html", "a page"), ("json", "the whole run")),
    ),
    "threads": Command(threads.threads, "list the threads, or open one", "[THREAD]", threads.names),
    "resume": Command(
        threads.resume,
        "go on with the run that was interrupted, here or in another thread",
        "[THREAD]",
        threads.names,
    ),
    "branch": Command(
        threads.branch, "go on from question N in a thread of its own", "[N]", threads.numbers
    ),
    "rename": Command(threads.rename, "give the thread a title", "TITLE"),
    "new": Command(threads.new, "begin a new thread"),
    "help": Command(beside.help_, "this list"),
    "quit": Command(beside.quit_, "leave; the thread stays (also ^D)"),
}
