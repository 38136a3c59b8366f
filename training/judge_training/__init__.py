"""Training the pairwise judge (RM-R1): distilled chains of rubrics, then its own by verdict."""
