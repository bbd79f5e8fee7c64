"""What every page works with: the shelf, the background jobs, and plans at a glance."""

from __future__ import annotations

import contextlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any

from dashboards.jobs import Jobs
from dashboards.shelf import Shelf
from hwprofiles.errors import InputError
from simulator.glance import Glancer
from simulator.scenario import Scenario

MOST_GLANCES = 128


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

    def warm(self) -> None:
        """Glance at the first scenario, so that whoever opens the app need not wait for it."""
        with contextlib.suppress(InputError):  # the page itself says what is wrong
            self.glance(self.shelf.scenario(self.shelf.first))

    def glance(self, scenario: Scenario) -> Mapping[str, Any]:
        """The document of a plan at a glance; the latest are kept.

        Raises
        ------
        InputError
            A scenario that is wrong.
        """
        from simulator.scenario_file import to_document

        key = json.dumps(to_document(scenario))
        with self._lock:
            if key not in self._glances:
                self._glances[key] = self._glancer.glance(scenario).document()
                while len(self._glances) > MOST_GLANCES:
                    self._glances.popitem(last=False)
            return self._glances[key]
