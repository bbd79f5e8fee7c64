"""`specroof validate`: one JSON document with the contract's keys, and one line for everything that cannot be done."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import validate
from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.scenario import USUAL_STRATEGIES
from simulator.scenario_file import load_scenario
from validate.compare import METRICS
from validate.openai_server import OpenAIServer
from validate.report import validate as run
from validate.session import desk_jobs

FAKE = ("validate", "llama-a100", "--weak", "fake:", "--strong", "fake:")
SOME = (*FAKE, "--runs", "2", "--strategy", "spec_agent", "--strategy", "strong_only")


def test_json_is_one_document_with_the_keys_of_the_contract(run_cli: Any) -> None:
    done = run_cli(*FAKE, "--runs", "3", "--json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert next(iter(document)) == "schema_version"
    assert {"scenario", "measured", "predicted", "errors", "in_band", "held"} <= set(document)
    assert set(document["measured"]) == set(document["predicted"]) == set(USUAL_STRATEGIES)
    for name in USUAL_STRATEGIES:
        assert set(document["measured"][name]) == set(METRICS)
        assert set(document["predicted"][name]["time_s"]) == {"value", "low", "high"}
    assert set(document["errors"]) == set(document["in_band"]) == set(METRICS)
    for metric in METRICS:
        assert set(document["errors"][metric]) == {"median_ape", "bias"}
        assert 0.0 <= document["in_band"][metric] <= 1.0
    held = document["held"]
    assert {"held", "accepted", "executed_before_verdict", "lost", "run_twice", "unresolved"} <= set(held)
    assert held["held"] >= held["accepted"] > 0
    assert held["executed_before_verdict"] == held["lost"] == held["run_twice"] == held["unresolved"] == 0
    assert document["strategies"]["spec_agent"]["tasks"]["played"] == 3
    assert "not the prediction" in document["note"]


def test_same_input_same_bytes(run_cli: Any) -> None:
    one, two = (run_cli(*SOME, "--faults", "4", "--json").out for _ in range(2))
    assert one == two


def test_the_table_says_all_that_the_document_does(run_cli: Any) -> None:
    done = run_cli(*SOME)
    assert done.code == 0
    for word in ("spec_agent", "strong_only", *METRICS, "run before a verdict 0", "2 tasks (2 finished)"):
        assert word in done.out, word
    assert "weak_only" not in done.out


def test_faults_are_survived_and_counted(run_cli: Any) -> None:
    done = json.loads(run_cli(*FAKE, "--runs", "20", "--strategy", "spec_agent", "--faults", "1", "--json").out)
    assert done["strategies"]["spec_agent"]["tasks"]["resumed"] > 0
    assert done["held"]["executed_before_verdict"] == done["held"]["lost"] == done["held"]["run_twice"] == 0


def test_a_folder_keeps_the_run_and_resume_goes_on_with_it(run_cli: Any, quick_folder: Path) -> None:
    from simulator.results import load

    first = run_cli(*SOME, "-o", quick_folder, "--json")
    assert first.code == 0
    for name in ("spec_agent", "strong_only"):
        assert (quick_folder / name / "journal.db").exists()
        assert load(quick_folder / name).meta["kind"] == "measured"
    again = run_cli(*SOME, "-o", quick_folder)
    assert again.code == 2
    assert "journal of an earlier run; --resume goes on with it" in again.err
    resumed = run_cli(*SOME, "-o", quick_folder, "--resume", "--json")
    assert json.loads(resumed.out) == json.loads(first.out)
    more = json.loads(run_cli(*SOME, "--runs", "4", "-o", quick_folder, "--resume", "--json").out)
    assert more["strategies"]["spec_agent"]["tasks"]["played"] == 4
    assert more["strategies"]["spec_agent"]["tasks"]["solved"] >= 2
    other = run_cli(*SOME, "-o", quick_folder, "--resume", "--set", "quality.weak_hazard=0.9")
    assert other.code == 2
    assert "journal of another run: quality.weak_hazard is" in other.err


def test_a_desk_whose_journal_is_gone_is_not_used_again(run_cli: Any, quick_folder: Path) -> None:
    """Its memory of keys would answer for actions that nobody asked of it in this run."""
    assert run_cli(*SOME, "-o", quick_folder).code == 0
    for file in (quick_folder / "spec_agent").glob("journal.db*"):
        file.unlink()
    for extra in ((), ("--resume",)):
        done = run_cli(*SOME[:-2], "-o", quick_folder, *extra)
        assert done.code == 2
        assert "whose journal is gone" in done.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--weak", "http://127.0.0.1:1/v1"), "both URLs or both 'fake:'"),
        (("--strong", "http://127.0.0.1:1/v1"), "both URLs or both 'fake:'"),
        (("--weak", "http://a", "--strong", "http://b", "--faults", "1"), "--faults needs engines in this process"),
        (("--weak", "ftp://a", "--strong", "http://b"), "must begin with http:// or https://"),
        (("--weak", "fake", "--strong", "fake"), "must begin with http:// or https://"),
        (("--weak", "FAKE:", "--strong", "fake:"), "both URLs or both 'fake:'"),
        (("--resume",), "--resume needs -o"),
        (("--tools", "x"), "--tools needs real endpoints"),
        (("--weak", "http://a", "--strong", "http://b", "--tools", "x"), "--tools needs --tasks"),
        (("--tasks", "t.jsonl"), "--tasks goes with --tools"),
        (("--tools", "x", "--tasks", "t.jsonl", "--runs", "3"), "--tasks goes with --tools and without --runs"),
        (("--tools", "x", "--tasks", "nowhere.jsonl"), "nowhere.jsonl: cannot be read"),
        (("--strategy", "spec_agnt"), "did you mean 'spec_agent'?"),
        (("--set", "window=10", "--strategy", "spec_agent"), "protocol.window must be <= 9 in a real run, got 10"),
        (("--runs", "0"), "--runs"),
        (("--faults", "-1"), "--faults"),
        (("--sett", "x"), "--sett"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run_cli: Any, args: tuple[str, ...], message: str) -> None:
    done = run_cli(*FAKE, *args)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert "Traceback" not in done.err


def test_a_bad_task_file_is_named_with_its_line(run_cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "a", "request": "x"}\n{"id": "b"}\n')
    done = run_cli(*FAKE, "--tools", "x", "--tasks", path)
    assert done.code == 2
    assert "tasks.jsonl, line 2: 'request' must be a text" in done.err


def test_a_server_that_cannot_be_reached_is_exit_3_and_the_run_can_go_on(
    run_cli: Any, quick_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OpenAIServer.__init__.__kwdefaults__, "pause_s", 0.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        args = ("validate", "llama-a100", "--weak", url, "--strong", url, "--runs", "1", "--strategy", "strong_only")
        done = run_cli(*args)
        kept = run_cli(*args, "-o", quick_folder)
    assert (done.code, kept.code) == (3, 3)
    assert len(done.err.strip().splitlines()) == 1
    assert f"{url} cannot be reached" in done.err
    assert "--resume" not in done.err
    assert "--resume goes on from here" in kept.err
    # nothing was run, and what is there can be resumed with a server that answers
    assert not (quick_folder / "strong_only" / "run.json").exists()
    assert (quick_folder / "strong_only" / "journal.db").exists()


@pytest.mark.parametrize(("command", "code"), [("'unclosed", 2), ("/nowhere/at/all", 2), ("false", 3)])
def test_tools_that_cannot_be_started_are_one_line(run_cli: Any, tmp_path: Path, command: str, code: int) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "a", "request": "x"}\n')
    urls = ("--weak", "http://127.0.0.1:1/v1", "--strong", "http://127.0.0.1:1/v1")
    done = run_cli("validate", "llama-a100", *urls, "--tools", command, "--tasks", path)
    assert done.code == code
    assert len(done.err.strip().splitlines()) == 1


def test_two_tasks_of_one_name_are_refused() -> None:
    case = prepare(load_scenario("llama-a100", []))
    with pytest.raises(InputError, match="task 'cancel_by_number' is there twice"):
        run(case, "fake:", "fake:", jobs=[*desk_jobs(2), *desk_jobs(1)])


# -- the seam -------------------------------------------------------------------------------------------------------


def modules() -> list[str]:
    return sorted(m.name for m in pkgutil.walk_packages(validate.__path__, "validate.") if "__main__" not in m.name)


def test_every_module_imports_without_vllm() -> None:
    names = modules()
    assert "validate.vllm_offline" in names
    code = (
        "import sys, importlib\n"
        "sys.modules.update(dict.fromkeys(['vllm', 'torch', 'transformers', 'gguf', 'safetensors', 'tokenizers']))\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_package_itself_is_empty() -> None:
    assert Path(validate.__file__).read_text() == ""


def test_the_protocol_is_written_once(root: Path) -> None:
    """No class in validate is a strategy: none has a `round` method; they come from costmodel."""
    for path in sorted((root / "validate").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                methods = {n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
                assert "round" not in methods, f"{path.name}: {node.name}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("Draft", "Verify", "Repair", "Write", "CallTool", "Commit"), path.name
    session = importlib.import_module("validate.session")
    assert session.playing is importlib.import_module("simulator.playing").playing
