"""`specroof dashboard`: the interactive app."""

from __future__ import annotations

import socket
from typing import Annotated, Any

import typer

EXAMPLE = "Example: specroof dashboard retail-h200 runs/retail"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("dashboard", epilog=EXAMPLE)(dashboard)


def dashboard(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SCENARIO | RUN DIR | SWEEP | CALIBRATION.toml | VALIDATION.json]...",
            help="Scenarios (files or bundled names), folders of runs from `simulate -o`, studies (.sqlite) and rows "
            "(.csv, .parquet) of `sweep`, calibration files, what `validate --json` printed.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to bind to; the default is reached from this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8050,
) -> None:
    """Open the app in a browser: turn knobs, draw maps, size fleets, look at runs. Ctrl+C ends it."""
    from specroof.output import MissingError, say

    try:
        import dash  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "dash":
            raise
        raise MissingError("the dashboard needs Dash: pip install 'specroof[dash]'") from None
    from dashboards.app import LOCAL, create_app, is_loopback
    from dashboards.jobs import Jobs
    from dashboards.shelf import Shelf

    jobs = Jobs()
    local = is_loopback(host)
    app = create_app(Shelf(given or ()), jobs=jobs, hosts=LOCAL | {_named(host)} if local else None, warm=True)
    if not local:
        say(
            "warning",
            f"bound to {host}: whoever reaches this address can use the app and see what it was given; it knows no "
            "passwords and no encryption",
            style="yellow",
        )
    try:
        _serve(app, host, port)
    finally:
        jobs.close()


def _named(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _serve(app: Any, host: str, port: int) -> None:
    """Answer requests until interrupted."""
    import logging

    from werkzeug.serving import make_server

    from specroof.output import say

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with _bound(host, port) as door:
        taken = door.getsockname()[1]
        server = make_server(host, taken, app.server, threaded=True, fd=door.fileno())
        say("note", f"the dashboard is at http://{_named(host)}:{taken}/ (Ctrl+C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("note", "ended")
        finally:
            server.server_close()


def _bound(host: str, port: int) -> socket.socket:
    """A listening socket; raises `InputError` where the address cannot be had."""
    from hwprofiles.errors import InputError

    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise InputError(f"--host {host} --port {port}: cannot be bound: {error.strerror or error}") from None
