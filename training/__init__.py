"""How the policy is improved: collecting, advantages, engines."""
