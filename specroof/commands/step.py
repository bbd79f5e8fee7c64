"""`specroof step`: one engine step, by operation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwprofiles.errors import InputError
from specroof.calibrated import checked
from specroof.output import emit, warn

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.step_cost import StepCost

EXAMPLE = "Example: specroof step --model Qwen/Qwen3.5-4B --hardware h200 --prefill 512@4000 --decode 16@4000"
_PAIR = re.compile(r"(\d{1,12})@(\d{1,12})")


def register(app: typer.Typer) -> None:
    """Add `step` to the application."""
    app.command("step", epilog=EXAMPLE)(step)


def step(
    model: Annotated[str, typer.Option(metavar="NAME", help="A bundled model, or the path of a config.json.")],
    hardware: Annotated[str, typer.Option(metavar="NAME", help="A device, or the path of a device TOML.")],
    n_devices: Annotated[int, typer.Option(help="Devices, tensor parallel over all of them.")] = 1,
    expert_parallel: Annotated[
        int, typer.Option(help="Groups of devices that share the routed experts out whole; 1: each expert is split.")
    ] = 1,
    weight_dtype: Annotated[
        str | None, typer.Option(help="Storage of the weights; default: what the checkpoint says.")
    ] = None,
    kv_dtype: Annotated[str, typer.Option(help="Storage of the KV cache: bf16, fp16, fp8, int8.")] = "bf16",
    engine: Annotated[str, typer.Option(help="Engine generation.")] = "vllm-v1",
    prefill: Annotated[
        list[str] | None, typer.Option(metavar="NEW@CONTEXT", help="Prefill NEW tokens behind CONTEXT (repeatable).")
    ] = None,
    decode: Annotated[
        list[str] | None, typer.Option(metavar="SEQS@CONTEXT", help="SEQS sequences decode a token (repeatable).")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FACTOR=VALUE", help="An efficiency factor (repeatable).")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", callback=checked, help="Calibration file over the bundled fit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """One engine step: seconds with a 90 % band, FLOPs, bytes by kind, and which roof bounds each operation."""
    from costmodel.deployment import deploy
    from simulator.factors import with_factors
    from simulator.scenario_file import parse_setting
    from simulator.step_cost import step_cost

    passes = [_pair("--prefill", text, "NEW@CONTEXT") for text in prefill or ()]
    runs = [_pair("--decode", text, "SEQS@CONTEXT") for text in decode or ()]
    dep = deploy(
        model,
        hardware,
        n_devices=n_devices,
        expert_parallel=expert_parallel,
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
        engine_name=engine,
        calibration=calibration,
    )
    dep = with_factors(dep, dict(parse_setting(text) for text in settings or ()))
    found = step_cost(dep, passes, runs)
    for note in found.notes:
        warn(note)
    emit(found.document(), as_json, lambda console: _render(console, found))


def _pair(option: str, text: str, form: str) -> tuple[int, int]:
    match = _PAIR.fullmatch(text)
    if match is None:
        raise InputError(f"{option} {text!r}: expected {form}, two whole numbers such as 512@4000")
    return int(match[1]), int(match[2])


def _render(console: Console, found: StepCost) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text(found.deployment.label, style="bold"))
    low, high = 1e3 * found.low_s, 1e3 * found.high_s
    console.print(f"{1e3 * found.time_s:.3f} ms \\[{low:.3f}, {high:.3f}], bound by {found.bound}")
    parts = ", ".join(f"{name} {1e3 * s:.3f} ms" for name, s in found.parts_s.items())
    console.print(f"{parts}; {found.touched_params / 1e9:.2f} G parameters touched")
    table = Table(box=None, pad_edge=False)
    table.add_column("operation", no_wrap=True)
    for heading in ("count", "ms", "share", "GFLOP", "weights MB", "KV MB", "state MB", "other MB"):
        table.add_column(heading, justify="right")
    table.add_column("bound")
    for op in found.ops:
        other = op.bytes["activations"] + op.bytes["interconnect"]
        sizes = [op.bytes[kind] for kind in ("weights", "kv", "state")] + [other]
        share = f"{100 * op.time_s / found.time_s:.1f} %"
        cells = [str(op.count), f"{1e3 * op.time_s:.3f}", share, f"{op.flops / 1e9:,.2f}"]
        table.add_row(op.name, *cells, *(f"{b / 1e6:,.2f}" for b in sizes), op.bound)
    total = found.bytes
    sums = [total[kind] for kind in ("weights", "kv", "state")] + [total["activations"] + total["interconnect"]]
    cells = ["", f"{1e3 * found.time_s:.3f}", "100 %", f"{found.flops / 1e9:,.2f}"]
    table.add_row("all", *cells, *(f"{b / 1e6:,.2f}" for b in sums), found.bound, style="bold")
    console.print(table)
