"""Half widths of the 90 % bands, on a log scale, by kind of row, dtype and what is known of the device.

`data/bands.toml`: `[KIND]` with `default`, and by dtype (`bf16`, `fp8`); `tp8`, `moe` and `unseen_device` add in
quadrature. Widths are 90 % quantiles of |log(predicted / measured)| over rows left out of the fit.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files

from validate.accuracy.kinds import Subject

Band = Callable[[Subject, bool], float]


@cache
def bundled_bands() -> Mapping[str, Mapping[str, float]]:
    """The widths of `data/bands.toml`."""
    raw = tomllib.loads((files("validate.accuracy") / "data" / "bands.toml").read_text(encoding="utf-8"))
    return {kind: {k: float(v) for k, v in table.items() if k != "source"} for kind, table in raw.items()}


def half_width(subject: Subject, known_device: bool) -> float:
    """Half log width of the 90 % band of one row.

    Most special first: `[KIND."GENERATION"]` is not kept; a kind's dtype, its `default`; then in quadrature what makes
    a row harder: `tp8`, `moe`, an `unseen_device`.
    """
    table = bundled_bands()[subject.kind]
    own = table.get(subject.dtype, table["default"])
    square = own**2
    if subject.n_devices >= 8:
        square += table.get("tp8", 0.0) ** 2
    if subject.family == "moe":
        square += table.get("moe", 0.0) ** 2
    if not known_device:
        square += table.get("unseen_device", 0.0) ** 2
    return float(square**0.5)
