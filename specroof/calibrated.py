"""The option `--calibration`, which says when the file it names is old or of another engine version."""

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


def check_version(path: Path | None, url: str) -> None:
    """Say on stderr that a calibration was measured on another engine version than the server behind `url` runs."""
    if path is None or not url.startswith("http"):
        return
    from hwprofiles.calibration import measured_version
    from validate.calibrate_targets import server_version

    then = measured_version(path)
    now = server_version(url) if then else None
    if then and now and then != now:
        warn(f"{path} was measured on engine version {then}; {url} runs {now}, so measure again")
