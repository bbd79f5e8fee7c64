"""Latency of an API from recorded calls: seconds = request_s + input_token_s * new input + output_token_s * output.

Least absolute deviations with coefficients >= 0, so that a few calls that stalled do not move the line; then all
coefficients are scaled by one factor so that the sum of the fitted seconds is the sum of the recorded ones, because
plans add up means.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.trajectory import Workload
from hwprofiles.errors import InputError, unknown_name
from simulator.scenario_world import ApiLatency
from simulator.uncertain import Uncertain

Array = np.ndarray[Any, np.dtype[np.float64]]

LONGEST_S = 120.0
"""Longer calls are left out: they stalled, or the recorder's clock ran over a pause (assumed)."""

_LEAST_ROWS, _MOST_ROWS = 20, 4000
_RESAMPLES = 100
_COLUMNS = ("seconds", "input_tokens", "output_tokens")
_OPTIONAL = ("cached_tokens", "model", "group")


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call; `group` names calls that belong together (a trajectory); None stands for unknown."""

    seconds: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    model: str | None = None
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyFit:
    """A fitted latency.

    Parameters
    ----------
    latency : ApiLatency
        Means with 5 and 95 % points over resampled groups.
    n, n_left_out : calls used, and those that were too long or of length 0
    new_input : what counted as input: "uncached tokens", or "prompt tokens" where the cached part is not recorded
    median_ape : median absolute relative error of a single call
    mean_over_median : the factor that took the line through the middle of the calls to their mean
    """

    latency: ApiLatency
    n: int
    n_left_out: int
    new_input: str
    median_ape: float
    mean_over_median: float

    def to_toml(self, role: str) -> str:
        """The table of a scenario."""
        import tomli_w

        from simulator.scenario_file import to_document

        table = to_document(self.latency)
        for band in table.values():
            band.update({k: float(f"{band[k]:.4g}") for k in ("value", "low", "high")})
        return tomli_w.dumps({role: {"latency": table}})


def calls_of(work: Workload) -> list[Call]:
    """The calls of a trace whose times and tokens are recorded."""
    return [
        Call(s.end_s - s.start_s, s.prompt_tokens, s.output_tokens, s.cached_prompt_tokens, s.model, t.id)
        for t in work.trajectories
        for s in t.steps
        if s.start_s is not None and s.end_s is not None and s.prompt_tokens is not None and s.output_tokens is not None
    ]


def read_calls(path: Path) -> list[Call]:
    """Calls from a CSV: columns seconds, input_tokens, output_tokens and, if known, cached_tokens, model, group.

    Raises
    ------
    InputError
        A column is missing or unknown, or a cell is no number >= 0; the message names the line.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            known = (*_COLUMNS, *_OPTIONAL)
            for column in reader.fieldnames or ():
                if column not in known:
                    raise unknown_name(f"column of {path.name}", column, known)
            for column in _COLUMNS:
                if column not in (reader.fieldnames or ()):
                    raise InputError(f"{path.name}: column {column} is missing")
            return [_call(row, f"{path.name}, line {n}") for n, row in enumerate(reader, 2)]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path.name}: not a CSV in UTF-8: {error}") from None


def _call(row: dict[str, Any], where: str) -> Call:
    try:
        seconds = float(row["seconds"])
        sent, out = int(row["input_tokens"]), int(row["output_tokens"])
        cached = int(row["cached_tokens"]) if row.get("cached_tokens") else None
    except (TypeError, ValueError):
        raise InputError(f"{where}: seconds must be a number, tokens whole numbers") from None
    if not 0 <= seconds <= 1e9 or min(sent, out, cached or 0) < 0 or max(sent, out) > 1e9:
        raise InputError(f"{where}: seconds and tokens must be 0 to 1e9")
    return Call(seconds, sent, out, cached, row.get("model") or None, row.get("group") or where)


def fit_latency(calls: Sequence[Call], source: str, *, model: str | None = None, seed: int = 0) -> LatencyFit:
    """Fit an API's latency to recorded calls.

    Parameters
    ----------
    model : str or None
        Only the calls of this model; None: all, if they are of one model.

    Raises
    ------
    InputError
        Too few calls, several models and none named, or no calls of the one named.
    """
    chosen = _of_model(calls, model)
    kept = [c for c in chosen if 0 < c.seconds <= LONGEST_S]
    if len(kept) < _LEAST_ROWS:
        raise InputError(
            f"{source}: {len(kept)} calls with start, end and tokens; a latency needs at least {_LEAST_ROWS}"
        )
    used = kept[:: -(-len(kept) // _MOST_ROWS)]
    cached_known = all(c.cached_tokens is not None for c in used)
    fresh = [max(0, c.input_tokens - (c.cached_tokens or 0)) if cached_known else c.input_tokens for c in used]
    x = np.column_stack([np.ones(len(used)), fresh, [c.output_tokens for c in used]]).astype(float)
    y = np.array([c.seconds for c in used])
    scale = np.maximum(x.mean(axis=0), 1e-12)
    middle = _least_absolute(x / scale, y) / scale
    factor = float(y.sum() / (x @ middle).sum())
    drawn = np.array([_mean_line(x / scale, y, rows) for rows in _resamples([c.group for c in used], seed)]) / scale
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    text = f"least absolute deviations over {len(used)} recorded calls of {source}, scaled to their mean"
    bands = [
        Uncertain(value=float(v), low=float(min(lo, v)), high=float(max(hi, v)), tier="fitted", source=text)
        for v, lo, hi in zip(middle * factor, low, high, strict=True)
    ]
    return LatencyFit(
        latency=ApiLatency(request_s=bands[0], input_token_s=bands[1], output_token_s=bands[2]),
        n=len(used),
        n_left_out=len(chosen) - len(kept),
        new_input="uncached tokens" if cached_known else "prompt tokens",
        median_ape=float(np.median(np.abs(x @ middle * factor - y) / y)),
        mean_over_median=factor,
    )


def _of_model(calls: Sequence[Call], model: str | None) -> list[Call]:
    known = sorted({c.model for c in calls if c.model is not None})
    if model is None:
        if len(known) > 1:
            raise InputError(f"the calls are of several models ({', '.join(known[:8])}): name one with --model")
        return list(calls)
    if not known:
        raise InputError("the calls name no model: leave --model out")
    if model not in known:
        raise unknown_name("model of the calls", model, known)
    return [c for c in calls if c.model == model]


def _least_absolute(x: Array, y: Array) -> Array:
    """argmin over b >= 0 of sum |y - x b|, from the dual: max y u over x^T u <= 0, -1 <= u <= 1; b are its prices."""
    from scipy.optimize import linprog

    found = linprog(-y, A_ub=x.T, b_ub=np.zeros(x.shape[1]), bounds=(-1, 1), method="highs")
    return np.asarray(np.maximum(0.0, -np.asarray(found.ineqlin.marginals, dtype=float)))


def _mean_line(x: Array, y: Array, rows: Array) -> Array:
    line = _least_absolute(x[rows], y[rows])
    return np.asarray(line * (y[rows].sum() / max(1e-300, float((x[rows] @ line).sum()))))


def _resamples(groups: Sequence[str], seed: int) -> Iterable[Array]:
    """Row numbers of resampled groups."""
    rng = np.random.default_rng([seed, len(groups)])
    members: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    each = list(members.values())
    for _ in range(_RESAMPLES):
        yield np.concatenate([each[i] for i in rng.integers(len(each), size=len(each))])
