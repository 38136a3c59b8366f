"""The plugin for verl: stage-wise GRPO's estimator, our episode as its agent loop, our judge.

`estimator`, `stage_codes`, `rollout` and `server_policy` need no verl; `plugin`, `agent_loop` and
`reward` are loaded by it (docs/verl.md).
"""
