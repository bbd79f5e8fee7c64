"""The interactive app: pages, their addresses, and what a browser is allowed to do with them."""

from __future__ import annotations

from importlib import resources
from ipaddress import ip_address
from types import ModuleType
from typing import Any

import dash
import flask
from dash import ALL, Input, Output, State, dcc, html

from dashboards import parts, query
from dashboards.desk import Desk
from dashboards.jobs import Jobs
from dashboards.pages import (
    breakeven,
    calibration,
    compare,
    explore,
    hardware,
    risk,
    sensitivity,
    size,
    sweeps,
    timeline,
)
from dashboards.shelf import Shelf
from dashboards.uploads import MOST_BYTES

PAGES: tuple[ModuleType, ...] = (
    explore,
    breakeven,
    hardware,
    sensitivity,
    size,
    risk,
    timeline,
    compare,
    sweeps,
    calibration,
)
LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names under which a browser may reach an app that is bound to the loopback."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}
<link rel="preload" as="script" href="/_dash-component-suites/plotly/package_data/plotly.min.js"></head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>
"""


def create_app(
    shelf: Shelf | None = None,
    *,
    jobs: Jobs | None = None,
    hosts: frozenset[str] | None = LOCAL,
    warm: bool = False,
) -> dash.Dash:
    """The app over what is on the shelf.

    Parameters
    ----------
    shelf : Shelf
        What it may show; None: the bundled scenarios.
    jobs : Jobs
        Where long questions go; None: two processes.
    hosts : frozenset of str or None
        Names a request may be addressed to, so that no foreign site can point its own name here; None: any.
    warm : bool
        Work out the first page before returning, and what its knobs need once it was asked for.
    """
    desk = Desk(shelf or Shelf(), jobs or Jobs())
    if warm:
        desk.warm()
    app = dash.Dash(
        "specroof",
        title="specroof",
        update_title="",
        assets_folder=str(resources.files("dashboards") / "assets"),
        index_string=_PAGE,
        suppress_callback_exceptions=True,
        serve_locally=True,
        compress=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    app.layout = _frame()
    _route(app, desk)
    for page in PAGES:
        page.register(app, desk)
    _guard(app, hosts)
    return app


def _frame() -> Any:
    return html.Div(
        [
            html.A("Skip to the page", href="#content", className="skip"),
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="theme", storage_type="local"),
            dcc.Store(id="remembered"),
            html.Header(
                [
                    html.B("specroof"),
                    html.Nav(id="nav", **{"aria-label": "Pages"}),
                    html.Button("Dark", id="theme-button", type="button", **{"aria-label": "Switch light and dark"}),
                ],
                className="top",
            ),
            html.Main(id="content", tabIndex=-1),
        ]
    )


def _route(app: dash.Dash, desk: Desk) -> None:
    paths = {page.PATH: page for page in PAGES}

    @app.callback(
        Output("content", "children"),
        Output("nav", "children"),
        Input("url", "pathname"),
        Input("url", "search"),
    )
    def route(path: str | None, search: str | None) -> tuple[Any, list[Any]]:
        page = paths.get(path or "/")
        links = [
            html.Span(dcc.Link(p.TITLE, href=p.PATH), **({"aria-current": "page"} if p is page else {})) for p in PAGES
        ]
        if page is None:
            return html.Div([html.H1("No such page"), dcc.Link("Explore", href="/")], className="page"), links
        return page.layout(desk, query.parse(search)), links

    app.clientside_callback(
        dash.ClientsideFunction("specroof", "theme"),
        Output("theme", "data"),
        Output("theme-button", "children"),
        Input("theme-button", "n_clicks"),
        State("theme", "data"),
    )
    app.clientside_callback(
        dash.ClientsideFunction("specroof", "show"),
        Output(parts.knob(dash.MATCH, dash.MATCH) | {"part": "out"}, "children"),
        Input(parts.knob(dash.MATCH, dash.MATCH), "value"),
    )
    app.clientside_callback(
        dash.ClientsideFunction("specroof", "remember"),
        Output("remembered", "data"),
        Input(parts.knob(ALL, ALL), "value"),
        State(parts.knob(ALL, ALL), "id"),
    )


def _guard(app: dash.Dash, hosts: frozenset[str] | None) -> None:
    app.server.config["MAX_CONTENT_LENGTH"] = MOST_BYTES * 3 // 2 + 100_000
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' {' '.join(app.csp_hashes())}",
            "style-src 'self' 'unsafe-inline'",  # plotly and the controls write styles into the page
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )

    @app.server.before_request
    def known_host() -> flask.Response | None:
        if hosts is None or _host(flask.request.host) in hosts:
            return None
        return flask.Response("this app answers only to the name it was bound to", status=403, mimetype="text/plain")

    @app.server.after_request
    def headers(response: flask.Response) -> flask.Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response


def _host(given: str) -> str:
    """The name of a Host header without its port."""
    return given.rpartition(":")[0] if given.rpartition(":")[2].isdigit() else given


def is_loopback(host: str) -> bool:
    """Whether an address to bind to is reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
