"""What the app's pages are put together from: labelled knobs, cards, tables, figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from dash import dcc, html

from dashboards import template, view
from dashboards.names import OBJECTIVE_LABELS, label
from dashboards.saving import FIGURE_KINDS

THEMES = {"light": template.LIGHT, "dark": template.DARK}
Children = Any


def knob(page: Any, name: Any) -> dict[str, Any]:
    """The id of a knob; what it holds goes into the page's URL under `name`. Either may be a wildcard."""
    return {"page": page, "knob": name, "part": "in"}


def slider(page: str, name: str, words: str, bounds: tuple[float, float, float], value: float, unit: str = "") -> Any:
    """A range input (low, high, step) with its value beside its words."""
    low, high, step = bounds
    shown = knob(page, name) | {"part": "out"}
    return html.Label(
        [
            html.Span([words, html.Span([html.Span(id=shown), f" {unit}"], className="at")], className="words"),
            dcc.Input(id=knob(page, name), type="range", min=low, max=high, step=step, value=value),
        ],
        className="knob",
    )


def select(
    page: str, name: str, words: str, options: Iterable[tuple[str, str]], value: str, *, multi: bool = False
) -> Any:
    """A list to choose from: pairs of value and words."""
    return html.Div(
        [
            html.Span(words, id=f"{page}-{name}-words", className="words"),
            dcc.Dropdown(
                id=knob(page, name),
                options=[{"value": v, "label": w} for v, w in options],
                value=value.split(",") if multi and value else value,
                clearable=False,
                multi=multi,
            ),
        ],
        className="knob",
    )


def number(page: str, name: str, words: str, bounds: tuple[float, float, float], value: float, unit: str = "") -> Any:
    """A number between bounds (low, high, step)."""
    low, high, step = bounds
    return html.Label(
        [
            html.Span([words, html.Span(unit, className="unit")], className="words"),
            dcc.Input(id=knob(page, name), type="number", min=low, max=high, step=step, value=value, debounce=0.4),
        ],
        className="knob",
    )


def text(page: str, name: str, words: str, value: str, hint: str = "") -> Any:
    """A line of text."""
    return html.Label(
        [
            html.Span([words, html.Small(hint)] if hint else words, className="words"),
            dcc.Input(id=knob(page, name), type="text", value=value, debounce=0.4, maxLength=200, spellCheck=False),
        ],
        className="knob",
    )


def page(title: str, lead: str, knobs: Sequence[Any], results: Sequence[Any]) -> Any:
    """The frame of a page: heading, knobs on the left, results on the right."""
    return html.Div(
        [
            html.Div([html.H1(title), html.P(lead, className="lead")], className="heading"),
            html.Div(list(knobs), className="knobs", role="group", **{"aria-label": f"Settings of {title}"}),
            html.Section(list(results), className="results", **{"aria-label": f"Results of {title}"}),
        ],
        className="page",
    )


def drawn(figure: go.Figure, theme: str | None, words: str, id_: str, saves: Sequence[Any]) -> Any:
    """A figure in the page's theme, with its title and the buttons that save it."""
    graph = dcc.Graph(
        id=id_,
        figure=themed(figure, theme),
        config={"displaylogo": False},
        responsive=True,
        style={"height": f"{figure.layout.height or 420}px"},
    )
    return html.Figure(
        [
            html.Figcaption(words),
            html.Div(list(saves), className="saves"),
            graph,
        ]
    )


def gallery(figures: Sequence[tuple[str, go.Figure]], theme: str | None, page_: str) -> list[Any]:
    """Pairs of title and figure, each with its buttons; what they save is `dashboards.saving.saved`'s."""
    return [
        drawn(figure, theme, words, f"{page_}-figure-{i}", figure_saves(page_, i, words))
        for i, (words, figure) in enumerate(figures)
    ]


def figure_saves(page_: str, number: int, words: str) -> list[Any]:
    """The buttons that save one figure."""
    return [
        html.Button(
            kind.upper(),
            type="button",
            id={"page": page_, "save": f"{kind}-{number}"},
            **{"aria-label": f"{kind.upper()} of {words}"},
        )
        for kind in FIGURE_KINDS
    ]


def themed(figure: go.Figure, theme: str | None) -> go.Figure:
    """The figure in the template of a theme; light where it is not known."""
    return figure.update_layout(template=THEMES.get(theme or "", template.LIGHT))


def cards(document: Mapping[str, Any], first: str = "") -> list[Any]:
    """The verdicts of a plan, one card per objective, that of `first` at the head."""
    found = sorted(view.verdicts(document), key=lambda c: c["objective"] != label(first, OBJECTIVE_LABELS))
    return [
        html.Article(
            [
                html.H2(card["objective"]),
                html.P(card["word"], className="badge"),
                html.P(
                    [
                        card["sentence"],
                        html.Span(f" ({card['interval']})", className="ends") if card["interval"] else "",
                        ".",
                    ],
                    className="sentence",
                ),
                html.Ul([html.Li(reason) for reason in card["because"]], className="because"),
                *(
                    [
                        html.P(
                            ["Turns at ", *(f"{name} {value}; " for name, value in card["critical"])], className="soft"
                        )
                    ]
                    if card["critical"]
                    else []
                ),
            ],
            className=f"verdict {card['kind']}",
        )
        for card in found
    ]


def table(rows: Sequence[Mapping[str, object]], words: str) -> Any:
    """Rows with the same keys as a table that scrolls by itself; the first column heads each row."""
    if not rows:
        return html.P("Nothing to show.", className="soft")
    heads = list(rows[0])
    body = [
        html.Tr([html.Th(str(row[heads[0]]), scope="row"), *(html.Td(str(row[h])) for h in heads[1:])]) for row in rows
    ]
    return html.Div(
        html.Table(
            [html.Caption(words), html.Thead(html.Tr([html.Th(h, scope="col") for h in heads])), html.Tbody(body)]
        ),
        className="scroll",
        tabIndex=0,
        role="region",
        **{"aria-label": words},
    )


def fault(error: object) -> Any:
    """What went wrong, in words, announced to who cannot see it."""
    return html.P(str(error), className="fault", role="alert")


def footer(document: Mapping[str, Any]) -> Any:
    """The scenario behind a result, and what is noted about it."""
    notes = [str(n) for n in (*(document.get("notes") or ()), *(document.get("warnings") or ()))]
    if document.get("interval_note"):
        notes.append(str(document["interval_note"]))
    return html.Div(
        [
            *([html.Ul([html.Li(n) for n in notes], className="notes")] if notes else []),
            html.Details(
                [
                    html.Summary("Scenario behind these figures"),
                    html.Pre(view.scenario_toml(document), tabIndex=0),
                ]
            ),
        ],
        className="provenance",
    )


def exports(page_: str, kinds: Sequence[tuple[str, str]]) -> Any:
    """Buttons that save what the page shows: pairs of kind and words."""
    return html.Div(
        [
            html.Span("Save", className="soft"),
            *(html.Button(words, type="button", id={"page": page_, "save": kind}) for kind, words in kinds),
            dcc.Download(id={"page": page_, "download": "file"}),
        ],
        className="exports",
    )
