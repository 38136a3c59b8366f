"""How good a stage is: judges by kind, rubrics that evolve; the policy cannot import them."""
