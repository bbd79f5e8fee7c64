"""A run on one GPU with vLLM: both models served with random weights, calibrated, and played against each other."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from costmodel.deployment import Deployment
from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.run import simulate
from simulator.scenario_file import load_scenario
from validate import calibrate_file
from validate.calibrate_run import Calibrated, calibrate_samples, calibrate_target
from validate.calibrate_targets import HttpTarget
from validate.dummy_model import write_dummy
from validate.engine import EngineError
from validate.gpu_plan import CPU_KV_BYTES, MEASURED, ROLES, Job, longest_request, side_by_side
from validate.gpu_record import PointsFile, Record, summary, today
from validate.gpu_server import CPU_ENVIRONMENT, CPU_OPTIONS, Server, command, free_port

COMMAND = "python -m validate.gpu_run"
STRATEGIES = ("strong_only", "spec_agent")
_MOST_RUNS = 20
_TRIED = 5
"""Simulated trajectories from which the time of one is taken."""
_REPLAYED = 0.6
"""Share of the time left that the trajectories are predicted to take; starting and simulating take some too."""


class VllmRun:
    """The stages of a run with vLLM servers."""

    def __init__(self, job: Job, record: Record) -> None:
        self.job, self.record = job, record
        self.servers: dict[str, Server] = {}
        self.points: dict[str, PointsFile] = {}
        self.facts: Any = None
        self.version = job.machine.details.get("vllm")

    def run(self) -> bool:
        """All stages that there is time for; whether any server came up."""
        shares = side_by_side(self.job)
        apart = shares if isinstance(shares, str) else None
        self.record.document["side_by_side"] = {"why_not": apart} if apart else shares
        with ExitStack() as stack:
            for role in ROLES:
                share = None if isinstance(shares, str) else shares[role]
                if apart and role == "weak" and "strong" in self.servers:
                    self.servers.pop("strong").stop()
                self._start(role, share, stack)
                self._calibrate(role, share)
            if not self.points:
                return bool(self.servers)
            calibration = self._together()
            if apart or len(self.servers) < len(ROLES) or calibration is None:
                self.record.skip("replay", f"both engines at once: {apart}" if apart else "it needs both calibrated")
            else:
                assert not isinstance(shares, str)
                self._replay(shares, calibration)
        return True

    def _start(self, role: str, share: float | None, stack: ExitStack) -> None:
        name, granted_s = f"{role} start", self.record.budget.grant_s(f"{role} start")
        if not granted_s:
            self.record.skip(name, self.record.budget.refusal(name))
            return
        with self.record.stage(name, granted_s) as entry:
            dep = self.job.deployment(role, share)
            folder = write_dummy(self.job.out / "models" / role, self.job.models[role])
            port = free_port()
            log = self.job.out / f"{role}.log"
            argv = command(folder, role, port, self._options(dep))
            environment = {} if self.job.machine.cuda else CPU_ENVIRONMENT
            server = stack.enter_context(Server(argv, port, log, environment))
            entry.update(log=log.name, command=" ".join(argv[1:]).replace(str(self.job.out), self.job.out.name))
            try:
                entry["ready_s"] = round(server.start(granted_s, progress=self.job.progress), 3)
            except EngineError:
                server.stop()
                raise
            self.servers[role] = server

    def _options(self, dep: Deployment) -> list[str]:
        longest = longest_request(dep)
        found = ["--max-num-seqs", str(dep.engine.max_seqs), "--max-model-len", str(longest)]
        found += ["--max-num-batched-tokens", str(dep.engine.chunk_tokens)]
        if self.job.machine.cuda:
            found += ["--gpu-memory-utilization", f"{dep.engine.memory_share:.3f}"]
            return [*found, "--enforce-eager"] if self.job.eager else found
        return [*found, "--kv-cache-memory-bytes", str(CPU_KV_BYTES), *CPU_OPTIONS]

    def _calibrate(self, role: str, share: float | None) -> None:
        name, granted_s = f"{role} points", self.record.budget.grant_s(f"{role} points")
        if role not in self.servers:
            self.record.skip(name, "its server is not there")
            return
        if not granted_s:
            self.record.skip(name, self.record.budget.refusal(name))
            return
        with self.record.stage(name, granted_s) as entry:
            dep = self.job.deployment(role, share)
            points = PointsFile(self.job.out / f"{role}-points.csv", dep, f"vllm-{self.version}", served=True)
            entry["points_file"] = points.path.name
            found = asyncio.run(self._measure(role, dep, points, MEASURED * granted_s))
            entry.update(self._written(found, f"{role}.toml"))
            self.points[role] = points

    async def _measure(self, role: str, dep: Deployment, points: PointsFile, budget_s: float) -> Calibrated:
        """Of a server that fails on the way, the points that were there before."""
        target = HttpTarget(self.servers[role].url)
        self.facts = self.facts or target.facts
        try:
            return await calibrate_target(
                dep,
                target,
                budget_s,
                seed=self.job.seed,
                progress=self.job.progress,
                each=points.add,
                check=self.job.checked,
            )
        except EngineError as error:
            if not points.samples:
                raise
            return calibrate_samples([(dep, points.samples)], target.facts, [f"the server failed: {error}"])
        finally:
            await target.close()
            self.job.progress("")

    def _written(self, found: Calibrated, name: str) -> dict[str, Any]:
        path = self.job.out / name
        content = calibrate_file.document(
            found.deployment, found.fitted, command=COMMAND, date=today(), facts=found.facts
        )
        calibrate_file.write(path, content)
        return summary(found, path)

    def _together(self) -> Path | None:
        """One calibration from the points of both models; None where it cannot be had."""
        path = self.job.out / "calibration.toml"
        with self.record.stage("both", self.record.budget.grant_s("both")) as entry:
            parts = [(p.dep, p.samples) for p in self.points.values()]
            entry.update(self._written(calibrate_samples(parts, self.facts), path.name))
        return path if path.exists() else None

    def _replay(self, shares: dict[str, float], calibration: Path) -> None:
        granted_s = self.record.budget.grant_s("replay")
        if not granted_s:
            self.record.skip("replay", self.record.budget.refusal("replay"))
            return
        with self.record.stage("replay", granted_s) as entry:
            scenario = self.job.out / "scenario.toml"
            scenario.write_text(scenario_text(self.job, shares), encoding="utf-8")
            each_s = trajectory_s(scenario, self.job.settings, calibration)
            runs = min(_MOST_RUNS, int(_REPLAYED * granted_s / each_s))
            entry["predicted_trajectory_s"] = round(each_s, 3)
            if runs < 1:
                raise InputError(
                    f"a trajectory of both strategies takes {each_s:.0f} s and {granted_s:.0f} s were left"
                )
            entry.update(runs=runs, scenario=scenario.name)
            entry.update(self._played(scenario, calibration, runs, granted_s))

    def _played(self, scenario: Path, calibration: Path, runs: int, within_s: float) -> dict[str, Any]:
        """`specroof validate --replay`, as anybody would call it."""
        out, page, answer = (self.job.out / n for n in ("runs", "replay.html", "replay.json"))
        strategies = [word for name in STRATEGIES for word in ("--strategy", name)]
        settings = [word for text in self.job.settings for word in ("--set", text)]
        argv = [
            *(sys.executable, "-m", "specroof", "validate", str(scenario), "--replay", "--runs", str(runs)),
            *("--weak", self.servers["weak"].url, "--strong", self.servers["strong"].url, *strategies, *settings),
            *("--calibration", str(calibration), "-o", str(out), "--report", str(page), "--json"),
        ]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=within_s, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise EngineError(f"the replay was not done within {within_s:.0f} s") from None
        if done.returncode:
            raise EngineError((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
        answer.write_text(done.stdout, encoding="utf-8")
        told = json.loads(done.stdout)
        kept = {k: told[k] for k in ("measured", "predicted", "errors", "in_band", "ranking")}
        return {**kept, "files": [answer.name, page.name, out.name]}


def scenario_text(job: Job, shares: dict[str, float]) -> str:
    """The replay's scenario: both models in turns on the one device, the recorded retail desk."""
    import tomli_w

    def side(role: str) -> dict[str, Any]:
        dep = job.deployment(role, shares[role])
        return {
            "model": job.models[role],
            "hardware": job.hardware,
            "memory_share": shares[role],
            "max_seqs": dep.engine.max_seqs,
            "chunk_tokens": dep.engine.chunk_tokens,
            "thinking": False,
        }

    names = [job.arch(role).name.rpartition("/")[2] for role in ("weak", "strong")]
    document = {
        "title": f"{names[0]} drafts and {names[1]} reviews on one {job.device.title}, random weights",
        "strategies": list(STRATEGIES),
        "weak": side("weak"),
        "strong": {**side("strong"), "share_devices_with": "weak"},
        "workload": {"trace": "retail"},
    }
    return tomli_w.dumps(document)


def trajectory_s(scenario: Path, settings: tuple[str, ...], calibration: Path) -> float:
    """Predicted seconds of one trajectory under each strategy together.

    Raises
    ------
    InputError
        The scenario does not fit the device.
    """
    case = prepare(load_scenario(str(scenario), settings, calibration))
    load = replace(case.scenario.load, concurrency=1, n_trajectories=_TRIED, arrival_rate_per_s=None, arrivals=None)
    case = replace(case, scenario=replace(case.scenario, load=load), arrivals=None)
    found = (simulate(case, name, details=False).trajectories["time_s"].mean() for name in STRATEGIES)
    return float(sum(found))
