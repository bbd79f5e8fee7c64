"""The command line: finds the commands, runs one, and turns every error into one plain line and an exit code.

Each module of `specroof.commands` adds its commands in `register(app)`. Exit codes: 0 success, 2 bad input, 3 something
needed is not installed or reachable, 1 a bug of ours (`SPECROOF_DEBUG=1` shows where), 130 interrupted.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from hwprofiles.errors import InputError
from specroof import commands
from specroof.output import MissingError, say
from specroof.packages import PACKAGES, complaint, foreign

OK, BUG, BAD_INPUT, MISSING, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 3, 130, 141

FIRST = ("plan", "init", "acceptance", "scenario", "step", "models", "hardware", "trace", "simulate")
"""The order of the help; modules not named here follow by name."""

HELP = "Would it pay to let a small model draft an agent's steps and a strong model only review them?"
EPILOG = "Example: specroof plan retail-h200 -o report.html"


def build_app() -> typer.Typer:
    """The application with the commands of every module in `specroof.commands`."""
    app = typer.Typer(
        name="specroof",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=HELP, epilog=EPILOG)(_root)
    found = {module.name for module in pkgutil.iter_modules(commands.__path__)}
    for name in [*(n for n in FIRST if n in found), *sorted(found.difference(FIRST))]:
        importlib.import_module(f"specroof.commands.{name}").register(app)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments without the program's name; those of the process when absent.
    """
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    gc.set_threshold(100_000, 50, 50)  # tapes are many small objects that live to the end: look for cycles rarely
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character must not end the run
    try:
        _run(args)
        sys.stdout.flush()
    except typer.Exit as stop:
        return _flushed(stop.exit_code)
    except BrokenPipeError:
        _drop_stdout()
        return CLOSED_PIPE
    except (KeyboardInterrupt, typer.Abort):
        say("error", "interrupted")
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("SPECROOF_DEBUG"):
            raise
        code, message = explain(error)
        if message:
            say("error", message)
        return code
    return OK


def explain(error: Exception) -> tuple[int, str]:
    """Exit code and message of an error; one that is not the user's is named a bug, with the way to see where.

    Parameters
    ----------
    error : Exception
        What a command raised.
    """
    match error:
        case InputError():
            return BAD_INPUT, str(error)
        case MissingError():
            return MISSING, str(error)
        case ModuleNotFoundError(name=str(name)):
            return MISSING, _absent(name)
        case ConnectionError() | TimeoutError():
            return MISSING, f"cannot be reached: {error}"
        case OSError(filename=str(path), strerror=str(reason)):
            return BAD_INPUT, f"cannot use {path!r}: {reason}"
        case OSError():
            return BAD_INPUT, str(error)
    if hasattr(error, "exit_code") and hasattr(error, "format_message"):
        return BAD_INPUT, _usage_message(error)
    text = f"{type(error).__name__}: {error}"
    return BUG, f"a bug in specroof, please report it: {text} (SPECROOF_DEBUG=1 shows where)"


def _absent(module: str) -> str:
    """Why a module cannot be imported: hidden by a file of the user, or not installed."""
    package = module.partition(".")[0]
    origin = foreign(package) if package in PACKAGES else None
    if origin is not None:
        return complaint(package, origin)
    return f"the Python package {module!r} is not installed; `specroof doctor` lists what is missing"


def _run(args: list[str]) -> None:
    """Parse and run, without the exits, boxes and tracebacks of the library's own `main`."""
    command = typer.main.get_command(build_app())
    with command.make_context("specroof", args) as context:
        command.invoke(context)


def _usage_message(error: Any) -> str:
    """The message of a wrong option or argument, with the help to read; empty when the help was already shown."""
    message = str(error.format_message()).strip().rstrip(".")
    if not message:
        return ""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "specroof"
    return f"{message}; see '{path} --help'"


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"specroof {version('specroof')}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Options before the command; `--version` ends the run by itself."""


def _flushed(code: int) -> int:
    """`code`, unless the reader of stdout has gone away."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
        return CLOSED_PIPE
    return code


def _drop_stdout() -> None:
    """Point stdout nowhere, so that the interpreter's last flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
