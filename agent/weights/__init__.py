"""Model weights: what is known, fetching by pieces or from the hub, checking, resolving names."""
