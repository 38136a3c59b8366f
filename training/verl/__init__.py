"""The plugin for verl: stage-wise GRPO's estimator, our episode as its agent loop, our judge."""
