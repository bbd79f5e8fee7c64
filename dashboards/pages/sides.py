"""Knobs of the weak and the strong side: model, device, number of devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import html

from costmodel.models import model_names
from dashboards import parts, query
from hwprofiles.load import hardware_names
from simulator.scenario import Scenario

_AS_IS = "as-is"


def side(page: str, role: str, scenario: Scenario, asked: Mapping[str, str]) -> list[Any]:
    """The knobs of a role, where the URL says, else as the scenario has them."""
    given = getattr(scenario, role)
    if given.api is not None:
        return [html.P(f"{role} model: {given.api} (priced API)", className="soft")]
    found = []
    for key, known in (("model", list(model_names())), ("hardware", hardware_names())):
        words = f"{role.capitalize()} {'model' if key == 'model' else 'hardware'}"
        options = [(_AS_IS, f"as it is: {getattr(given, key)}"), *((n, n) for n in known)]
        value = query.choice(asked, f"{role}_{key}", known, _AS_IS)
        found.append(parts.select(page, f"{role}_{key}", words, options, value))
    n = query.number(asked, f"{role}_n", 1, 64, given.n_devices)
    found.append(parts.number(page, f"{role}_n", f"{role.capitalize()} devices", (1, 64, 1), int(n), "per replica"))
    return found
