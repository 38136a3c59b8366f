"""The agent as a server of tools (Model Context Protocol); the extra `mcp` brings the SDK."""
