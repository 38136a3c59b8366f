"""Training the pairwise judge (RM-R1): on distilled chains of rubrics, then on its own verdicts."""
