"""How the policy gets better: collecting, advantages, engines."""
