"""The server of `rubricem serve`: runs over HTTP that continue without their watchers."""
