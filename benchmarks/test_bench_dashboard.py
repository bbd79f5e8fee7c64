"""How fast the dashboard answers in a real Chromium: first paint, a turned knob, and fifty saved runs.

Wall seconds. Each server is a process of its own, started by the command as a user would.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("dash")
sync_api = pytest.importorskip("playwright.sync_api")

from simulator.case import prepare  # noqa: E402
from simulator.replication import replicate  # noqa: E402
from simulator.scenario_file import load_scenario  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

RUNS, STEPS = 50, 1_000_000
VERDICT = "article.verdict"
DRAWN = "() => document.querySelectorAll('.js-plotly-plot .trace').length >= {}"
PLACES = {
    "acceptance": [0.5 + 0.01 * i for i in range(40)],
    "window": list(range(1, 17)),
    "verbosity": [0.3 + 0.05 * i for i in range(60)],
    "verdict_tokens": list(range(2, 100, 3)),
    "rtt_ms": list(range(5, 500, 15)),
}
TURN = """([knob, value]) => new Promise((done) => {
  const slider = [...document.querySelectorAll("input[type=range]")].find((s) => JSON.parse(s.id).knob === knob);
  const figures = [...document.querySelectorAll("#explore-figures .js-plotly-plot")];
  let open = figures.length;
  const from = performance.now();
  const seen = () => { open -= 1; if (!open) done(performance.now() - from); };
  figures.forEach((f) => f.once("plotly_afterplot", seen));
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(slider, value);
  slider.dispatchEvent(new Event("input", {bubbles: true}));
  slider.dispatchEvent(new Event("change", {bubbles: true}));
})"""


@contextlib.contextmanager
def served(*given):
    """The address of a fresh `specroof dashboard`."""
    command = [sys.executable, "-m", "specroof", "dashboard", *given, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as server:
        try:
            yield next(found.group(0) for line in server.stderr if (found := re.search(r"http://\S+/", line)))
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def chromium():
    with sync_api.sync_playwright() as p:
        yield p.chromium


@pytest.fixture
def browser(chromium):
    with chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as found:
        yield found


def test_first_visit(benchmark, chromium):
    """From the address to verdict and figures: a fresh process, a fresh browser and profile each time."""
    left = contextlib.ExitStack()

    def fresh():
        left.close()
        page = left.enter_context(chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])).new_page()
        page.goto("about:blank")
        return (page, left.enter_context(served())), {}

    def visit(page, address):
        page.goto(address)
        page.wait_for_selector(VERDICT)
        benchmark.extra_info.setdefault("verdict_s", []).append(page.evaluate("performance.now()") / 1e3)
        page.wait_for_function(DRAWN.format(2))

    with left:
        benchmark.pedantic(visit, setup=fresh, rounds=5)


@pytest.mark.parametrize("scenario", ["retail-h200", "autonomous-h200"])
def test_knob_to_figures(benchmark, browser, scenario):
    """From the change of a slider until both figures are drawn anew; the knobs in turn, forty turns."""
    turns = itertools.chain.from_iterable(zip(*PLACES.values(), strict=False))
    knobs = itertools.cycle(PLACES)
    with served(scenario) as address:
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        page.goto(address)
        page.wait_for_function(DRAWN.format(2))
        page.wait_for_load_state("networkidle")
        for knob, places in PLACES.items():  # as after a look at each
            page.evaluate(TURN, [knob, str(places[-1])])
        took = []

        def turn(knob, value):
            took.append(page.evaluate(TURN, [knob, str(round(value, 2))]))

        benchmark.pedantic(turn, setup=lambda: ((next(knobs), next(turns)), {}), rounds=40)
        benchmark.extra_info["in_the_page_ms"] = [round(t) for t in took]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Fifty saved runs of a million steps together, with the log of their engines: two simulated, the rest links."""
    first, folder = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("fifty")
    each = STEPS // RUNS
    scenario = load_scenario("speed", ["concurrency=16", "run.seeds=1", f"load.n_trajectories={each // 10}"])
    found = replicate(prepare(scenario), ["strong_only", "spec_agent"], keep_log=True, out=first)
    assert all(len(run.steps) >= each for runs in found.values() for run in runs)
    for copy, run in itertools.product(range(RUNS // 2), sorted(first.iterdir())):
        shutil.copytree(run, folder / f"{copy:02d}-{run.name}", copy_function=os.link)
    return folder


@pytest.mark.parametrize(
    ("path", "traces"),
    [
        ("/compare", 8),
        ("/compare?runs=" + ",".join(map(str, range(12))), 24),
        ("/timeline?run={}&trajectory=1500", 8),
    ],
    ids=["compare", "compare-twelve", "timeline"],
)
def test_pages_of_fifty_runs(benchmark, browser, runs, path, traces):
    """From the address to the figures; each round another run of the timeline, none of which was read before."""
    numbers = itertools.count()
    with served(str(runs)) as address:

        def fresh():
            return (browser.new_context().new_page(), address[:-1] + path.format(next(numbers))), {}

        def visit(page, at):
            page.goto(at)
            page.wait_for_function(DRAWN.format(traces))

        benchmark.pedantic(visit, setup=fresh, rounds=9)
