"""Every claim of an answer held against the text that it cites."""
