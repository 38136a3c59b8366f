"""Collecting: questions asked in steps, with groups of judged rollouts, all of it resumable."""
