"""The server of `rubricem serve`: runs over HTTP that continue when nobody is watching."""
