"""Tools of MCP servers that the settings name, for the research stage beside the search."""
