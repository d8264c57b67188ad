"""Tools for agents, as `stepscope mcp` serves them with the Model Context Protocol: the runs below some folders, and their tables."""
