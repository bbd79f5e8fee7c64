"""`specroof models list` and `specroof models show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specroof.output import emit

if TYPE_CHECKING:
    from rich.console import Console

    from costmodel.arch import ModelArch

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def register(app: typer.Typer) -> None:
    """Add `models list` and `models show` to the application."""
    models = typer.Typer(no_args_is_help=False, invoke_without_command=True)
    models.callback(epilog="Example: specroof models list")(_models)
    models.command("list", epilog="Example: specroof models list --json")(list_models)
    models.command("show", epilog="Example: specroof models show Qwen/Qwen3.5-4B")(show_model)
    app.add_typer(models, name="models")


def _models(context: typer.Context, as_json: Json = False) -> None:
    """Model facts: parameters, KV cache and state; without a command, the list of bundled models."""
    if context.invoked_subcommand is None:
        list_models(as_json)


def list_models(as_json: Json = False) -> None:
    """List the bundled models."""
    from costmodel.counts import kv_bytes_per_token, n_active_params, n_params, state_bytes_per_sequence
    from costmodel.models import model, model_names

    rows: list[dict[str, object]] = []
    for name in model_names():
        arch = model(name)
        rows.append(
            {
                "name": name,
                "family": arch.family,
                "n_params": n_params(arch),
                "n_active_params": n_active_params(arch),
                "n_layers": len(arch.layers),
                "kv_bytes_per_token": kv_bytes_per_token(arch),
                "state_bytes_per_sequence": state_bytes_per_sequence(arch),
            }
        )
    emit({"models": rows}, as_json, lambda console: _render_list(console, rows))


def show_model(
    name: Annotated[str, typer.Argument(metavar="NAME-or-config.json", help="A bundled model, or a file or folder.")],
    kv_dtype: Annotated[str, typer.Option(help="Type of the KV cache: bf16, fp16, fp8, int8.")] = "bf16",
    as_json: Json = False,
) -> None:
    """Show one model: exact parameter counts, KV bytes per token, state bytes per sequence, layers."""
    from costmodel.facts import model_facts
    from costmodel.models import model

    arch = model(name)
    facts = model_facts(arch, kv_dtype)
    emit(facts, as_json, lambda console: _render_model(console, arch, facts))


def _render_list(console: Console, rows: list[dict[str, object]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("model", no_wrap=True)
    for heading in ("parameters", "active", "layers", "KV bytes / token", "state bytes"):
        table.add_column(heading, justify="right")
    keys = ("n_params", "n_active_params", "n_layers", "kv_bytes_per_token", "state_bytes_per_sequence")
    for row in rows:
        table.add_row(str(row["name"]), *(f"{row[key]:,}" for key in keys))
    console.print(table)


def _render_model(console: Console, arch: ModelArch, facts: dict[str, object]) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text(arch.name, style="bold"), Text(f"({arch.family})"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for key, value in facts.items():
        if isinstance(value, int) and not isinstance(value, bool):
            table.add_row(key.replace("_", " "), f"{value:,}")
    weights = facts["weight_bytes"]
    assert isinstance(weights, dict)
    for dtype, value in weights.items():
        table.add_row(f"weights in {dtype}", f"{value / 1e9:,.2f} GB")
    console.print(table)
    layers = facts["layers"]
    assert isinstance(layers, list)
    for group in layers:
        parts = [_dimensions(group[part]) for part in ("attention", "mlp")]
        console.print(Text(f"{group['count']} x " + "; ".join(parts)))
    console.print(Text(f"source: {arch.source}", style="dim"))


def _dimensions(spec: dict[str, object]) -> str:
    """A layer part in one line: its kind, then every dimension that is set."""
    items = (f"{key} {value:,}" for key, value in spec.items() if type(value) is int and value)
    return f"{spec['kind']}: " + ", ".join(items)
