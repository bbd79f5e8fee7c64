"""The calibration file that `specroof calibrate` writes: only what differs from the bundled fit, which it extends.

`[factors."DEVICE"]` and `[engines."ENGINE"]` hold values with 90 % intervals, `[server]` what was measured, `[points]`
the times behind it. Read by `hwprofiles.calibration`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from costmodel.deployment import Deployment
from costmodel.engines import ENGINE_FACTORS
from hwprofiles.calibration import measured_factors
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
        An earlier calibration whose other devices are kept.

    Raises
    ------
    ProfileError
        `onto` is no calibration file.
    """
    measured_factors(onto) if onto else None
    before = tomllib.loads(onto.read_text(encoding="utf-8")) if onto else {}
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
    engines = dict(before.get("engines", {}))
    if engine:
        engines[dep.engine.name] = {"source": source, **engine}
    if engines:
        out["engines"] = engines
    out["points"] = {
        r["point"]: [float(f"{r[k]:.6g}") for k in ("measured_s", "predicted_s")] for r in fitted.residuals()
    }
    return out


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
