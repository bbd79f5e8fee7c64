"""The report in a real browser: every figure draws under the page's own security policy."""

import re
import shutil
import subprocess

import pytest

from dashboards.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
OFFLINE = ("--disable-background-networking", "--disable-component-update", "--disable-sync")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_all_figures_draw_and_no_foreign_script_runs(plan_document, tmp_path):
    plan_document["title"] = "<script>document.body.dataset.broken = 1</script>"
    plan_document["timeline"][0]["label"] = "</script><script>document.body.dataset.broken = 1</script>"
    write_report(plan_document, tmp_path / "report.html")
    done = subprocess.run(
        [CHROMIUM, *QUIET, *OFFLINE, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000",
         "--enable-logging=stderr", "--dump-dom", (tmp_path / "report.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    _, _, body = done.stdout.partition("<body")
    assert "data-broken" not in body.split(">", 1)[0]
    plots = re.split('id="figure-[a-z_-]+" style', body)[1:]
    assert len(plots) == 7
    assert all('class="main-svg"' in plot for plot in plots)
    assert "Content Security Policy" not in done.stderr
    assert "Uncaught" not in done.stderr
