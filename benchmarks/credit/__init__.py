"""Which credit learns fastest: stage-wise, answer-only or myopic, on a small known environment."""
