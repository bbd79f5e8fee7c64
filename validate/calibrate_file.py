"""The calibration file that `specroof calibrate` writes: only what differs from the bundled fit, which it extends.

`[factors."DEVICE"]` and `[engines."ENGINE"]` hold values with 90 % intervals, `[server]` what was measured, `[points]`
the times behind it. Where an engine was measured on several devices, `[engines."ENGINE".on."DEVICE"]` has each one's
host times, `[correlations."DEVICE"]` how its factors hang together. Read by `hwprofiles.calibration`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.deployment import Deployment
from costmodel.engines import ENGINE_FACTORS
from hwprofiles.calibration import correlations, engine_factors, measured_factors
from hwprofiles.errors import InputError
from validate.calibrate import Fitted
from validate.calibrate_probe import ServerFacts


def document(
    dep: Deployment, fitted: Fitted, *, command: str, date: str, facts: ServerFacts | None, onto: Path | None = None
) -> dict[str, Any]:
    """The file as a mapping.

    Parameters
    ----------
    command, date : str
        How it came about; `YYYY-MM-DD`.
    onto : Path or None
        An earlier calibration whose other devices are kept, with their host times.

    Raises
    ------
    ProfileError
        `onto` is no calibration file.
    """
    before = _before(onto)
    own = {name: _rounded(asdict(e)) for name, e in fitted.estimates().items()}
    source = f"measured {date}, {fitted.n} points"
    device = {name: e for name, e in own.items() if name not in ENGINE_FACTORS}
    engine = {name: e for name, e in own.items() if name in ENGINE_FACTORS}
    name = dep.hardware.name
    out: dict[str, Any] = {"extends": before.get("extends", "bundled")}
    out["provenance"] = {"command": command, "date": date, "n": fitted.n, "misfit": round(fitted.misfit, 3)}
    out["server"] = {"device": name, "deployment": dep.label, **_told(facts)}
    kept = {k: v for k, v in before.get("factors", {}).items() if k.split("/")[0] != name}
    out["factors"] = kept | ({name: {"source": source, **device}} if device else {})
    others = {k: v for k, v in before.get("correlations", {}).items() if k != name}
    if len(own) > 1:
        out["correlations"] = others | {name: _correlations(fitted)}
    engines = dict(before.get("engines", {}))
    if engine:
        engines[dep.engine.name] = _engine(before, dep, {"source": source, **engine})
    if engines:
        out["engines"] = engines
    out["points"] = {
        r["point"]: [float(f"{r[k]:.6g}") for k in ("measured_s", "predicted_s")] for r in fitted.residuals()
    }
    return out


def _correlations(fitted: Fitted) -> dict[str, Any]:
    """How the factors hang together in the draws of the fit, on their scales: names and the lower triangle."""
    found = np.atleast_2d(np.corrcoef(fitted.draws.T))
    lower = [[float(f"{v:.4g}") for v in row[: i + 1]] for i, row in enumerate(found)]
    return {"names": list(fitted.prior.names), "lower": lower}


def shared(dep: Deployment, onto: Path | None) -> str | None:
    """What to tell somebody whose earlier calibration already has this device: one set of factors per device."""
    own = _before(onto).get("factors", {})
    return (
        f"{onto} has factors of {dep.hardware.name} already; a device has one set, so those measured now replace them"
        if any(key.split("/")[0] == dep.hardware.name for key in own)
        else None
    )


def _before(onto: Path | None) -> dict[str, Any]:
    """An earlier calibration file, read strictly."""
    if onto is None:
        return {}
    found = measured_factors(onto)
    document = tomllib.loads(onto.read_text(encoding="utf-8"))
    if document.get("extends") != "bundled":
        raise InputError(
            f'{onto} stands alone, and what is measured now is laid over the bundled fit; add extends = "bundled" to it'
        )
    for name in ("engines", "correlations", "server"):
        if not isinstance(document.get(name, {}), dict):
            raise InputError(f"{onto}: {name} must be a table, got {document[name]!r:.40}")
    for name in document.get("engines", {}):
        engine_factors(name, ENGINE_FACTORS, onto, "")
    for device in found:
        correlations(onto, device)
    return document


def check_onto(onto: Path | None) -> None:
    """Read an earlier calibration before anything is measured; raises as `document`."""
    _before(onto)


def _engine(before: Mapping[str, Any], dep: Deployment, times: Mapping[str, Any]) -> dict[str, Any]:
    """The table of an engine: the times measured now, and each device's own where there are several."""
    name, earlier = dep.hardware.name, before.get("engines", {}).get(dep.engine.name, {})
    on = dict(earlier.get("on", {}))
    devices = {key.split("/")[0] for key in before.get("factors", {}) if not key.startswith("class:")}
    first = before.get("server", {}).get("device") or (devices.pop() if len(devices) == 1 else None)
    if not on and earlier and first is None:
        raise InputError(
            f"the earlier calibration does not say on which device it timed {dep.engine.name}; put those times "
            f'under [engines."{dep.engine.name}".on."DEVICE"]'
        )
    if not on and earlier and first is not None:
        on = {first: {key: value for key, value in earlier.items() if key != "on"}}
    on[name] = dict(times)
    return {**times, **({"on": on} if len(on) > 1 else {})}


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file; raises `InputError` where that is not possible."""
    import tomli_w

    try:
        path.write_text(tomli_w.dumps(dict(content)), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be written: {error.strerror or error}") from None


def _rounded(estimate: Mapping[str, float]) -> dict[str, float]:
    return {key: float(f"{estimate[key]:.6g}") for key in ("value", "low", "high")}


def _told(facts: ServerFacts | None) -> dict[str, Any]:
    if facts is None:
        return {}
    told = {
        "model": facts.model,
        "engine_version": facts.version,
        "block_tokens": facts.block_tokens,
        "kv_blocks": facts.kv_blocks,
        "max_model_tokens": facts.max_model_tokens,
    }
    return {key: value for key, value in told.items() if value is not None}
