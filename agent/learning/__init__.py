"""Learning from single runs: judging, reflecting, and keeping the best reflection."""
