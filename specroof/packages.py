"""Our own top-level packages: where they are, and whether something else hides them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

PACKAGES = ("hwprofiles", "costmodel", "simulator", "validate", "dashboards", "specroof")


def home() -> Path:
    """The folder that holds the packages of this installation."""
    return Path(__file__).resolve().parent.parent


def foreign(package: str) -> str | None:
    """Where `package` would be imported from, if that is not this installation; None when all is well.

    Parameters
    ----------
    package : str
        One of `PACKAGES`.
    """
    module = sys.modules.get(package)
    spec = module.__spec__ if module is not None else importlib.util.find_spec(package)
    if spec is None:
        return "nowhere (not found)"
    origin = spec.origin or next(iter(spec.submodule_search_locations or []), "nowhere")
    return None if Path(origin).resolve().is_relative_to(home() / package) else origin


def complaint(package: str, origin: str) -> str:
    """What to tell somebody whose `package` comes from `origin`, and what to do about it."""
    here = Path(origin).resolve().is_relative_to(Path.cwd().resolve())
    remedy = "rename that file or start from another folder" if here else "reinstall specroof"
    return f"the package {package!r} is imported from {origin} instead of {home() / package}: {remedy}"


def check_packages() -> None:
    """Raise `ImportError` when a file of the user (`simulator.py` in the working folder) hides a package of ours."""
    for package in PACKAGES:
        origin = foreign(package)
        if origin is not None:
            raise ImportError(complaint(package, origin), name=package)
