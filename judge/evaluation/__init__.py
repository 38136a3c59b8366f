"""How good a judge is: its verdicts on labelled data, counted. Nothing here asks a model."""
