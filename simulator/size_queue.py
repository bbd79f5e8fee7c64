"""A first guess of what load does to a fleet, in closed form: enough to choose which fleets are worth a simulation.

Moments come from the strategy alone on idle engines; each pool of batching engines is then a queue whose service rate
depends on the batch that the load implies. Per replica, with lambda trajectories per second, P and D engine seconds of
prefill and of decode per trajectory on an idle engine, and phi(n) the time of a decode step of n sequences relative
to one of a single sequence:

    u = lambda (P + D phi(B_max) / B_max)                      share of the replica's capacity, full batches
    rho = lambda P                                             share of its time that prefill takes
    B = lambda D phi(1 + B) / (1 - rho)                        sequences decoding at once (Little's law)
    stretch = phi(1 + B) / (1 - rho)                           of a decoding sequence: shared steps, prefill between
    W = lambda R E[p^2] / (2 (1 - rho)) + 3/2 min(1, B) tau    wait of one of R requests for its prefill: M/G/1 behind
                                                               other prompts, and 3/2 steps of tau behind decodes
    T = T_alone + sum over pools of D (stretch - 1) + R (W + W_slots)

`W_slots` is the M/G/c wait for one of the c * B_max places of the pool. Engines that run one sequence at a time
(B_max = 1) are M/G/c itself: stretch 1, W = 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.api import Api
from costmodel.pricing import Pricing
from costmodel.protocol import Role
from hwprofiles.errors import InputError
from simulator.case import Case
from simulator.results import RunResult
from simulator.slo import Slo
from simulator.theory import mgc_wait_s

Array = np.ndarray[Any, np.dtype[np.float64]]

_PREFILL = ("prompt_prefill", "observation_prefill", "verify_prefill", "repair_prefill", "reprefill")
_DECODE = ("decode", "draft_decode", "verdict_decode", "repair_decode")
_MOST_STEPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWork:
    """What one strategy asks of one role's engines, on idle ones.

    Parameters
    ----------
    decode_s, requests : arrays (n_trajectories,)
        Engine seconds of decode, and requests, of each trajectory.
    prefill_s : float
        Mean engine seconds of prefill per trajectory.
    prefill_square_s2 : float
        Mean square of a request's prefill seconds.
    service_s, service_variance_s2 : float
        Moments of a request's engine seconds.
    batches, step_s : arrays
        Batch sizes, rising from 1 to the most that fits, and seconds of a decode step of each.
    """

    decode_s: Array
    requests: Array
    prefill_s: float
    prefill_square_s2: float
    service_s: float
    service_variance_s2: float
    batches: Array
    step_s: Array

    @property
    def b_max(self) -> float:
        """Most sequences that decode at once."""
        return float(self.batches[-1])

    def phi(self, n: float) -> float:
        """Time of a decode step of n sequences relative to one of a single sequence."""
        return float(np.interp(n, self.batches, self.step_s) / self.step_s[0])

    def capacity_s(self) -> float:
        """Engine seconds per trajectory at full batches: a replica serves at most one trajectory in that time."""
        return self.prefill_s + float(self.decode_s.mean()) * self.phi(self.b_max) / self.b_max

    def added_s(self, rate_per_s: float, replicas: int) -> Array:
        """Seconds that load adds to each trajectory; infinite where the pool cannot keep up."""
        rate = rate_per_s / replicas
        if rate * self.capacity_s() >= 1:
            return np.full_like(self.decode_s, math.inf)
        if self.b_max == 1:
            return self.requests * self._slot_wait_s(rate_per_s, replicas, self.service_s)
        rho = rate * self.prefill_s
        decode_s = float(self.decode_s.mean())
        b = 0.0
        for _ in range(_MOST_STEPS):
            before, b = b, min(self.b_max, rate * decode_s * self.phi(1 + b) / (1 - rho))
            if b - before < 1e-9 * b:
                break
        stretch = self.phi(1 + b) / (1 - rho)
        n = float(self.requests.mean())
        prompts_s = rate * n * self.prefill_square_s2 / (2 * (1 - rho))
        steps_s = 1.5 * min(1.0, b) * stretch * float(self.step_s[0])
        held_s = self.service_s + decode_s / n * (stretch - 1)
        slots_s = self._slot_wait_s(rate_per_s, replicas, held_s)
        return self.decode_s * (stretch - 1) + self.requests * (prompts_s + steps_s + slots_s)

    def _slot_wait_s(self, rate_per_s: float, replicas: int, held_s: float) -> float:
        places = replicas * int(self.b_max)
        arrivals = rate_per_s * float(self.requests.mean())
        if arrivals * held_s >= places:
            return math.inf
        if places > arrivals * held_s + 10 * math.sqrt(arrivals * held_s) + 10:
            return 0.0  # ten standard deviations of free places
        variance = self.service_variance_s2 * (held_s / self.service_s) ** 2
        return mgc_wait_s(arrivals, held_s, variance, places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """One strategy on idle engines: seconds of each trajectory, its work per pool, mean energy and API bill.

    `time_s` is of those that finish; `lost` holds infinities for the others.
    """

    time_s: Array
    lost: Array
    pools: Mapping[Role, PoolWork]
    energy_j: float
    api_usd: float

    def score(self, slos: tuple[Slo, ...], rate_per_s: float, replicas: Mapping[Role, int]) -> float:
        """Largest predicted statistic over its limit: the fleet should meet the objectives where it is <= 1."""
        added = sum((p.added_s(rate_per_s, replicas[r]) for r, p in self.pools.items()), np.zeros_like(self.time_s))
        values = {"trajectory_s": self.time_s + added, "queue_s": added}
        return max(slo.of(np.append(values[slo.metric], self.lost)) / slo.limit_s for slo in slos)


def lost(run: RunResult) -> Array:
    """An infinite time for each counted trajectory that failed or was rejected: it meets no objective."""
    frame = run.trajectories
    return np.full(int((frame["counted"] & frame["status"].isin(("failed", "rejected"))).sum()), math.inf)


def alone(case: Case, pricing: Pricing, run: RunResult) -> Alone:
    """Moments of a strategy from a run of one agent at a time.

    Raises
    ------
    InputError
        No trajectory of the run finished.
    """
    done = run.counted()
    if not len(done):
        raise InputError(f"{run.meta['strategy']}: no trajectory finishes even on idle engines")
    phases = run.phases[run.phases["trajectory"].isin(done["trajectory"])]
    pools = {}
    for role, site in case.sites.items():
        mine = phases[phases["lane"] == role.value]
        if isinstance(site.server, Api) or not (mine["busy_s"] > 0).any():
            continue
        pools[role] = _pool(case, pricing, role, mine, done["trajectory"])
    return Alone(
        time_s=done["time_s"].to_numpy(dtype=float),
        lost=lost(run),
        pools=pools,
        energy_j=float(done["energy_j"].mean()),
        api_usd=float(done["api_usd"].mean()),
    )


def _pool(case: Case, pricing: Pricing, role: Role, rows: Any, trajectories: Any) -> PoolWork:
    drafts = rows[(rows["kind"] == "draft") & rows["phase"].isin((*_PREFILL, *_DECODE))]
    drafted = float(drafts["busy_s"].sum())
    share = float(drafts.loc[drafts["phase"].isin(_DECODE), "busy_s"].sum()) / drafted if drafted > 0 else 1.0
    part = {**dict.fromkeys(_DECODE, 1.0), "wasted_draft": share}
    decode = np.array([part.get(phase, 0.0) for phase in rows["phase"]])
    busy_s = rows["busy_s"].to_numpy(dtype=float)
    each = rows.assign(decode_s=busy_s * decode, prefill_s=busy_s * (1 - decode))
    requests = each.groupby(["trajectory", "round", "step", "kind"])[["decode_s", "prefill_s"]].sum()
    by_task = requests.groupby("trajectory").agg(decode_s=("decode_s", "sum"), n=("decode_s", "size"))
    by_task = by_task.reindex(trajectories, fill_value=0)
    prefill = requests["prefill_s"].to_numpy(dtype=float)
    service = (requests["prefill_s"] + requests["decode_s"]).to_numpy(dtype=float)
    batches, step_s = _steps(case, pricing, role)
    return PoolWork(
        decode_s=by_task["decode_s"].to_numpy(dtype=float),
        requests=by_task["n"].to_numpy(dtype=float),
        prefill_s=float(prefill.sum()) / len(trajectories),
        prefill_square_s2=float((prefill**2).mean()),
        service_s=float(service.mean()),
        service_variance_s2=float(service.var()),
        batches=batches,
        step_s=step_s,
    )


def _steps(case: Case, pricing: Pricing, role: Role) -> tuple[Array, Array]:
    """Decode step times at the workload's mean context, from one sequence to as many as fit."""
    model = pricing.models[role]
    contexts = [c for task in case.tasks for c in task.contexts[role][1:]]
    context = max(1, round(sum(contexts) / len(contexts)))
    most = max(1, min(model.max_seqs, model.kv_tokens // context))
    sizes = sorted({*(2**k for k in range(most.bit_length())), most})
    seconds = [float(model.decode_run_s([context] * n, 1)[0]) for n in sizes]
    return np.array(sizes, dtype=float), np.array(seconds)
