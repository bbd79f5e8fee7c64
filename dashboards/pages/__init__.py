"""The pages of the app: each has `PATH`, `TITLE`, `layout(desk, query)` and `register(app, desk)`."""
