"""Learning from single runs: they are judged, reflected on, and the best is kept."""
