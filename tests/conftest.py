"""What every test may use: the repository's root, the command line in this process, reproducible hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No deadlines (machines differ) and the same examples on every run, so that a red test is a change of the code.
settings.register_profile(
    "specroof", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("specroof")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of the command line left behind."""

    code: int
    out: str
    err: str


RunCli = Callable[..., Outcome]


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def run_cli(capsys: pytest.CaptureFixture[str]) -> RunCli:
    """Runs `specroof ARGS` in this process."""
    from specroof.cli import main

    def run(*args: object) -> Outcome:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
