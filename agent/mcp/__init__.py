"""The Model Context Protocol both ways: tool servers that a run uses, and rubricem as one."""
