"""Names the measurement that a factor wants: which kind of point would bring its uncertainty down."""

from __future__ import annotations

import numpy as np

from costmodel.deployment import Deployment
from validate.calibrate import IDENTIFIED, Fitted
from validate.calibrate_model import Pricer
from validate.design import SIGMA, Limits, candidates, slopes
from validate.fit_layout import Array

_KINDS = ("prefill", "warm", "decode")
_WORDS = {
    "prefill": "prefills of uncached prompts",
    "warm": "prefills behind a cached prefix",
    "decode": "decode steps",
}


def missing(dep: Deployment, fitted: Fitted, limits: Limits) -> dict[str, str]:
    """For every factor that is not identified, what to measure, or which factor no step time tells it apart from.

    Parameters
    ----------
    limits : Limits
        Of the server that would be measured.
    """
    points = candidates(limits)
    covariance = fitted.covariance
    after, single = {}, np.zeros(0)
    if points:
        grad = slopes(Pricer(dep, points), fitted.prior, fitted.z)[1]
        groups = {kind: [i for i, p in enumerate(points) if p.kind == kind] for kind in _KINDS}
        after = {kind: _left(fitted, covariance, grad[at]) for kind, at in groups.items() if at}
        after["all"] = _left(fitted, covariance, grad)
        single = grad**2 * np.diag(covariance)
    out = {}
    for i, (name, estimate) in enumerate(fitted.estimates().items()):
        if estimate.identified:
            continue
        kinds = [k for k in after if k != "all"]
        best = min(kinds, key=lambda k: after[k][i]) if kinds else None
        if best is not None and after[best][i] <= IDENTIFIED:
            at = max(groups[best], key=lambda j: single[j, i])
            out[name] = f"missing: {_WORDS[best]}, such as a {points[at].label}"
        elif after and after["all"][i] <= IDENTIFIED:
            out[name] = "missing: " + " and ".join(_WORDS[k] for k in kinds)
        else:
            out[name] = _confused(fitted, covariance, i)
    return out


def _left(fitted: Fitted, covariance: Array, grad: Array) -> Array:
    """Share of each factor's prior deviation that is left once points with these slopes are measured as well."""
    information = np.linalg.inv(covariance) + grad.T @ grad / SIGMA**2
    share: Array = np.sqrt(np.diag(np.linalg.inv(information)) / np.diag(fitted.prior.covariance))
    return share


def _confused(fitted: Fitted, covariance: Array, i: int) -> str:
    sd = np.sqrt(np.diag(covariance))
    against = np.abs(covariance[i] / (sd[i] * sd))
    against[i] = 0.0
    j = int(np.argmax(against)) if len(against) > 1 else i
    if against[j] < 0.3:
        return "too small a part of any step to be seen in step times; a benchmark of the operator alone would tell"
    return f"step times do not tell it apart from {fitted.prior.names[j]}; a benchmark of the operator alone would"
