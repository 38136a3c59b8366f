"""Model weights: the catalogue, resolving names, fetching from the hub or in pieces, checking."""
