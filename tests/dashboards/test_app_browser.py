"""The app in a real headless browser: pages, knobs, maps, runs, uploads, exports, the keyboard, and axe."""

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from xml.etree import ElementTree

import pandas as pd
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]

pytest.importorskip("dash")
sync_api = pytest.importorskip("playwright.sync_api")

from dashboards.app import PAGES, create_app  # noqa: E402
from dashboards.jobs import Jobs  # noqa: E402
from dashboards.shelf import Shelf  # noqa: E402
from simulator.scenario_file import load_scenario  # noqa: E402

sync_api.expect.set_options(timeout=30_000)  # for machines that do other things as well
PATHS = [page.PATH for page in PAGES]
SIZES = {"desktop": (1360, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def address(tmp_path_factory, make_study, validation_file):
    from werkzeug.serving import make_server

    from simulator.case import prepare
    from simulator.replication import replicate

    out = tmp_path_factory.mktemp("runs")
    small = load_scenario("autonomous-h200", ["concurrency=4", "run.seeds=2", "load.n_trajectories=12", "workload.n=6"])
    replicate(prepare(small), ["strong_only", "spec_agent"], keep_log=True, out=out)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    jobs = Jobs(1)
    study = make_study(tmp_path_factory.mktemp("sweeps") / "two.sqlite")
    app = create_app(Shelf(["retail-h200", str(out), str(study), str(validation_file)]), jobs=jobs)
    server = make_server("127.0.0.1", 0, app.server, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
    jobs.close()


def kept(page, tmp_path, name):
    """The file behind a button."""
    with page.expect_download() as download:
        page.get_by_role("button", name=name).click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    return file


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser):
    """A page that remembers what its console complained about."""
    context = browser.new_context(viewport={"width": 1360, "height": 900}, accept_downloads=True)
    found = context.new_page()
    found.set_default_timeout(60_000)
    found.faults = []
    found.on("console", lambda m: found.faults.append(m.text) if m.type == "error" else None)
    found.on("pageerror", lambda e: found.faults.append(str(e)))
    yield found
    context.close()


def settled(page, address, path):
    page.goto(address + path)
    page.wait_for_selector("h1")
    page.wait_for_load_state("networkidle")


def card(page, objective="Time"):
    return page.locator("article.verdict", has=page.locator("h2", has_text=objective)).first


def turn(page, label, value):
    """Put a slider somewhere as a person would, with the events that follow."""
    page.get_by_label(label).evaluate(
        """(slider, value) => {
            Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(slider, value);
            slider.dispatchEvent(new Event("input", {bubbles: true}));
            slider.dispatchEvent(new Event("change", {bubbles: true}));
        }""",
        str(value),
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_opens_without_a_complaint_and_fits(browser, address, theme, size, tmp_path):
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    page = context.new_page()
    faults = []
    page.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: faults.append(str(e)))
    folder = os.environ.get("SPECROOF_SCREENSHOTS")
    for path in PATHS:
        settled(page, address, path)
        assert not faults, path
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        if folder:
            page.screenshot(path=f"{folder}/{theme}-{size}-{path.strip('/') or 'explore'}.png", full_page=True)
    context.close()


def test_a_slider_changes_the_verdict_the_figures_and_the_url(page, address):
    settled(page, address, "/?scenario=retail-h200")
    before = card(page).inner_text()
    turn(page, "Acceptance of a drafted step", 0.35)
    sync_api.expect(card(page)).not_to_have_text(before)
    sync_api.expect(page.locator("#explore-figures .js-plotly-plot")).to_have_count(2)
    sync_api.expect(page).to_have_url(re.compile("acceptance=0.35"))
    assert page.faults == []


def test_a_url_restores_its_view(page, address):
    settled(page, address, "/?scenario=autonomous-h200&acceptance=0.35&window=2")
    assert page.get_by_label("Acceptance of a drafted step").input_value() == "0.35"
    assert page.get_by_label("Window").input_value() == "2"
    there = card(page).inner_text()
    settled(page, address, "/?scenario=autonomous-h200&acceptance=0.97&window=2")
    sync_api.expect(card(page)).not_to_have_text(there)
    settled(page, address, "/?scenario=autonomous-h200&acceptance=0.35&window=2")
    assert card(page).inner_text() == there


def test_a_map_is_drawn_saved_and_accepted_by_the_command_line(page, address, tmp_path):
    settled(page, address, "/breakeven?scenario=autonomous-h200&x=acceptance%3D0.5:0.95:6&y=window%3D1,2,4")
    page.click("#breakeven-run")
    page.wait_for_selector("#breakeven-answer .js-plotly-plot .heatmaplayer image")
    file = kept(page, tmp_path, "Scenario (TOML)")
    done = subprocess.run(
        [sys.executable, "-m", "specroof", "scenario", "check", str(file), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["scenario"]["title"] == load_scenario("autonomous-h200").title
    rows = kept(page, tmp_path, "Data (CSV)")
    assert rows.read_text().count("\n") == 1 + 6 * 3
    assert page.faults == []


def test_a_sweep_is_shown_and_everything_of_it_saved(page, address, tmp_path):
    settled(page, address, "/sweeps?x=window&acceptance=0.75")
    sync_api.expect(page.get_by_text("Only where acceptance is")).to_be_visible()
    page.locator(".knob", has_text="Over").get_by_role("button").click()
    page.get_by_role("option", name="acceptance").click()
    sync_api.expect(page).to_have_url(re.compile("x=acceptance.*window=2"))
    sync_api.expect(page.locator("#sweeps-shown .js-plotly-plot")).to_have_count(2)
    sync_api.expect(page.locator("#sweeps-shown tbody tr")).to_have_count(6)
    title = "Time per task against strong only, window 2"
    picture = kept(page, tmp_path, f"PNG of {title}")
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert picture.stat().st_size > 10_000
    drawing = kept(page, tmp_path, f"SVG of {title}")
    assert ElementTree.parse(drawing).getroot().tag.endswith("svg")
    assert title in drawing.read_text(encoding="utf-8")
    alone = kept(page, tmp_path, f"HTML of {title}")
    assert alone.read_text(encoding="utf-8").count('class="plot"') == 1
    assert kept(page, tmp_path, "All figures (HTML)").stat().st_size > 1_000_000
    rows = pd.read_parquet(kept(page, tmp_path, "Data (parquet)"))
    pd.testing.assert_frame_equal(pd.read_csv(kept(page, tmp_path, "Data (CSV)")), rows, check_dtype=False)
    assert set(rows["strategy"]) == {"strong_only", "spec_agent"}
    scenario = kept(page, tmp_path, "Scenario (TOML)")
    plan = subprocess.run(
        [sys.executable, "-m", "specroof", "plan", str(scenario), "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(plan.stdout)["scenario"]["run"]["samples"] == 16
    assert page.faults == []


def test_hardware_shows_roofs_at_once_and_the_frontier_when_asked(page, address):
    settled(page, address, "/hardware?scenario=llama-a100&strong_hardware=h100&strong_n=2&devices=h100,l40s")
    sync_api.expect(page.locator("#hardware-shown .js-plotly-plot")).to_contain_text("strong: 2 × h100")
    sync_api.expect(page.locator("#hardware-shown tbody tr")).to_have_count(6)
    page.click("#hardware-run")
    sync_api.expect(page.locator("#hardware-answer .js-plotly-plot")).to_contain_text("l40s")
    sync_api.expect(page.locator("#hardware-answer tbody tr")).to_have_count(2)
    assert "strong_hardware=h100" in page.url
    assert page.faults == []


def test_a_validation_is_shown_beside_the_fit(page, address, tmp_path):
    settled(page, address, "/calibration?file=validation+1%3A+validation.json")
    sync_api.expect(page.locator("#calibration-shown figcaption")).to_have_text(
        ["Predicted against measured", "Where the time went"]
    )
    sync_api.expect(page.locator("#calibration-shown tbody tr").first).to_contain_text("time")
    rows = pd.read_csv(kept(page, tmp_path, "Data (CSV)"))
    assert {"strategy", "metric", "measured", "predicted", "low", "high"} == set(rows.columns)
    assert page.faults == []


def test_a_wrong_axis_is_answered_on_the_page(page, address):
    settled(page, address, "/breakeven?x=acceptence%3D0.5:0.95:6")
    page.click("#breakeven-run")
    sync_api.expect(page.get_by_role("alert")).to_contain_text("did you mean 'acceptance'")


def test_a_long_question_can_be_stopped(page, address):
    settled(page, address, "/size?scenario=retail-h200&rate=20/s")
    page.click("#size-run")
    sync_api.expect(page.locator("#size-stop")).to_be_enabled()
    page.click("#size-stop")
    sync_api.expect(page.locator("#size-line")).to_have_text("stopped")


def test_a_run_is_opened_and_runs_are_compared(page, address):
    settled(page, address, "/timeline?run=1&trajectory=3")
    sync_api.expect(page.locator("#timeline-shown .js-plotly-plot")).to_have_count(2)
    settled(page, address, "/timeline?run=1&trajectory=99999")
    sync_api.expect(page.locator("#timeline-shown .js-plotly-plot")).to_have_count(2)
    settled(page, address, "/compare")
    sync_api.expect(page.locator("#compare-shown tbody tr")).to_have_count(4)
    assert page.faults == []


def test_a_trace_is_uploaded_and_a_bad_file_refused(page, address):
    from importlib.resources import as_file, files

    settled(page, address, "/")
    page.set_input_files("#explore-upload input", files=[{"name": "bad.json", "mimeType": "application/json",
                                                          "buffer": b'{"a": [1, 2'}])  # fmt: skip
    sync_api.expect(page.get_by_role("alert")).to_contain_text("bad.json")
    with as_file(files("simulator") / "data" / "workloads" / "airline.json") as trace:
        page.set_input_files("#explore-upload input", files=[trace])
    sync_api.expect(page).to_have_url(re.compile("scenario=upload-"))
    sync_api.expect(page.locator(".dash-dropdown", has_text="uploaded: airline.json")).to_be_visible()
    sync_api.expect(card(page)).to_be_visible()


def test_the_theme_can_be_switched_and_is_kept(page, address):
    settled(page, address, "/")
    page.get_by_role("button", name="Switch light and dark").click()
    sync_api.expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    settled(page, address, "/")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_keyboard_reaches_the_knobs_and_moves_them(page, address):
    settled(page, address, "/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    slider = page.get_by_label("Acceptance of a drafted step")
    for _ in range(60):
        if slider.evaluate("e => e === document.activeElement"):
            break
        page.keyboard.press("Tab")
    else:
        pytest.fail("the Tab key does not reach the slider")
    before = card(page).inner_text()
    for _ in range(30):
        page.keyboard.press("ArrowLeft")
    sync_api.expect(card(page)).not_to_have_text(before)


@pytest.mark.parametrize("path", ["/hardware?scenario=llama-a100", "/sweeps"])
def test_the_keyboard_reaches_every_knob_and_every_button_to_save(page, address, path):
    settled(page, address, path)
    name = "e => e.id || e.ariaLabel"
    buttons = page.locator("main button:enabled:not([tabindex='-1'])")
    wanted, reached = set(buttons.evaluate_all(f"all => all.map({name})")), set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(f"({name})(document.activeElement)"))
    assert wanted - reached == set()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault(browser, address, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    context = browser.new_context(color_scheme=theme, bypass_csp=True)
    page = context.new_page()
    for path in PATHS:
        settled(page, address, path)
        found = axe.run(page).response["violations"]
        serious = [f"{v['id']}: {v['nodes'][0]['html']}" for v in found if v["impact"] in ("serious", "critical")]
        assert serious == [], path
    context.close()
