"""An order desk of our own making: an MCP server over SQLite with invented data and twenty checkable tasks."""
