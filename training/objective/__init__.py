"""The loss: batches of rows, its configuration, SS-GRPO and its relatives."""
