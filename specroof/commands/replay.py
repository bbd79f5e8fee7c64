"""`specroof replay`: recorded requests on replicas of one deployment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwprofiles.errors import InputError
from specroof.calibrated import checked
from specroof.output import emit

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example: specroof replay requests.jsonl --model llama-3.1-8b --hardware h200 --replicas 8"


def register(app: typer.Typer) -> None:
    """Add `replay` to the application."""
    app.command("replay", epilog=EXAMPLE)(replay)


def replay(
    file: Annotated[Path, typer.Argument(help="Mooncake JSON Lines or Azure LLM CSV.")],
    model: Annotated[str, typer.Option(metavar="NAME", help="A bundled model, or the path of a config.json.")],
    hardware: Annotated[str, typer.Option(metavar="NAME", help="A device, or the path of a device TOML.")],
    n_devices: Annotated[int, typer.Option(help="Devices of a replica, tensor parallel over all of them.")] = 1,
    weight_dtype: Annotated[
        str | None, typer.Option(help="Storage of the weights; default: what the checkpoint says.")
    ] = None,
    kv_dtype: Annotated[str, typer.Option(help="Storage of the KV cache: bf16, fp16, fp8, int8.")] = "bf16",
    replicas: Annotated[int, typer.Option(help="Identical deployments behind one router.")] = 1,
    router: Annotated[str, typer.Option(help="round_robin, least_loaded or prefix_affinity.")] = "least_loaded",
    concurrency: Annotated[
        int | None, typer.Option(help="A closed loop of so many clients in place of the recorded times.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Poisson arrivals, requests per second, in place of the recorded times.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the Poisson arrivals; default 0.")] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", callback=checked, help="Calibration file over the bundled fit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Play a serving trace: time to first token, time per token, latency, throughput; prefix blocks are shared."""
    from costmodel.deployment import deploy
    from costmodel.step import StepModel
    from simulator.arrivals import read_requests
    from simulator.load import streams
    from simulator.request_stream import at_rate, stream

    if concurrency is not None and rate is not None:
        raise InputError("a load is either --concurrency or --rate: give one, or neither for the recorded times")
    if seed is not None and rate is None:
        raise InputError("--seed draws the arrivals of --rate; without it nothing is random")
    dep = deploy(
        model, hardware, n_devices=n_devices, weight_dtype=weight_dtype, kv_dtype=kv_dtype, calibration=calibration
    )
    requests = list(read_requests(file))
    if rate is not None:
        requests = at_rate(requests, rate, streams(seed or 0, "arrivals")["arrivals"])
    found = stream(requests, StepModel(dep), concurrency=concurrency, replicas=replicas, router=router)
    document = {
        "deployment": dep.label,
        "replicas": replicas,
        "router": router,
        "load": {"concurrency": concurrency, "rate_per_s": rate, "seed": seed},
        **found.document(),
    }
    emit(document, as_json, lambda console: _render(console, document))


def _render(console: Console, document: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text(f"{document['replicas']} x {document['deployment']}", style="bold"))
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    points = list(document["e2e_s"])
    for point in points:
        table.add_column(point, justify="right")
    for name, key in (("first token, s", "ttft_s"), ("per token, s", "tpot_s"), ("request, s", "e2e_s")):
        cells = ["–" if document[key][p] is None else f"{document[key][p]:.4g}" for p in points]
        table.add_row(name, *cells)
    console.print(table)
    used = ", ".join(f"{100 * share:.0f} %" for share in document["utilisation"])
    for line in (
        f"{document['requests']:,} requests in {document['duration_s']:,.0f} s: {document['requests_per_s']:.3g} "
        f"requests/s, {document['output_tokens_per_s']:,.0f} output tokens/s",
        f"{100 * document['cached_share']:.0f} % of prompt tokens found in the cache; replicas busy {used}",
        f"{document['preemptions']:,} preemptions",
    ):
        console.print(Text(line))
