"""Measurement tables against the cost model: read, predict every row, score."""
