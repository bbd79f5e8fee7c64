"""A run as spans on a clock: rows for a figure, or a Chrome trace for Perfetto and chrome://tracing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwprofiles.errors import InputError
from simulator.results import RunResult

if TYPE_CHECKING:
    import pandas as pd

LANES = ("weak", "strong", "tools", "network")


def timeline(run: RunResult, trajectory: int = 0) -> pd.DataFrame:
    """Spans of one trajectory on its own clock: columns strategy, start_s, end_s, lane, phase, step, label.

    Raises
    ------
    InputError
        The run has no trajectory of that number.
    """
    mine = run.trajectories[run.trajectories["trajectory"] == trajectory]
    if mine.empty:
        raise InputError(f"trajectory must be between 0 and {len(run.trajectories) - 1}, got {trajectory}")
    start_s = float(mine["arrival_s"].iloc[0])
    spans = run.phases[run.phases["trajectory"] == trajectory]
    return spans.assign(
        strategy=run.meta["strategy"],
        start_s=spans["start_s"] - start_s,
        end_s=spans["end_s"] - start_s,
        label=spans["kind"] + " " + spans["step"].astype("string"),
    )[["strategy", "start_s", "end_s", "lane", "phase", "step", "label"]].reset_index(drop=True)


def chrome_trace(run: RunResult) -> dict[str, Any]:
    """All spans in the Trace Event Format: a process per trajectory with a thread per lane, one more per engine.

    Source: Trace Event Format (Google, 2016), complete events `ph = "X"` with microseconds.
    """
    events: list[dict[str, Any]] = []
    for row in run.trajectories.to_dict("records"):
        number = row["trajectory"]
        events.append(_name("process_name", number, 0, f"trajectory {number}: {row['task']}"))
        events += [_name("thread_name", number, i, lane) for i, lane in enumerate(LANES)]
    for row in run.phases.to_dict("records"):
        span = _span(row["trajectory"], LANES.index(row["lane"]), row["start_s"], row["end_s"] - row["start_s"])
        used = {"step": row["step"], "round": row["round"]}
        events.append({"name": row["phase"], "cat": row["kind"], **span, "args": used})
    pid_of: dict[tuple[str, int], int] = {}
    for row in run.engine.to_dict("records"):
        pid = pid_of.setdefault((row["role"], row["replica"]), len(run.trajectories) + len(pid_of))
        used = {key: row[key] for key in ("n_decode", "n_prefill_tokens", "n_waiting")}
        span = _span(pid, 0, row["start_s"], row["time_s"])
        events.append({"name": f"{row['n_steps']} iterations", "cat": "engine", **span, "args": used})
    events += [_name("process_name", pid, 0, f"{role} engine {i}") for (role, i), pid in pid_of.items()]
    return {"displayTimeUnit": "ms", "otherData": {"strategy": run.meta["strategy"]}, "traceEvents": events}


def _span(pid: int, tid: int, start_s: float, time_s: float) -> dict[str, Any]:
    return {"ph": "X", "pid": pid, "tid": tid, "ts": start_s * 1e6, "dur": time_s * 1e6}


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
