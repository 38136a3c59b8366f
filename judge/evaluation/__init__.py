"""How good a judge is: collecting its verdicts on labelled data, and scoring them."""
