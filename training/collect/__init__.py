"""Collecting: questions asked in steps, groups of rollouts judged, all of it resumable."""
