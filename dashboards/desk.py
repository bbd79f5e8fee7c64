"""What every page works with: the shelf, the background jobs, and plans at a glance."""

from __future__ import annotations

import contextlib
import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock, Timer
from typing import Any

from dashboards.jobs import Jobs
from dashboards.knobs import SLIDERS, changed, own_values
from dashboards.shelf import Shelf
from hwprofiles.errors import InputError
from simulator.glance import Glancer
from simulator.scenario import Scenario

MOST_GLANCES = 128
_PAGE_LOADS_S, _YIELD_S = 2.0, 0.02


class Desk:
    """One per app.

    Parameters
    ----------
    shelf : Shelf
        What may be looked at.
    jobs : Jobs
        Where long questions go.
    """

    def __init__(self, shelf: Shelf, jobs: Jobs) -> None:
        self.shelf, self.jobs = shelf, jobs
        self._glancer = Glancer()
        self._glances: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._lock = Lock()
        self._own: dict[str, dict[str, float]] = {}
        self._warm: set[str] | None = None

    def warm(self) -> None:
        """Glance at the first scenario, so that whoever opens the app need not wait for it; ready others when seen."""
        self._warm = set()
        with contextlib.suppress(InputError):  # the page itself says what is wrong
            self.own_values(self.shelf.first)
            self.glance(self.shelf.scenario(self.shelf.first))

    def ready_knobs(self, key: str) -> None:
        """After `warm`: soon turn each slider of a scenario by a step, once; the first turn of a knob takes longest."""
        if self._warm is None or key in self._warm:
            return
        self._warm.add(key)
        later = Timer(_PAGE_LOADS_S, self._turn_all, args=(self.shelf.scenario(key), self.own_values(key)))
        later.daemon = True
        later.start()

    def _turn_all(self, scenario: Scenario, own: Mapping[str, float]) -> None:
        for knob, at in own.items():
            time.sleep(_YIELD_S)  # whoever waits for the lock goes first
            low, high, step = SLIDERS[knob][2]
            with contextlib.suppress(InputError):
                self.glance(changed(scenario, {**own, knob: at + step if at + step <= high else low}, own))

    def own_values(self, key: str) -> Mapping[str, float]:
        """Where a scenario of the shelf has the sliders of Explore; raises `InputError`."""
        if key not in self._own:
            self._own[key] = own_values(self.shelf.scenario(key))
        return self._own[key]

    def glance(self, scenario: Scenario) -> Mapping[str, Any]:
        """The document of a plan at a glance; the latest are kept.

        Raises
        ------
        InputError
            A scenario that is wrong.
        """
        from simulator.scenario_file import to_document

        key = json.dumps(to_document(scenario))
        found = self._glances.get(key)
        if found is not None:
            return found
        with self._lock:
            if key not in self._glances:
                self._glances[key] = self._glancer.glance(scenario).document()
                while len(self._glances) > MOST_GLANCES:
                    self._glances.popitem(last=False)
            return self._glances[key]
