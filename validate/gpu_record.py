"""What a run on one GPU leaves: `result.json`, rewritten after every stage, and tables of measured points."""

from __future__ import annotations

import csv
import json
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from costmodel.deployment import Deployment
from hwprofiles.errors import InputError
from validate.accuracy.tables import COLUMNS
from validate.budget import Budget
from validate.calibrate_probe import Sample
from validate.calibrate_run import Calibrated
from validate.engine import EngineError

RESULT = "result.json"
_SCHEMA_VERSION = 1
_EXPECTED = (EngineError, InputError, OSError)
"""What says enough of itself; anything else that ends a stage leaves its traceback, and the run goes on."""


class OutOfTime(KeyboardInterrupt):
    """The whole budget is used up; like an interrupt, no `except Exception` on the way holds it up."""


class Record:
    """The folder of a run.

    Parameters
    ----------
    out : Path
    head : dict
        What is known before the first stage: command, date, machine, models.

    Raises
    ------
    InputError
        The folder holds another run, or cannot be written.
    """

    def __init__(self, out: Path, head: dict[str, Any], budget: Budget, say: Callable[[str], None]) -> None:
        self.out, self.budget, self.say = out, budget, say
        self.document: dict[str, Any] = {"schema_version": _SCHEMA_VERSION, **head, "stages": []}
        if (out / RESULT).exists():
            raise InputError(f"{out} holds another run ({RESULT}); name a folder of its own with -o")
        try:
            out.mkdir(parents=True, exist_ok=True)
            self.write("running")
        except OSError as error:
            raise InputError(f"{str(out)!r} cannot be written: {error.strerror or error}") from None

    def write(self, status: str) -> None:
        """Put the document on disk whole, or leave the last one."""
        self.document |= {"status": status, "took_s": round(self.budget.passed_s, 3)}
        draft = self.out / f".{RESULT}"
        draft.write_text(json.dumps(self.document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        draft.replace(self.out / RESULT)

    def skip(self, stage: str, why: str) -> None:
        """Name a stage that is left out."""
        self.say(f"{stage}: skipped, {why}")
        self.document["stages"].append({"stage": stage, "status": "skipped", "why": why})
        self.write("running")

    @contextmanager
    def stage(self, stage: str, granted_s: float) -> Iterator[dict[str, Any]]:
        """Run one stage and keep what it says of itself; its failure is noted and goes no further.

        Interrupts and the end of the budget are noted as `cut` and go on.
        """
        self.say(f"{stage}: at most {granted_s:.0f} s")
        begun_s = self.budget.passed_s
        entry: dict[str, Any] = {"stage": stage, "status": "running", "began_s": round(begun_s, 3)}
        self.document["stages"].append(entry)
        self.write("running")
        try:
            yield entry
            entry["status"] = "done"
        except Exception as error:
            entry |= {"status": "failed", "why": " ".join(str(error).split())[:600] or type(error).__name__}
            if not isinstance(error, _EXPECTED):
                entry["traceback"] = traceback.format_exc().splitlines()
        except KeyboardInterrupt as error:
            why = "the whole budget was used up" if isinstance(error, OutOfTime) else "interrupted"
            entry |= {"status": "cut", "why": why}
            raise
        finally:
            entry["took_s"] = round(self.budget.passed_s - begun_s, 3)
            told = f", {entry['why']}" if "why" in entry else ""
            self.say(f"{stage}: {entry['status']} after {entry['took_s']:.0f} s{told}")
            self.write("running")

    def done(self, stage: str) -> bool:
        """Whether a stage has come to its end."""
        return any(e["stage"] == stage and e["status"] == "done" for e in self.document["stages"])


class PointsFile:
    """A table of measured points in the columns of `specroof calibrate --measurements`, one row written at a time.

    Parameters
    ----------
    engine : str
        What served them, with its version.
    served : bool
        Times of a server's answers; else of steps alone.
    """

    def __init__(self, path: Path, dep: Deployment, engine: str, *, served: bool) -> None:
        self.path, self.dep, self.engine, self.served = path, dep, engine, served
        self.samples: list[Sample] = []
        with path.open("w", newline="", encoding="utf-8") as sink:
            csv.writer(sink, lineterminator="\n").writerow(COLUMNS)

    def add(self, sample: Sample) -> None:
        """Keep one sample, on disk at once."""
        self.samples.append(sample)
        with self.path.open("a", newline="", encoding="utf-8") as sink:
            csv.writer(sink, lineterminator="\n").writerow(self._row(sample))

    def _row(self, sample: Sample) -> list[Any]:
        p, dep = sample.point, self.dep
        phase = "decode" if p.kind == "decode" else "prefill"
        metric = "ttft_ms" if self.served and phase == "prefill" else "step_ms"
        kind = "measured" if self.served else "measured (operators in torch, no engine)"
        counts = [p.batch, p.new_tokens, round(p.context_tokens, 2), 1]
        value = float(f"{sample.seconds * 1e3:.6g}")
        note = f"log_sd={sample.sigma:.4g};random weights"
        where = [dep.hardware.name, dep.n_devices, dep.model.name, dep.weight_dtype, dep.kv_dtype, self.engine]
        return ["specroof gpu_run", *where, phase, *counts, metric, value, "ms", kind, note]


def summary(found: Calibrated, file: Path) -> dict[str, Any]:
    """What `result.json` says of a calibration."""
    errors = sorted(abs(r["error"]) for r in found.fitted.residuals())
    return {
        **({"outside_the_fit": found.check} if found.check else {}),
        "file": file.name,
        "deployment": found.deployment.label,
        "points": found.fitted.n,
        "median_error": float(f"{errors[len(errors) // 2]:.4g}"),
        "misfit": float(f"{found.fitted.misfit:.4g}"),
        "measured_factors": [name for name in found.fitted.estimates() if name not in found.missing],
        "not_identified": dict(found.missing),
        "notes": list(found.notes),
    }


def today() -> str:
    """The date as `YYYY-MM-DD`."""
    return time.strftime("%Y-%m-%d")
