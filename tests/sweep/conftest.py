"""Sweeps as processes that can be killed, and studies as what must be the same byte for byte."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = ["autonomous-h200", "--set", "workload.n=2", "--set", "run.samples=16"]
VARY = ["--vary", "acceptance=0.6,0.75,0.9", "--vary", "window=1,4,99"]


def command(study, *options):
    return [sys.executable, "-m", "specroof", "sweep", *SMALL, *VARY, "--study", str(study), *map(str, options)]


@pytest.fixture(scope="session")
def swept(root):
    """Runs the small sweep in a process of its own; SIGKILL after `kill_after_s`, and True where that came first."""

    def run(study: Path, *options: object, kill_after_s: float | None = None) -> bool:
        env = {**os.environ, "PYTHONPATH": str(root)}
        try:
            subprocess.run(
                command(study, *options),
                timeout=kill_after_s,  # on expiry `run` kills with SIGKILL
                check=True,
                capture_output=True,
                env=env,
                cwd=study.parent,
            )
        except subprocess.TimeoutExpired:
            return True
        return False

    return run


@pytest.fixture(scope="session")
def contents():
    """Everything that a study holds, times apart, as text."""

    def read(study: Path) -> str:
        db = sqlite3.connect(study)
        try:
            tables = [
                db.execute(f"SELECT {columns} FROM {table} ORDER BY 1").fetchall()
                for table, columns in (("head", "*"), ("cells", "*"), ("results", "cell, status, rows, reason"))
            ]
        finally:
            db.close()
        return "\n".join(repr(row) for rows in tables for row in rows)

    return read
