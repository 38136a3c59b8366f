"""Views of collected and trained runs: terminal, pages, routes of the server."""
