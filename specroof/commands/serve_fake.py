"""`specroof serve-fake`: an OpenAI-compatible server whose engine is the simulator's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specroof.calibrated import checked
from specroof.output import emit

EXAMPLE = "Example: specroof serve-fake --model Qwen/Qwen3-8B --hardware h200 --port 8000 --speed 10"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve-fake", epilog=EXAMPLE)(serve_fake)


def serve_fake(
    model: Annotated[str, typer.Option(metavar="NAME", help="A bundled model, or the path of a config.json.")],
    hardware: Annotated[str, typer.Option(metavar="NAME", help="A device, or the path of a device TOML.")],
    n_devices: Annotated[int, typer.Option(help="Devices, tensor parallel over all of them.")] = 1,
    weight_dtype: Annotated[str | None, typer.Option(help="Storage of the weights; default: the checkpoint's.")] = None,
    kv_dtype: Annotated[str, typer.Option(help="Storage of the KV cache.")] = "bf16",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FACTOR=VALUE", help="A device or engine factor that the server obeys."),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", callback=checked, help="Calibration file in place of the bundled fit."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: a free one.")] = 8000,
    speed: Annotated[float, typer.Option(help="Seconds of the model's clock in a second of ours.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Say the address as one JSON document on stdout.")] = False,
) -> None:
    """Serve a model that is not there: chat, completions and metrics, timed by the step model; text is filler."""
    from costmodel.deployment import deploy
    from hwprofiles.errors import InputError
    from simulator.factors import with_factors
    from simulator.scenario_file import parse_setting
    from validate.serve_fake import FakeService
    from validate.serve_fake_http import application

    if not 0 < speed <= 1e4:
        raise InputError(f"--speed must be above 0 and at most 10000, got {speed:g}")
    dep = deploy(
        model,
        hardware,
        n_devices=n_devices,
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
        calibration=calibration,
    )
    dep = with_factors(dep, dict(parse_setting(text) for text in settings or ()))
    service = FakeService(dep)
    said = {"model": dep.model.name, "deployment": dep.label, "speed": speed}
    _serve(application(service, dep.model.name, speed), port, said, as_json)


def _serve(app: object, port: int, said: dict[str, Any], as_json: bool) -> None:
    """Listen on 127.0.0.1 until interrupted; the address goes to stdout once connections are taken."""
    import socket
    import sys

    import uvicorn

    from hwprofiles.errors import InputError

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise InputError(f"--port {port}: {error.strerror or error}") from None
        listener.listen(128)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        line = f"{url} serves {said['deployment']}, {said['speed']:g} times real time"
        emit({"url": url, **said}, as_json, lambda console: console.print(line, soft_wrap=True))
        sys.stdout.flush()
        config = uvicorn.Config(app, log_level="error", lifespan="on")  # type: ignore[arg-type]  # an ASGI application
        uvicorn.Server(config).run(sockets=[listener])
