"""The conversation on a terminal."""
