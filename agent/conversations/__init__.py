"""Threads of questions: what belongs together, and what a question knows of those before it."""
