"""The server of `rubricem serve`: runs that outlive their watchers, over HTTP on one's own host."""
