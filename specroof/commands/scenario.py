"""`specroof scenario`: the keys of a scenario file, the bundled scenarios, and a check of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from specroof.output import emit, warn

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def register(app: typer.Typer) -> None:
    """Add `scenario keys`, `scenario check` and `scenario list` to the application."""
    scenario = typer.Typer(no_args_is_help=True, help="Scenario files: their keys, a check, the bundled ones.")
    scenario.command("keys", epilog="Example: specroof scenario keys")(keys)
    scenario.command("check", epilog="Example: specroof scenario check mine.toml --set window=6")(check_file)
    scenario.command("list", epilog="Example: specroof scenario list")(list_scenarios)
    app.add_typer(scenario, name="scenario")


def keys(as_json: Json = False) -> None:
    """List every key of a scenario with default, unit, tier and meaning."""
    from simulator.scenario_file import scenario_keys

    rows = scenario_keys()
    emit({"keys": rows}, as_json, lambda console: _render_keys(console, rows))


def check_file(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario TOML, or a bundled name.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key or parameter (repeatable).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read a scenario strictly, build everything it names, and say what was built; ends with 2 at the first fault."""
    from simulator.check import check
    from simulator.scenario_file import load_scenario

    found = {"path": scenario, **check(load_scenario(scenario, settings or ()))}
    for note in found["notes"]:
        warn(note)
    emit(found, as_json, lambda console: _render_check(console, found))


def list_scenarios(as_json: Json = False) -> None:
    """List the bundled scenarios."""
    from simulator.scenario_file import load_scenario, scenario_names

    rows: list[dict[str, object]] = [{"name": n, "title": load_scenario(n).title} for n in scenario_names()]
    emit({"scenarios": rows}, as_json, lambda console: _render_list(console, rows))


def _render_list(console: Console, rows: list[dict[str, object]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("title")
    for row in rows:
        table.add_row(Text(str(row["name"])), Text(str(row["title"])))
    console.print(table)


def _render_keys(console: Console, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("key", "default", "unit", "tier", "meaning"):
        table.add_column(heading, no_wrap=heading != "meaning")
    for row in rows:
        name = row["parameter"]
        short = f" (also: {name})" if name is not None and not row["key"].endswith(f".{name}") else ""
        tier = "" if row["default"] is None else row["tier"]
        table.add_row(row["key"], Text(_default(row)), Text(row["unit"]), tier, Text(row["meaning"] + short))
    console.print(table)


def _default(row: dict[str, Any]) -> str:
    value = row["default"]
    if isinstance(value, dict):
        return f"{value['value']} ({value['low']} to {value['high']})"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"all {len(value)}"
    return "needed" if row["required"] else "-" if value is None else str(value)


def _render_check(console: Console, found: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text(f"{found['path']}: no fault found; {found['scenario']['title']}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for role, site in found["models"].items():
        table.add_row(role, Text(_site(site)))
    work, tasks, kept = found["workload"], found["tasks"], found["acceptance"]
    effects = ", ".join(f"{n} {effect}" for effect, n in work["effects"].items() if n)
    table.add_row("workload", Text(f"{work['name']}: {tasks['n']} tasks, {tasks['steps']} steps ({effects})"))
    if work["missing"]:
        table.add_row("missing", Text(", ".join(work["missing"])))
    table.add_row("acceptance", Text(f"{kept['value']:.3g} [{kept['low']:.3g}, {kept['high']:.3g}]; {kept['rung']}"))
    console.print(table)


def _site(site: dict[str, Any]) -> str:
    longest = f"longest context {site['longest_context_tokens']:,} tokens"
    if "api" in site:
        return f"{site['label']}; {longest}"
    memory, replicas = site["memory"], site["replicas"]
    several = f", {replicas} replicas" if replicas > 1 else ""
    return (
        f"{site['label']}{several}; weights {memory['weight_bytes'] / 1e9:.1f} of "
        f"{memory['usable_bytes'] / 1e9:.1f} GB a device; KV cache {memory['kv_cache_tokens']:,} tokens; {longest}"
    )
