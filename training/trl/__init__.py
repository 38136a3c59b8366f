"""The same training by TRL."""
