"""Closed forms of queueing theory: what the simulator must reproduce, and a first guess of what load costs.

Every function gives the mean wait in the queue, service excluded, of a stable first-come first-served queue with
Poisson arrivals. Source: Kleinrock, Queueing Systems, vol. 1 (1975), chapters 3 and 5.
"""

from __future__ import annotations

import math

from hwprofiles.errors import InputError


def mm1_wait_s(arrival_rate_per_s: float, service_s: float) -> float:
    """M/M/1: `W = rho s / (1 - rho)`, rho = rate * s, exponential service of mean `service_s`."""
    return mg1_wait_s(arrival_rate_per_s, service_s, service_s**2)


def md1_wait_s(arrival_rate_per_s: float, service_s: float) -> float:
    """M/D/1: `W = rho s / (2 (1 - rho))`, rho = rate * s, constant service of `service_s`."""
    return mg1_wait_s(arrival_rate_per_s, service_s, 0.0)


def mg1_wait_s(arrival_rate_per_s: float, service_s: float, service_variance_s2: float) -> float:
    """M/G/1 (Pollaczek-Khinchine): `W = rate (s^2 + variance) / (2 (1 - rho))`, rho = rate * s.

    Parameters
    ----------
    arrival_rate_per_s : float
        Poisson arrivals.
    service_s, service_variance_s2 : float
        Mean and variance of one service.

    Raises
    ------
    InputError
        When rho >= 1: the queue grows without end and no mean exists.
    """
    rho = _stable_load(arrival_rate_per_s, service_s, 1)
    return arrival_rate_per_s * (service_s**2 + service_variance_s2) / (2 * (1 - rho))


def mmc_wait_s(arrival_rate_per_s: float, service_s: float, n_servers: int) -> float:
    """M/M/c: `W = C(c, a) s / (c - a)`, a = rate * s, with the Erlang C probability of waiting.

    `C = B / (1 - (a/c) (1 - B))`; Erlang B by its recursion `B_k = a B_{k-1} / (k + a B_{k-1})`, `B_0 = 1`.

    Raises
    ------
    InputError
        When a >= c, or c < 1.
    """
    a = _stable_load(arrival_rate_per_s, service_s, n_servers)
    blocked = 1.0
    for k in range(1, n_servers + 1):
        blocked = a * blocked / (k + a * blocked)
    waits = blocked / (1 - a / n_servers * (1 - blocked))
    return waits * service_s / (n_servers - a)


def _stable_load(arrival_rate_per_s: float, service_s: float, n_servers: int) -> float:
    if n_servers < 1:
        raise InputError(f"a queue needs at least one server, got {n_servers}")
    if not (math.isfinite(arrival_rate_per_s) and math.isfinite(service_s)) or min(arrival_rate_per_s, service_s) < 0:
        raise InputError(f"arrival rate and service time must be finite and >= 0: {arrival_rate_per_s}, {service_s}")
    load = arrival_rate_per_s * service_s
    if load >= n_servers:
        raise InputError(f"offered load {load:g} must be below the {n_servers} server(s), or the queue never settles")
    return load


def mdc_wait_s(arrival_rate_per_s: float, service_s: float, n_servers: int) -> float:
    """M/D/c (Cosmetatos): `W = W_MMc / 2 * (1 + (1 - rho) (c - 1) (sqrt(4 + 5 c) - 2) / (16 rho c))`.

    At most the light-traffic limit `W_MMc c / (c + 1)`. Exact for c = 1 and in heavy traffic; within 2 % of Crommelin's
    exact values from rho = 0.7 on, 6 % from 0.5. Source: Cosmetatos, INFOR 13 (1975); Kimura, Operations Research 34
    (1986).
    """
    rho = _stable_load(arrival_rate_per_s, service_s, n_servers) / n_servers
    if rho == 0:
        return 0.0
    light = (1 - rho) * (n_servers - 1) * (math.sqrt(4 + 5 * n_servers) - 2) / (16 * rho * n_servers)
    share = min((1 + light) / 2, n_servers / (n_servers + 1))
    return mmc_wait_s(arrival_rate_per_s, service_s, n_servers) * share


def mgc_wait_s(arrival_rate_per_s: float, service_s: float, service_variance_s2: float, n_servers: int) -> float:
    """M/G/c: `W = (1 + v) / (2 v / W_MMc + (1 - v) / W_MDc)` for v <= 1 (Kimura), `(1 + v) / 2 * W_MMc` above it.

    `v` is the squared coefficient of variation of the service (Allen-Cunneen for v > 1). Exact for c = 1 and M/M/c, and
    what `mdc_wait_s` is for constant service. Source: Kimura, Operations Research 34 (1986).
    """
    waits = mmc_wait_s(arrival_rate_per_s, service_s, n_servers)
    v = service_variance_s2 / service_s**2 if service_s > 0 else 0.0
    if waits == 0 or v >= 1:
        return (1 + v) / 2 * waits
    return (1 + v) / (2 * v / waits + (1 - v) / mdc_wait_s(arrival_rate_per_s, service_s, n_servers))
