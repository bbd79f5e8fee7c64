"""The command line itself: help, errors, exit codes. What the commands compute is tested elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from hwprofiles.errors import CapacityError, InputError, ProfileError
from specroof import cli
from specroof.output import MissingError

CONTRACT = {
    "plan": None,
    "init": None,
    "acceptance": None,
    "scenario": {"keys", "check"},
    "step": None,
    "models": {"list", "show"},
    "hardware": {"list", "show", "check"},
    "trace": {"import", "stats"},
    "simulate": None,
    "doctor": None,
}


def leaves(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all commands that do something."""
    children = getattr(command, "commands", None)
    if not children:
        return [path]
    return [leaf for name, child in children.items() for leaf in leaves(child, (*path, name))]


LEAVES = leaves(typer.main.get_command(cli.build_app()))


def one_error_line(outcome: Any) -> str:
    """The only line of stderr, checked for its form."""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("specroof: error: ")
    assert "Traceback" not in outcome.err
    assert "╭" not in outcome.err
    return lines[0]


def test_the_commands_of_the_contract_exist():
    found = typer.main.get_command(cli.build_app()).commands
    for name, children in CONTRACT.items():
        assert name in found
        if children is not None:
            assert children <= set(found[name].commands)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_explains_itself_with_an_example(path, run_cli):
    outcome = run_cli(*path, "--help")
    assert outcome.code == 0
    assert "example" in outcome.out.casefold()
    assert outcome.out.count(f"specroof {' '.join(path)}") >= 2, "the usage line and an example"


@pytest.mark.parametrize("path", [leaf for leaf in LEAVES if leaf not in {("init",)}], ids=" ".join)
def test_every_command_speaks_json(path, run_cli):
    assert "--json" in run_cli(*path, "--help").out


def test_no_arguments_show_the_help(run_cli):
    outcome = run_cli()
    assert outcome.code == 0
    assert "plan" in outcome.out
    assert outcome.err == ""


def test_version(run_cli, monkeypatch):
    from importlib import metadata

    monkeypatch.setattr(metadata, "version", lambda name: {"specroof": "9.8.7"}[name])
    outcome = run_cli("--version")
    assert (outcome.code, outcome.out) == (0, "specroof 9.8.7\n")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["doctr"], "doctr"),
        (["doctor", "--jsn"], "--json"),
        (["doctor", "--json", "extra"], "extra"),
        (["--versio"], "--version"),
        (["models", "shw"], "shw"),
        (["step", "--model"], "--model"),
    ],
)
def test_a_wrong_command_line_is_one_line(args, expected, run_cli):
    outcome = run_cli(*args)
    assert outcome.code == 2
    assert outcome.out == ""
    line = one_error_line(outcome)
    assert expected in line
    assert "--help" in line


def app_that_raises(error: BaseException) -> typer.Typer:
    app = typer.Typer()
    app.callback()(lambda: None)

    @app.command()
    def go() -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (InputError("window must be >= 1, got 0"), 2, "window must be >= 1, got 0"),
        (ProfileError("two\n  lines"), 2, "two lines"),
        (CapacityError("does not fit", needed_bytes=2.0, available_bytes=1.0), 2, "does not fit"),
        (FileNotFoundError(2, "No such file or directory", "gone.toml"), 2, "'gone.toml': No such file"),
        (PermissionError(13, "Permission denied", "secret.toml"), 2, "'secret.toml': Permission denied"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (MissingError("needs dash: pip install 'specroof[dash]'"), 3, "needs dash"),
        (ModuleNotFoundError("No module named 'dash'", name="dash"), 3, "'dash' is not installed"),
        (ConnectionRefusedError(111, "Connection refused"), 3, "cannot be reached"),
        (ZeroDivisionError("division by zero"), 1, "SPECROOF_DEBUG"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_become_one_line_and_a_code(error, code, expected, run_cli, monkeypatch):
    monkeypatch.delenv("SPECROOF_DEBUG", raising=False)
    monkeypatch.setattr(cli, "build_app", lambda: app_that_raises(error))
    outcome = run_cli("go")
    assert outcome.code == code
    assert outcome.out == ""
    assert expected in one_error_line(outcome)


def test_debugging_shows_where(run_cli, monkeypatch):
    monkeypatch.setenv("SPECROOF_DEBUG", "1")
    monkeypatch.setattr(cli, "build_app", lambda: app_that_raises(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        run_cli("go")


def test_a_reader_that_goes_away_is_no_error(root: Path):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "specroof", "doctor", "--json"],
            stdout=writer,
            stderr=subprocess.PIPE,
            cwd=root,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert done.returncode == cli.CLOSED_PIPE
    assert done.stderr == b""


def test_a_terminal_without_the_characters_is_no_error(root: Path):
    done = subprocess.run(
        [sys.executable, "-m", "specroof", "--help"],
        capture_output=True,
        cwd=root,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    assert done.stderr == b""


def test_doctor_finds_what_is_there(run_cli):
    document = json.loads(run_cli("doctor", "--json").out)
    assert list(document) == ["schema_version", "checks"]
    status = {check["name"]: check["status"] for check in document["checks"]}
    assert status["numpy"] == "ok"
    assert status["package simulator"] == "ok"
    assert all(set(check) == {"name", "status", "detail"} for check in document["checks"])


def test_doctor_fails_on_a_hardware_folder_that_is_none(run_cli, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECROOF_HARDWARE", str(tmp_path / "nowhere"))
    outcome = run_cli("doctor", "--json")
    failed = [check["name"] for check in json.loads(outcome.out)["checks"] if check["status"] == "fail"]
    assert outcome.code == 3
    assert "SPECROOF_HARDWARE" in failed


def test_a_file_that_hides_a_package_is_named(root: Path, tmp_path):
    (tmp_path / "simulator.py").write_text("raise SystemExit('the wrong module was imported')\n")
    code = "from specroof.packages import foreign as f, check_packages as c; print(f('simulator'), f('costmodel')); c()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
        check=False,
        timeout=60,
    )
    assert done.stdout.split() == [str(tmp_path / "simulator.py"), "None"]
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ImportError")]
    assert "rename that file" in line
