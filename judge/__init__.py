"""How good a stage is. The judges arrive with the judging issues; the policy cannot import them."""
