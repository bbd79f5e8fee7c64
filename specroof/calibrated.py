"""The option `--calibration`, which says when the file it names is old."""

from __future__ import annotations

from pathlib import Path

from specroof.output import warn


def checked(path: Path | None) -> Path | None:
    """A calibration file as given; what speaks against it goes to stderr."""
    if path is not None:
        from datetime import date

        from hwprofiles.calibration import notes

        for note in notes(path, date.today()):
            warn(note)
    return path
