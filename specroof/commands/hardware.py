"""`specroof hardware`: what is known of a device, each number with its tier and source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hwprofiles import (
    Fact,
    Hardware,
    InputError,
    check_hardware_file,
    efficiency,
    hardware,
    hardware_names,
)
from specroof.output import emit

if TYPE_CHECKING:
    from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def register(app: typer.Typer) -> None:
    """Add `hardware` with `list`, `show` and `check`."""
    sub = typer.Typer(help="Devices: peaks, memory, bandwidth, power and price, each with its source.")
    sub.callback(invoke_without_command=True, epilog="Example: specroof hardware show h200")(_root)
    sub.command("list", epilog="Example: specroof hardware list --json")(_list)
    sub.command("show", epilog="Example: specroof hardware show 'RTX 4090' --json")(_show)
    sub.command("check", epilog="Example: specroof hardware check my-board.toml")(_check)
    app.add_typer(sub, name="hardware")


def _root(context: typer.Context, as_json: AsJson = False) -> None:
    """Devices: peaks, memory, bandwidth, power and price, each with its source. Without a command: the list."""
    if context.invoked_subcommand is None:
        _list(as_json=as_json)
    elif as_json:
        raise InputError(f"--json goes after the command: specroof hardware {context.invoked_subcommand} --json")


def _list(as_json: AsJson = False) -> None:
    """List every device: the bundled ones, and those of the folder in SPECROOF_HARDWARE."""
    devices = [hardware(name) for name in hardware_names()]
    emit({"hardware": [_facts(device) for device in devices]}, as_json, lambda console: _draw_list(console, devices))


def _show(
    name: Annotated[str, typer.Argument(help="A device's name or alias, or the path of a .toml file.")],
    as_json: AsJson = False,
) -> None:
    """Show one device: every number with its tier and source, and its efficiency factors, its own or its class's."""
    device = hardware(name)
    emit(_document(device), as_json, lambda console: _draw_device(console, device))


def _check(
    file: Annotated[str, typer.Argument(help="A hardware file in TOML.")],
    as_json: AsJson = False,
) -> None:
    """Check a hardware file of your own and show what was read."""
    device = check_hardware_file(file)
    emit({"path": file, **_document(device)}, as_json, lambda console: _draw_device(console, device, checked=file))


def _facts(device: Hardware) -> dict[str, object]:
    """The numbers of a device without their sources; what nobody publishes is null."""
    ridges = device.peak_flops_per_s if device.bandwidth_bytes_per_s else {}
    link = device.link
    return {
        "name": device.name,
        "title": device.title,
        "vendor": device.vendor,
        "device_class": device.device_class,
        "aliases": list(device.aliases),
        "peak_flops_per_s": {dtype: fact.value for dtype, fact in device.peak_flops_per_s.items()},
        "memory_bytes": _value(device.memory_bytes),
        "bandwidth_bytes_per_s": _value(device.bandwidth_bytes_per_s),
        "ridge_flops_per_byte": {dtype: device.ridge_flops_per_byte(dtype) for dtype in ridges},
        "cache_bytes": _value(device.cache_bytes),
        "link": {"name": link.name, "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s.value} if link else None,
        "tdp_w": _value(device.tdp_w),
        "usd_per_h": _value(device.usd_per_h),
        "note": device.note,
    }


def _document(device: Hardware) -> dict[str, object]:
    factors = efficiency(device).factors
    return {
        **_facts(device),
        "sources": {place: {"tier": fact.tier, "source": fact.source} for place, fact in _places(device).items()},
        "efficiency": {
            name: {"value": f.value, "low": f.low, "high": f.high, "tier": f.tier, "source": f.source}
            for name, f in factors.items()
        },
    }


def _places(device: Hardware) -> dict[str, Fact]:
    """Every number of a device by its dotted place in the file."""
    places: dict[str, Fact | None] = {f"peak_flops_per_s.{dtype}": f for dtype, f in device.peak_flops_per_s.items()}
    for key in ("memory_bytes", "bandwidth_bytes_per_s", "cache_bytes", "tdp_w", "usd_per_h"):
        places[key] = getattr(device, key)
    places["link.bandwidth_bytes_per_s"] = device.link.bandwidth_bytes_per_s if device.link else None
    return {place: fact for place, fact in places.items() if fact is not None}


def _value(fact: Fact | None) -> float | None:
    return None if fact is None else fact.value


def _scaled(value: float | None, unit: str) -> str:
    """A number with an SI prefix, `3.35 TB/s`; a dash for None."""
    if value is None:
        return "-"
    for factor, prefix in PREFIXES:
        if value >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def _draw_list(console: Console, devices: list[Hardware]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("device", overflow="fold")
    for heading in ("16-bit peak", "memory", "bandwidth", "ridge FLOP/B"):
        table.add_column(heading, justify="right", no_wrap=True)
    for device in devices:
        dtype = next((d for d in ("bf16", "fp16") if d in device.peak_flops_per_s), None)
        ridge = f"{device.ridge_flops_per_byte(dtype):.0f}" if dtype and device.bandwidth_bytes_per_s else "-"
        table.add_row(
            device.name,
            _plain(device.title),
            _scaled(device.peak_flops_per_s[dtype].value if dtype else None, "FLOP/s"),
            _scaled(_value(device.memory_bytes), "B"),
            _scaled(_value(device.bandwidth_bytes_per_s), "B/s"),
            ridge,
        )
    console.print(table)


def _draw_device(console: Console, device: Hardware, checked: str = "") -> None:
    from rich.table import Table

    if checked:
        console.print(f"{_plain(checked)}: no fault found")
    console.print(f"[bold]{_plain(device.title)}[/bold] ({device.name}, {device.device_class})")
    if device.note:
        console.print(_plain(device.note))
    table = Table(box=None, pad_edge=False)
    for heading in ("quantity", "value", "tier", "source"):
        table.add_column(heading, no_wrap=heading != "source", justify="right" if heading == "value" else "left")
    for place, fact in _places(device).items():
        table.add_row(place, _scaled(fact.value, _unit(place)), fact.tier, _plain(fact.source))
    for dtype in device.peak_flops_per_s if device.bandwidth_bytes_per_s else ():
        ridge = f"{device.ridge_flops_per_byte(dtype):.4g} FLOP/B"
        table.add_row(f"ridge_flops_per_byte.{dtype}", ridge, "", "peak / bandwidth")
    console.print(table)
    console.print(f"\nEfficiency factors of {efficiency(device).name}:")
    console.print(_factor_table(device))


def _factor_table(device: Hardware) -> object:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("factor", "value", "low", "high", "tier"):
        table.add_column(heading, no_wrap=True, justify="left" if heading in ("factor", "tier") else "right")
    for name, factor in efficiency(device).factors.items():
        table.add_row(name, f"{factor.value:.3g}", f"{factor.low:.3g}", f"{factor.high:.3g}", factor.tier)
    return table


def _unit(place: str) -> str:
    """Unit of a quantity, from its name."""
    if place.startswith("peak"):
        return "OP/s" if ".int" in place else "FLOP/s"
    ends = {"bytes_per_s": "B/s", "bytes": "B", "_w": "W", "usd_per_h": "USD/h"}
    return next(unit for end, unit in ends.items() if place.endswith(end))


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
