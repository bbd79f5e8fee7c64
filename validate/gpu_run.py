"""Calibrates what fits on the one GPU of this machine, in a given time and without a model hub.

`python -m validate.gpu_run -o DIR [--budget 12min] [--with vllm|torch]`

Random weights in the shape of a large and a small model, served by vLLM, or timed in torch alone where vLLM is missing.
Every stage writes its files before the next begins; what does not fit the budget is named in `result.json`.
"""

from __future__ import annotations

import argparse
import gc
import shlex
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from hwprofiles.errors import InputError, unknown_name
from validate import calibrate_file
from validate.budget import Budget, seconds_of
from validate.calibrate_probe import ServerFacts
from validate.calibrate_run import Calibrated, calibrate_samples
from validate.dummy_model import shape_of
from validate.gpu_device import find_machine, profile_of
from validate.gpu_plan import MEASURED, ROLES, TORCH_SHARES, VLLM_SHARES, Job, longest_request
from validate.gpu_record import RESULT, OutOfTime, PointsFile, Record, summary, today
from validate.gpu_vllm import COMMAND, VllmRun
from validate.held_out import checked, random_points
from validate.torch_timing import Timer, chosen_points, decoder_of, room_of, without_engine

ENGINES = ("vllm", "torch")
STRONG, WEAK = "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"
_KEPT, _MOST_KEPT_S = 0.05, 20.0
"""Share of the budget, and seconds at most, for stopping servers and writing."""
_LEAST_S = 20.0


class TorchRun:
    """The stages of a run in torch alone: device factors of both models' steps, and of neither an engine's times."""

    def __init__(self, job: Job, record: Record) -> None:
        self.job, self.record = job, record
        self.library = f"torch-{job.machine.details.get('torch')}"
        self.parts: list[PointsFile] = []

    def run(self) -> None:
        """All stages that there is time for."""
        for role in ROLES:
            self._time(role)
            gc.collect()
        if self.parts:
            with self.record.stage("both", self.record.budget.grant_s("both")) as entry:
                found = calibrate_samples([(p.dep, p.samples) for p in self.parts], self._facts("strong"))
                entry.update(self._written(found, "calibration.toml"))
        self.record.skip("replay", "torch alone serves nobody")

    def _time(self, role: str) -> None:
        name, granted_s = f"{role} steps", self.record.budget.grant_s(f"{role} steps")
        if not granted_s:
            self.record.skip(name, self.record.budget.refusal(name))
            return
        with self.record.stage(name, granted_s) as entry:
            dep = without_engine(self.job.deployment(role))
            longest = longest_request(dep)
            points = chosen_points(dep, longest, MEASURED * granted_s)
            timer = Timer(decoder_of(dep, self.job.machine.cuda, longest))
            kept = PointsFile(self.job.out / f"{role}-points.csv", dep, self.library, served=False)
            entry["points_file"] = kept.path.name
            timed = timer.measure(points, MEASURED * granted_s, progress=self.job.progress, each=kept.add)
            others = random_points(room_of(dep, longest), self.job.checked, self.job.seed)
            check = timer.measure(others, (1.0 - MEASURED) * granted_s, progress=self.job.progress).samples
            entry.update(as_graphs=timed.captured, kernel_by_kernel=timed.launched, left_out=timed.notes)
            self.job.progress("")
            if not timed.samples:
                raise InputError("no step could be timed: " + ("; ".join(timed.notes) or "no point fits"))
            self.parts.append(kept)
            found = calibrate_samples([(dep, kept.samples)], self._facts(role), timed.notes)
            found = replace(found, check=checked(dep, found.fitted, check)) if check else found
            entry.update(self._written(found, f"{role}.toml"))

    def _facts(self, role: str) -> ServerFacts:
        dep = without_engine(self.job.deployment(role))
        return ServerFacts(
            model=dep.model.name, version=None, block_tokens=None, kv_blocks=None, max_model_tokens=longest_request(dep)
        )

    def _written(self, found: Calibrated, name: str) -> dict[str, Any]:
        path = self.job.out / name
        content = calibrate_file.document(
            found.deployment, found.fitted, command=f"{COMMAND} --with torch", date=today(), facts=found.facts
        )
        content["server"] = {**content["server"], "library": self.library}
        for own in content["factors"].values():
            if str(own.get("source", "")).startswith("measured "):
                own["source"] += f", {self.library} alone, no engine"
        calibrate_file.write(path, content)
        return summary(found, path)


def run(job: Job, record: Record, engine: str, *, fall_back: bool) -> None:
    """All stages; where no vLLM server comes up and `fall_back`, what is left of the budget goes to torch alone."""
    if engine == "vllm":
        if VllmRun(job, record).run() or not fall_back:
            return
        record.document["fell_back"] = "no vLLM server came up, so torch alone was timed"
        record.say(record.document["fell_back"])
    TorchRun(job, record).run()


def main(arguments: list[str] | None = None) -> int:
    """Command line; 2: bad input, 3: something is missing or nothing was calibrated, 130: interrupted."""
    given = _parser().parse_args(arguments)
    try:
        budget_s = seconds_of(given.budget)
        if budget_s < _LEAST_S:
            raise InputError(f"--budget must be at least {_LEAST_S:g}s, got {given.budget}")
        machine = find_machine()
        engine = _engine(given.engine, machine.details.get("vllm"))
        if engine == "torch" and (given.settings or given.eager):
            raise InputError("--set and --eager have no effect in torch alone, which plays no replay and has no server")
        if wrong := [text for text in given.settings if "=" not in text]:
            raise InputError(f"--set must be KEY=VALUE, got {wrong[0]!r:.80}")
        device = profile_of(machine, given.hardware)
        job = Job(
            out=given.out.absolute(),
            machine=machine,
            device=device,
            hardware=_anchored(given.hardware) if given.hardware else device.name,
            models={"strong": _anchored(given.strong), "weak": _anchored(given.weak)},
            eager=given.eager,
            settings=tuple(given.settings),
            seed=given.seed,
            progress=_progress,
        )
        for role in ROLES:
            shape_of(job.arch(role))
        budget = Budget(budget_s, VLLM_SHARES | TORCH_SHARES, kept_s=min(_MOST_KEPT_S, _KEPT * budget_s))
        record = Record(job.out, _head(job, engine, budget_s, arguments), budget, lambda text: _say(budget, text))
    except InputError as error:
        sys.stderr.write(f"specroof: {error}\n")
        return 2
    except ModuleNotFoundError as error:
        sys.stderr.write(f"specroof: {error}; install torch, and the extra vllm for servers, and try again\n")
        return 3
    return _ended(job, record, engine, fall_back=given.engine is None)


def _ended(job: Job, record: Record, engine: str, *, fall_back: bool) -> int:
    """Run under the hard end of the budget and under signals, and say how it went."""
    status, code = "done", 0
    with suppress(ValueError):  # not in the main thread: whoever calls keeps the signals
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGALRM, _out_of_time)
        signal.setitimer(signal.ITIMER_REAL, record.budget.total_s - record.budget.kept_s / 2)
    try:
        run(job, record, engine, fall_back=fall_back)
    except OutOfTime:
        status = "cut: the whole budget was used up"
    except KeyboardInterrupt:
        status, code = "interrupted", 130
    finally:
        with suppress(ValueError):
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        record.write(status)
    files = sorted(p.name for p in job.out.glob("*.toml") if p.name != "scenario.toml")
    sys.stdout.write(f"{job.out / RESULT}: {status}; {', '.join(files) or 'no calibration'}\n")
    return code or (0 if files else 3)


def _out_of_time(number: int, frame: FrameType | None) -> None:
    raise OutOfTime


def _engine(named: str | None, vllm: str | None) -> str:
    if named is None:
        return "vllm" if vllm else "torch"
    if named not in ENGINES:
        raise unknown_name("engine", named, ENGINES)
    if named == "vllm" and vllm is None:
        raise ModuleNotFoundError("No module named 'vllm'")
    return named


def _anchored(name: str) -> str:
    """A path as an absolute one, so that it leads there from another folder too; a name as it is."""
    path = Path(name)
    return str(path.absolute()) if path.suffix in (".json", ".toml") or path.is_dir() else name


def _head(job: Job, engine: str, budget_s: float, arguments: list[str] | None) -> dict[str, Any]:
    words = sys.argv[1:] if arguments is None else arguments
    return {
        "command": f"{COMMAND} {shlex.join(words)}",
        "date": today(),
        "budget_s": budget_s,
        "engine": engine,
        "device": job.device.name,
        "machine": job.machine.to_dict(),
        "models": job.models,
        "weights": "random",
        "seed": job.seed,
    }


def _say(budget: Budget, text: str) -> None:
    _progress("")
    sys.stderr.write(f"[{budget.passed_s:4.0f} s] {text}\n")
    sys.stderr.flush()


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line[:120]}")
        sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "-o", "--output", dest="out", type=Path, required=True, metavar="DIR", help="folder for all files"
    )
    parser.add_argument(
        "--hardware", metavar="NAME", help="the device, or a device TOML; default: by the driver's name"
    )
    parser.add_argument("--budget", default="12min", help="for the whole run: 90s, 12min, 1h; default %(default)s")
    parser.add_argument("--with", dest="engine", metavar="ENGINE", help="vllm or torch; default: vllm where installed")
    parser.add_argument("--strong", default=STRONG, metavar="MODEL", help="name or config.json; default %(default)s")
    parser.add_argument("--weak", default=WEAK, metavar="MODEL", help="name or config.json; default %(default)s")
    parser.add_argument("--eager", action="store_true", help="servers start sooner: nothing compiled, no CUDA graphs")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="key of the replay's scenario"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the prompts; default %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
