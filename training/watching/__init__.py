"""Watching a training: a terminal, event files, a page, and a card beside the weights."""
