"""Measured claims: python -m benchmarks.NAME prints one JSON line."""
