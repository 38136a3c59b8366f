"""Judges that score the stages of a run, and evolving rubrics; the policy cannot import them."""
