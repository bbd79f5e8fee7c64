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

    An engine shows its iterations, and its batch, KV cache and queue as counters; a flow leads through the lanes of a
    trajectory. Source: Trace Event Format (Google, 2016): complete events `X`, counters `C`, flows `s`, `t` and `f`,
    metadata `M`; times in microseconds.
    """
    events: list[dict[str, Any]] = []
    for row in run.trajectories.to_dict("records"):
        number = row["trajectory"]
        events.append(_name("process_name", number, 0, f"trajectory {number}: {row['task']}"))
        events += [_name("thread_name", number, i, lane) for i, lane in enumerate(LANES)]
    stops: dict[int, list[tuple[int, float]]] = {}
    for row in run.phases.to_dict("records"):
        lane = LANES.index(row["lane"])
        span = _span(row["trajectory"], lane, row["start_s"], row["end_s"] - row["start_s"])
        used = {"step": row["step"], "round": row["round"]}
        events.append({"name": row["phase"], "cat": row["kind"], **span, "args": used})
        way = stops.setdefault(row["trajectory"], [])
        if row["end_s"] > row["start_s"] and (not way or way[-1][0] != lane):
            way.append((lane, row["start_s"]))
    for number, way in stops.items():
        events += _flow(number, sorted(way, key=lambda stop: stop[1]))
    pid_of: dict[tuple[str, int], int] = {}
    for row in run.engine.to_dict("records"):
        pid = pid_of.setdefault((row["role"], row["replica"]), len(run.trajectories) + len(pid_of))
        used = {key: row[key] for key in ("n_decode", "n_prefill_tokens", "n_waiting")}
        span = _span(pid, 0, row["start_s"], row["time_s"])
        end_s = row["start_s"] + row["time_s"]
        events.append({"name": f"{row['n_steps']} iterations", "cat": "engine", **span, "args": used})
        events.append(_counter("batch", pid, row["start_s"], {"decoding sequences": row["n_decode"]}))
        events.append(_counter("prefill", pid, row["start_s"], {"tokens": row["n_prefill_tokens"] / row["n_steps"]}))
        events.append(_counter("KV cache", pid, end_s, {"tokens": row["kv_used_tokens"]}))
        events.append(_counter("queue", pid, end_s, {"jobs": row["n_waiting"]}))
    for (role, replica), pid in pid_of.items():
        events.append(_name("process_name", pid, 0, f"{role} engine {replica}"))
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"strategy": run.meta["strategy"]}}


def _flow(number: int, way: list[tuple[int, float]]) -> list[dict[str, Any]]:
    """Arrows from lane to lane; each end binds to the span that holds its time."""
    last = len(way) - 1
    return [
        {"name": "trajectory", "cat": "flow", "ph": ph, "id": number, "pid": number, "tid": lane, "ts": at_s * 1e6}
        | ({"bp": "e"} if ph == "f" else {})
        for i, (lane, at_s) in enumerate(way)
        for ph in ("s" if i == 0 else "f" if i == last else "t",)
        if last > 0
    ]


def _counter(name: str, pid: int, at_s: float, values: dict[str, float]) -> dict[str, Any]:
    return {"name": name, "ph": "C", "pid": pid, "ts": at_s * 1e6, "args": values}


def _span(pid: int, tid: int, start_s: float, time_s: float) -> dict[str, Any]:
    return {"ph": "X", "pid": pid, "tid": tid, "ts": start_s * 1e6, "dur": time_s * 1e6}


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
