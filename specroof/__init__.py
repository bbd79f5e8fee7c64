"""Would it pay to let a small model draft an agent's steps and a strong one only review them: the library in one name.

    import specroof as sr

    answer = sr.plan("retail-h200")
    print(answer.verdict("time"))

Everything is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costmodel.deployment import deploy
    from costmodel.models import model
    from dashboards import figures
    from hwprofiles.load import hardware
    from simulator.build import acceptance
    from simulator.build import build_scenario as Scenario
    from simulator.build import named_prior as prior
    from simulator.plan import plan
    from simulator.results import load
    from simulator.run import simulate
    from simulator.size import size
    from simulator.step_cost import step_cost
    from simulator.sweep import sweep
    from simulator.traces import read_trace
    from simulator.workloads import workload

__all__ = [
    "Scenario",
    "acceptance",
    "deploy",
    "figures",
    "hardware",
    "load",
    "model",
    "plan",
    "prior",
    "read_trace",
    "simulate",
    "size",
    "step_cost",
    "sweep",
    "workload",
]

_HOMES = {
    "Scenario": ("simulator.build", "build_scenario"),
    "acceptance": ("simulator.build", "acceptance"),
    "deploy": ("costmodel.deployment", "deploy"),
    "figures": ("dashboards.figures", None),
    "hardware": ("hwprofiles.load", "hardware"),
    "load": ("simulator.results", "load"),
    "model": ("costmodel.models", "model"),
    "plan": ("simulator.plan", "plan"),
    "prior": ("simulator.build", "named_prior"),
    "read_trace": ("simulator.traces", "read_trace"),
    "simulate": ("simulator.run", "simulate"),
    "size": ("simulator.size", "size"),
    "step_cost": ("simulator.step_cost", "step_cost"),
    "sweep": ("simulator.sweep", "sweep"),
    "workload": ("simulator.workloads", "workload"),
}
"""Where each name lives: module, and attribute of it (None: the module itself)."""


def __getattr__(name: str) -> Any:
    """The object behind a public name, loaded on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from specroof.packages import check_packages

    check_packages()
    home, attribute = _HOMES[name]
    module = importlib.import_module(home)
    found = module if attribute is None else getattr(module, attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Public names, loaded or not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
