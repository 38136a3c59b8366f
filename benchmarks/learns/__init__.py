"""Whether a small model learns to research: imitation, then rounds of its own, asked all along."""
