"""The commands, one module per area; each has `register(app)`, and none holds logic."""
