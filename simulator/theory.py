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
