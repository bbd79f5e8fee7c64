"""The uncertain inputs of a case, and quasi-Monte-Carlo points over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from costmodel.api import Api
from costmodel.deployment import Deployment
from hwprofiles.efficiency import Correlations, Factor
from hwprofiles.hardware import TIERS
from simulator.case import Case
from simulator.playing import match_of
from simulator.scenario_goals import HAZARDS
from simulator.surroundings import round_trip
from simulator.uncertain import Band, Uncertain, sample_positive, sample_share

Array = np.ndarray[Any, np.dtype[np.float64]]

STRUCTURAL: tuple[str, ...] = ("verdict_tokens", "verbosity", "thinking_tokens")
"""Inputs that change token counts, hence the tape itself."""

QUALITY = HAZARDS
"""Inputs behind success that every case has."""

_SHARES = frozenset({"acceptance", "match", *QUALITY})
_BOUNDED_FACTORS = ("_compute", "_compute_8bit", "_memory", "_bandwidth", "_share", "_correlation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input of a prediction, with its band, tier and source; `scale` is how its band is spread.

    `joint` are the correlations of the calibration it comes from, where it goes by the name `joint_name`.
    """

    name: str
    band: Band
    scale: Literal["positive", "share"]
    joint: Correlations | None = None
    joint_name: str = ""


def inputs(case: Case) -> tuple[Input, ...]:
    """Every input that carries a tier: factors of devices, engines and APIs, the link, behaviour and hazards."""
    found: dict[str, Input] = {}
    for i in _inputs(case):  # roles share a name; the one whose calibration knows of correlations speaks for both
        if i.name not in found or found[i.name].joint is None:
            found[i.name] = i
    return tuple(found.values())


def _inputs(case: Case) -> Iterator[Input]:
    s = case.scenario
    yield Input(name="acceptance", band=case.acceptance, scale="share")
    yield Input(name="verdict_tokens", band=s.protocol.verdict_tokens, scale="positive")
    if "step_speculation" in s.strategies:
        yield Input(name="match", band=match_of(s), scale="share")
    if s.workload.verbosity is not None:
        yield Input(name="verbosity", band=s.workload.verbosity, scale="positive")
    if s.workload.thinking_tokens is not None:
        yield Input(name="thinking_tokens", band=s.workload.thinking_tokens, scale="positive")
    for name in QUALITY:
        yield Input(name=name, band=getattr(s.quality, name), scale="share")
    for name in ("recovery_weak", "recovery_strong"):
        own = getattr(s.quality, name)
        if own is not None:
            yield Input(name=name, band=own, scale="share")
    if s.link is not None:
        yield Input(name="link.rtt_s", band=round_trip(s.link), scale="positive")
    for role, site in case.sites.items():
        if isinstance(site.server, Api):
            yield _factor(f"{role}.request_s", site.server.request_s)
            yield _factor(f"{role}.output_token_s", site.server.output_token_s)
            if site.server.input_token_s is not None:
                yield _factor(f"{role}.input_token_s", site.server.input_token_s)
        else:
            yield from deployment_inputs(site.server)


def deployment_inputs(dep: Deployment) -> Iterator[Input]:
    """Factor inputs of one deployment: its device's and its engine's."""
    joint = dep.efficiency.correlations
    for name, factor in dep.efficiency.factors.items():
        yield replace(_factor(f"{dep.hardware.name}.{name}", factor), joint=joint, joint_name=name)
    for name, factor in dep.engine.factors.items():
        yield replace(_factor(f"{dep.engine.label}.{name}", factor), joint=joint, joint_name=name)


def _factor(name: str, factor: Factor) -> Input:
    band = Uncertain(value=factor.value, low=factor.low, high=factor.high, tier=factor.tier, source=factor.source)
    share = name.endswith(_BOUNDED_FACTORS) and factor.high <= 1.0
    return Input(name=name, band=band, scale="share" if share else "positive")


def draw_samples(given: tuple[Input, ...], n: int, seed: int) -> Mapping[str, Array]:
    """Scrambled Sobol points over all uncertain inputs: name -> array (n,), exact inputs left out.

    `n` is raised to a power of two, where Sobol points are balanced. Inputs are independent but for factors whose
    calibration says how they hang together (a Gaussian copula); roles on the same kind of device share its factors.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc

    uncertain = [i for i in given if not i.band.is_exact]
    size = 1 << max(4, (n - 1).bit_length())
    points = qmc.Sobol(d=max(1, len(uncertain)), scramble=True, rng=np.random.default_rng(seed)).random(size)
    z = ndtri(np.clip(points, 1e-9, 1 - 1e-9))
    _correlate(z, uncertain)
    out = {}
    for column, i in enumerate(uncertain):
        spread = sample_share if i.scale == "share" else sample_positive
        out[i.name] = spread(z[:, column], i.band.value, i.band.low, i.band.high)
        if i.name.endswith(("roof_exponent", "roof_exponent_8bit")):
            out[i.name] = np.maximum(1.0, out[i.name])
    return out


def _correlate(z: Array, columns: Sequence[Input]) -> None:
    """Mix independent normal columns in place, so that those of one calibration have its correlations."""
    for joint in dict.fromkeys(i.joint for i in columns if i.joint is not None):
        own = [
            (c, joint.names.index(i.joint_name))
            for c, i in enumerate(columns)
            if i.joint == joint and i.joint_name in joint.names
        ]
        if not own:
            continue
        at, rows = (list(part) for part in zip(*own, strict=True))
        values, vectors = np.linalg.eigh(np.array(joint.matrix)[np.ix_(rows, rows)])
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        z[:, at] = z[:, at] @ (root / np.linalg.norm(root, axis=0))


def size_of(samples: Mapping[str, Array]) -> int:
    """Number of points in a draw (1 when nothing is uncertain)."""
    return len(next(iter(samples.values()))) if samples else 1


def sampled(samples: Mapping[str, Array], name: str, value: float) -> Array:
    """An input's samples, or its exact value repeated."""
    return samples[name] if name in samples else np.full(size_of(samples), value)


def tiers_of(case: Case) -> tuple[str, ...]:
    """Tiers of the inputs behind a case's predictions, firmest first."""
    held = {i.band.tier for i in inputs(case)} | {
        "datasheet",
        "measured" if case.workload.kind == "trace" else "fitted",
    }
    return tuple(t for t in TIERS if t in held)
