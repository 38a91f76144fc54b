"""Tools for other people's agents: the project's commands by the Model Context Protocol, every call within bounds."""
