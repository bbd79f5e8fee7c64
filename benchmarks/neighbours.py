"""The pip-installable neighbours and specroof on the same number of requests: seconds, side by side.

    python benchmarks/neighbours.py

Each neighbour goes into an environment of its own under a temporary folder, from the package index that pip uses. The
result is `benchmarks/neighbours.json`, and the table in `benchmarks/README.md` between the two marks.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROUNDS = 3
MARKS = ("<!-- neighbours -->", "<!-- /neighbours -->")

FLEET = """
import json, sys
import numpy as np
from costmodel.deployment import deploy
from costmodel.step import StepModel
from simulator.arrivals import TraceRequest
from simulator.request_stream import stream

n, replicas, rate, cdf = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), json.load(open(sys.argv[4]))
points = cdf["cdf"] if isinstance(cdf, dict) else cdf
lengths, shares = np.array(points, dtype=float).T
rng = np.random.default_rng(0)
total = np.interp(rng.random(n), shares, lengths).astype(int).clip(2)
output = (0.2 * total).astype(int).clip(1)
at = np.cumsum(rng.exponential(1 / rate, n))
requests = [TraceRequest(float(t), int(a - b), int(b), ()) for t, a, b in zip(at, total, output)]
model = StepModel(deploy("meta-llama/Llama-3.1-8B", "h100", weight_dtype="bf16"))
print(json.dumps(stream(requests, model, replicas=replicas, router="least_loaded").document()))
"""
"""`n` requests whose total length follows a distribution, a fifth of it output, on replicas of an 8B model."""


def timed(command: list[str]) -> dict[str, float] | None:
    """Best wall and CPU seconds of `ROUNDS` runs; None when it fails."""
    best = {"wall_s": float("inf"), "cpu_s": float("inf")}
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if found.returncode:
            sys.stderr.write(found.stderr[-400:])
            return None
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = {"wall_s": min(best["wall_s"], wall), "cpu_s": min(best["cpu_s"], cpu)}
    return {key: round(value, 2) for key, value in best.items()}


def installed(package: str, folder: Path) -> tuple[Path | None, str]:
    """The folder of commands of a fresh environment with `package`, and its version; or None and why not."""
    venv.create(folder, with_pip=True)
    bin_ = folder / "bin"
    found = subprocess.run(
        [str(bin_ / "pip"), "install", "--quiet", package], capture_output=True, text=True, check=False
    )
    if found.returncode:
        lines = [line.strip() for line in found.stderr.splitlines() if "rror" in line]
        return None, lines[-1] if lines else "pip failed"
    shown = subprocess.run([str(bin_ / "pip"), "show", package], capture_output=True, text=True, check=True).stdout
    return bin_, next(line.split()[1] for line in shown.splitlines() if line.startswith("Version:"))


def rows(temporary: Path) -> list[dict[str, Any]]:
    """One row per tool and job."""
    found: list[dict[str, Any]] = []
    bin_, version = installed("vllm-sr-sim", temporary / "sr")
    cdf = None if bin_ is None else next(bin_.parent.glob("lib/*/site-packages/fleet_sim/data/azure_cdf.json"))
    for n in (1_000, 30_000):
        job = f"{n:,} requests, lengths of the Azure trace, 40 devices"
        if bin_ is None or cdf is None:
            found.append({"tool": "vllm-sr-sim", "job": job, "not_installed": version})
            continue
        command = [str(bin_ / "vllm-sr-sim"), "simulate", "--cdf", str(cdf), "--n-s", "20", "--n-l", "20"]
        command += ["--gpu-short", "h100", "--gpu-long", "h100", "--lam", "100", "--n-req", str(n)]
        found.append({"tool": f"vllm-sr-sim {version}", "job": job, **(timed(command) or {"failed": True})})
        own = [sys.executable, "-c", FLEET, str(n), "40", "100", str(cdf)]
        found.append({"tool": "specroof", "job": job, **(timed(own) or {"failed": True})})
    bin_, version = installed("aisimulate", temporary / "ais")
    job = "1,000 sessions of 10 turns"
    reason = {"not_installed": version} if bin_ is None else {"installed_not_run": version}
    found.append({"tool": "aisimulate", "job": job, **reason})
    speed = [sys.executable, "-m", "specroof", "simulate", "speed", "--json"]
    found.append(
        {"tool": "specroof", "job": "1,000 agents of 10 steps (`simulate speed`)", **(timed(speed) or {"failed": True})}
    )
    return found


def table(document: dict[str, Any]) -> str:
    """The rows as Markdown."""
    lines = ["| Job | Tool | Wall s | CPU s |", "|---|---|---|---|"]
    for row in document["rows"]:
        if "wall_s" in row:
            numbers = f"{row['wall_s']} | {row['cpu_s']}"
        else:
            numbers = row.get("not_installed", "did not run").replace("|", "/")[:60] + " | "
        lines.append(f"| {row['job']} | {row['tool']} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, write the JSON and the table."""
    with tempfile.TemporaryDirectory() as temporary:
        document = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
            "load_before": round(os.getloadavg()[0], 1),
            "rounds": ROUNDS,
            "rows": rows(Path(temporary)),
        }
    (HERE / "neighbours.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    page = HERE / "README.md"
    text = page.read_text(encoding="utf-8")
    start, end = text.index(MARKS[0]) + len(MARKS[0]), text.index(MARKS[1])
    note = f"Best of {ROUNDS} on {document['machine']}; load average {document['load_before']} when it began.\n\n"
    page.write_text(text[:start] + "\n" + note + table(document) + "\n" + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
