"""rubricem as a server of the Model Context Protocol; servers a run uses are among sources."""
