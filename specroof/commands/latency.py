"""`specroof latency`: how long a priced API takes, from recorded calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specroof.output import emit

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example: specroof latency results.json --model gpt-4.1-mini >> scenario.toml"


def register(app: typer.Typer) -> None:
    """Add `latency` to the application."""
    app.command("latency", epilog=EXAMPLE)(latency)


def latency(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Trace files or folders, or a CSV of calls.")],
    model: Annotated[str | None, typer.Option(help="Only the calls of this model.")] = None,
    role: Annotated[str, typer.Option(help="weak or strong: the section of the TOML text.")] = "strong",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Fit an API's latency (fixed, per new input token, per output token) to the calls of a trace or a CSV.

    The CSV has the columns seconds, input_tokens, output_tokens and, if known, cached_tokens, model, group.
    """
    from hwprofiles.errors import unknown_name
    from simulator.api_fit import calls_of, fit_latency, read_calls
    from simulator.scenario_file import to_document
    from simulator.traces.read import read_trace

    if role not in ("weak", "strong"):
        raise unknown_name("role", role, ("weak", "strong"))
    if all(name.lower().endswith(".csv") for name in files):
        calls = [call for name in files for call in read_calls(Path(name))]
    else:
        calls = calls_of(read_trace([Path(name) for name in files]).workload)
    fit = fit_latency(calls, ", ".join(Path(name).name for name in files), model=model)
    document = {
        "latency": to_document(fit.latency),
        "n": fit.n,
        "n_left_out": fit.n_left_out,
        "new_input": fit.new_input,
        "median_ape": fit.median_ape,
        "mean_over_median": fit.mean_over_median,
        "toml": fit.to_toml(role),
    }
    emit(document, as_json, lambda console: _render(console, document))


def _render(console: Console, document: dict[str, Any]) -> None:
    """The TOML text, with comments."""
    from rich.text import Text

    left = f", {document['n_left_out']} of no length or over two minutes left out" if document["n_left_out"] else ""
    console.print(
        Text(f"# {document['n']:,} calls{left}; input is {document['new_input']}", style="dim"),
        Text(f"# a single call is off by {document['median_ape']:.0%} (median)", style="dim"),
        Text(document["toml"].rstrip()),
        sep="\n",
        soft_wrap=True,
    )
