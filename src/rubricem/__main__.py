"""`python -m rubricem` is the command `rubricem`."""

from rubricem.agent.cli import main

main(prog_name="rubricem")
