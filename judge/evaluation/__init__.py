"""How good a judge is: its verdicts on labelled data, had and counted."""
