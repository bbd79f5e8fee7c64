"""`specroof calibrate`: efficiency factors from a live server, a measurement table or a benchmark's result file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwprofiles.errors import InputError
from specroof.output import MissingError, emit, must_be_writable, progress_line, warn
from validate.budget import seconds_of

if TYPE_CHECKING:
    from costmodel.deployment import Deployment
    from validate.calibrate_run import Calibrated

EXAMPLE = "Example: specroof calibrate --endpoint http://127.0.0.1:8000/v1 --hardware h200 -o mine.toml"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLE)(calibrate)


def calibrate(
    output: Annotated[Path, typer.Option("-o", "--output", help="The calibration file to write.")],
    endpoint: Annotated[str | None, typer.Option(metavar="URL", help="A running server, with its /v1.")] = None,
    measurements: Annotated[
        Path | None, typer.Option(metavar="CSV", help="A measurement table (docs/calibrate.md has its columns).")
    ] = None,
    bench: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Result of vllm bench serve, AIPerf or GuideLLM; repeatable."),
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(metavar="NAME", help="The device, or the path of a device TOML.")
    ] = None,
    n_devices: Annotated[int, typer.Option(min=1, help="Devices, tensor parallel over all of them.")] = 1,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model, where the server's name is its own.")
    ] = None,
    weight_dtype: Annotated[str | None, typer.Option(help="Storage of the weights; default: the checkpoint's.")] = None,
    kv_dtype: Annotated[str, typer.Option(help="Storage of the KV cache.")] = "bf16",
    chunk_tokens: Annotated[
        int | None, typer.Option(min=1, help="The server's token budget of a step (max_num_batched_tokens).")
    ] = None,
    served_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name to ask the server for; default: the first it lists.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="With --endpoint: time for measuring: 90s, 15min, 1h; default 15min.")
    ] = None,
    check: Annotated[
        int | None,
        typer.Option(
            min=1, max=200, help="With --endpoint: so many more points, to check the fit on; after the budget."
        ),
    ] = None,
    onto: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the other devices of this calibration file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Fit device and engine factors to measured times, with 90 % intervals; names what it cannot tell and why."""
    given = [
        name
        for name, value in (("--endpoint", endpoint), ("--measurements", measurements), ("--bench", bench))
        if value
    ]
    must_be_writable(output)
    if onto is not None:
        from validate.calibrate_file import check_onto

        check_onto(onto)
    if len(given) != 1:
        raise InputError(f"give one of --endpoint, --measurements and --bench, got {' and '.join(given) or 'none'}")
    if endpoint is None and served_model is not None:
        raise InputError("--served-model goes with --endpoint")
    if endpoint is None and budget is not None:
        raise InputError("--budget goes with --endpoint: nothing of a table has to be measured")
    if endpoint is None and check is not None:
        raise InputError("--check goes with --endpoint: a table has no further points to time")
    options = {
        "n_devices": n_devices,
        "weight_dtype": weight_dtype,
        "kv_dtype": kv_dtype,
        "chunk_tokens": chunk_tokens,
    }
    if endpoint is not None:
        found = _live(endpoint, served_model, model, hardware, options, seconds_of(budget or "15min"), check or 0)
    else:
        found = _filed(measurements, bench or [], model, hardware, options)
    result = _written(found, output, onto, f"specroof calibrate {given[0]}")
    for note in found.notes:
        warn(note)
    emit(result, as_json, lambda console: _show(console, result))


def _deployed(model: str | None, hardware: str | None, options: dict[str, Any]) -> Deployment:
    from costmodel.deployment import deploy
    from validate.accuracy.names import find_model

    if hardware is None:
        raise InputError("give --hardware: no server says what it runs on")
    assert model is not None
    arch = model if model.endswith(".json") else find_model(model)
    if arch is None:
        raise InputError(f"the model {model!r:.80} is not bundled; give --model NAME, or the path of its config.json")
    return deploy(arch, hardware, **options)


def _live(
    url: str,
    served: str | None,
    model: str | None,
    hardware: str | None,
    options: dict[str, Any],
    budget_s: float,
    check: int,
) -> Calibrated:
    import asyncio
    import secrets
    from dataclasses import replace

    from validate.calibrate_run import calibrate_target
    from validate.calibrate_targets import HttpTarget
    from validate.counters_server import Counted
    from validate.engine import EngineError

    async def run() -> Calibrated:
        target = HttpTarget(url, served)
        dep = _deployed(model or target.facts.model, hardware, options)
        counted = Counted(target)
        try:
            await counted.begin()
            fresh = secrets.randbits(32)  # prompts of an earlier calibration may still be in the server's cache
            found = await calibrate_target(dep, counted, budget_s, seed=fresh, progress=progress_line, check=check)
            return replace(found, counters=await counted.compared(found.deployment))
        finally:
            await target.close()
            progress_line("")

    try:
        return asyncio.run(run())
    except EngineError as error:
        raise MissingError(str(error)) from None


def _filed(
    table: Path | None, bench: list[Path], model: str | None, hardware: str | None, options: dict[str, Any]
) -> Calibrated:
    from validate.accuracy.kinds import classify
    from validate.accuracy.tables import load_rows
    from validate.bench_files import read_bench
    from validate.calibrate_run import calibrate_rows

    if bench:
        if hardware is None:
            raise InputError("give --hardware: no benchmark client says what the server runs on")
        rows = [
            r
            for file in bench
            for r in read_bench(file, hardware, options["n_devices"], model, options["weight_dtype"])
        ]
        return calibrate_rows(_deployed(model or rows[0].model, hardware, options), rows)
    assert table is not None
    rows = load_rows([table])
    subjects = [s for s in map(classify, rows) if not isinstance(s, str) and s.model is not None]
    devices = sorted({s.device.name for s in subjects})
    if hardware is None and len(devices) != 1:
        raise InputError(f"{table}: rows of {', '.join(devices) or 'no known device'}; choose one with --hardware")
    named = [s for s in subjects if hardware is None or s.device.name == hardware] or subjects
    if model is None and not named:
        raise InputError(f"{table}: no row names a model that is known; give --model")
    first = named[0] if named else None
    if first is not None and model is None:
        options = {**options, "n_devices": first.n_devices, "weight_dtype": first.weight_dtype}
    return calibrate_rows(
        _deployed(model or (first.model.name if first and first.model else None), hardware or devices[0], options), rows
    )


def _written(found: Calibrated, output: Path, onto: Path | None, command: str) -> dict[str, Any]:
    from datetime import date

    from validate import calibrate_file

    fitted, facts = found.fitted, found.facts
    one_set = calibrate_file.shared(found.deployment, onto)
    if one_set:
        warn(one_set)
    content = calibrate_file.document(
        found.deployment, fitted, command=command, date=date.today().isoformat(), facts=facts, onto=onto
    )
    calibrate_file.write(output, content)
    every = {n: {"value": e.value, "low": e.low, "high": e.high} for n, e in fitted.estimates().items()}
    return {
        "deployment": found.deployment.label,
        "output": str(output),
        "factors": {name: e for name, e in every.items() if name not in found.missing},
        "not_identified": {name: {**every[name], "why": why} for name, why in found.missing.items()},
        "residuals": fitted.residuals(),
        "n": fitted.n,
        "misfit": fitted.misfit,
        "engine_version": facts.version if facts else None,
        "server": content["server"],
        "counters": found.counters,
        "check": found.check,
        "notes": found.notes,
    }


def _show(console: Any, result: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from validate.counters_server import in_words

    errors = sorted(abs(r["error"]) for r in result["residuals"])
    console.print(
        f"{escape(result['deployment'])}: {result['n']} times, median error of the fit {errors[len(errors) // 2]:.1%};"
        f" written to {escape(result['output'])}",
        soft_wrap=True,
    )
    table = Table(title="measured factors, 90 % intervals", title_justify="left")
    for heading in ("factor", "value", "low", "high"):
        table.add_column(heading, justify="left" if heading == "factor" else "right")
    for name, f in result["factors"].items():
        table.add_row(name, *(f"{f[k]:.4g}" for k in ("value", "low", "high")))
    console.print(table)
    if result["check"] and result["check"]["n"]:
        seen = result["check"]
        console.print(
            f"{seen['n']} points outside the fit: median error {seen['median_error']:.1%}, {seen['in_band']:.0%} inside"
            " their 90 % bands"
        )
    if result["counters"]:
        console.print(f"counters of the server: {escape(in_words(result['counters']))}", soft_wrap=True)
    for why in dict.fromkeys(f["why"] for f in result["not_identified"].values()):
        names = ", ".join(n for n, f in result["not_identified"].items() if f["why"] == why)
        console.print(f"not measured: {names}: {escape(why)}", soft_wrap=True)
