"""The engine `trl`: the same rows and objective in TRL's GRPOTrainer, wherever accelerate runs."""
