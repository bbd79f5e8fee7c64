"""Half widths of the 90 % bands, on a log scale, by kind of row, dtype and what is known of the device.

`data/bands.toml`, and on top of it the `[bands]` of the device fit and of `data/fitted*.toml`: per kind a `default`,
widths by dtype (`bf16`, `fp8`), and what makes a row harder, in quadrature: `tp8`, `moe`, `unseen_device`,
`DTYPE/DEVICE`. Widths are 90 % quantiles of |log(predicted / measured)| over rows left out of a fit. A kind is looked
up as `KIND/GENERATION/DEVICE`, `KIND/GENERATION`, `KIND/CLASS` (a device class outside the data centre, or any that
runs llama.cpp; with `, several` for several devices), `KIND/edge` (outside the data centre) or `KIND/measured` (whole
steps with host time), and `KIND`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files

from hwprofiles.calibration import BUNDLED as DEVICE_FIT
from validate.accuracy.kinds import Subject

Band = Callable[[Subject, bool], float]
_FITTED = re.compile(r"fitted\w*\.toml")
_DATA_CENTRE = ("dc_gpu", "dc_accelerator", "tpu")
_NO_HOST = ("silicon-database", "micro-benchmark", "vidur")


@cache
def bundled_bands() -> Mapping[str, Mapping[str, float]]:
    """The widths of the bundled files."""
    folder = files("validate.accuracy") / "data"
    tables = tomllib.loads((folder / "bands.toml").read_text(encoding="utf-8"))
    own_files = sorted((e for e in folder.iterdir() if _FITTED.fullmatch(e.name)), key=lambda entry: entry.name)
    for entry in (DEVICE_FIT, *own_files):
        for kind, own in tomllib.loads(entry.read_text(encoding="utf-8")).get("bands", {}).items():
            tables[kind] = {**tables.get(kind, {}), **own}
    return {kind: {k: float(v) for k, v in table.items() if k != "source"} for kind, table in tables.items()}


def group(subject: Subject) -> str:
    """`edge`, `measured`, or an empty text for operators and device-only steps of the data centre."""
    if subject.device.device_class not in _DATA_CENTRE:
        return "edge"
    return "" if subject.generation in _NO_HOST else "measured"


def place(subject: Subject) -> str:
    """Device class of a step outside the data centre or of llama.cpp, `, several` on several devices; else empty."""
    if group(subject) != "edge" and subject.library != "llama.cpp":
        return ""
    return subject.device.device_class + (", several" if subject.n_devices > 1 else "")


def half_width(subject: Subject, known_device: bool) -> float:
    """Half log width of the 90 % band of one row.

    Parameters
    ----------
    known_device : bool
        Whether the device has fitted factors of its own.
    """
    tables = bundled_bands()
    kinds = (subject.kind, subject.kind.removesuffix("_tail"))
    engine = subject.generation
    places = (f"{engine}/{subject.device.name}", engine, place(subject), group(subject))
    names = (f"{kind}/{where}" if where else kind for kind in kinds for where in (*(p for p in places if p), ""))
    table = next(tables[name] for name in names if name in tables)
    own = table.get(subject.dtype, table.get("default", 0.3))
    square = own**2 + table.get(f"{subject.dtype}/{subject.device.name}", 0.0) ** 2
    if subject.n_devices >= 8:
        square += table.get("tp8", 0.0) ** 2
    if subject.family == "moe":
        square += table.get("moe", 0.0) ** 2
    if not known_device:
        square += table.get("unseen_device", tables.get(subject.kind, {}).get("unseen_device", 0.0)) ** 2
    return float(square**0.5)
