"""Training runs from configuration to checkpoint: on given rows, or in rounds that collect them."""
