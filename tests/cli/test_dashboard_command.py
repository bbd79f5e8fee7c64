"""`specroof dashboard` at the command line: what is missing, what is wrong, what is said."""

import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from specroof.cli import BAD_INPUT, MISSING, main


def test_without_dash_one_line_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "dash", None)
    assert main(["dashboard"]) == MISSING
    assert "pip install 'specroof[dash]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["no-such-scenario"], "unknown scenario"),
        (["--port", "70000"], "--port"),
        (["missing.json"], "missing.json"),
        (["--host", "256.1.1.1", "--port", "0"], "cannot be bound"),
    ],
)
def test_bad_input_ends_in_one_line(given, said, capsys, tmp_path, monkeypatch):
    pytest.importorskip("dash")
    monkeypatch.chdir(tmp_path)
    assert main(["dashboard", *given]) == BAD_INPUT
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
    assert len(lines) == 1
    assert said in lines[0]


def test_a_foreign_address_is_warned_of(capsys):
    pytest.importorskip("dash")
    main(["dashboard", "--host", "256.1.1.1", "--port", "0"])
    assert "whoever reaches this address can use the app" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="signals differ")
def test_it_answers_on_a_free_port_until_interrupted():
    pytest.importorskip("dash")
    command = [sys.executable, "-m", "specroof", "dashboard", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+/", process.stderr.readline())
            assert found
            with urllib.request.urlopen(found[0], timeout=60) as answer:
                assert b"specroof" in answer.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
