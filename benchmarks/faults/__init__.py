"""Processes killed at random that go on: what is lost, what is paid twice, by kind of run."""
