"""`specroof validate` against servers behind URLs: real clock, real connections, the desk in a process of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from simulator.results import load
from validate.journal import Journal
from validate.openai_server import OpenAIServer

LOOK = {"name": "get_order", "arguments": json.dumps({"order_id": "O-4003"})}
CANCEL = {"name": "cancel_order", "arguments": json.dumps({"order_id": "O-4003", "reason": "no_longer_needed"})}
STEPS = (LOOK, CANCEL, None)


class Handler(BaseHTTPRequestHandler):
    """Looks an order up, cancels it, says so; as a reviewer it accepts everything. `down` refuses all chats."""

    down = False
    asked: list[dict[str, Any]] = []  # noqa: RUF012  # one server per test

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "me"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).asked.append(body)
        if self.down and len(self.asked) > 3:
            self._send({"error": {"message": "out of order"}}, 503)
            return
        n = sum(m["role"] == "assistant" for m in body["messages"])
        if "response_format" in body:
            ((key, rule),) = body["response_format"]["json_schema"]["schema"]["properties"].items()
            delta: dict[str, Any] = {"content": json.dumps({key: rule["enum"][-1]})}
        elif (call := STEPS[min(n, 2)]) is not None:
            delta = {"tool_calls": [{"index": 0, "id": "x", "type": "function", "function": call}]}
        else:
            delta = {"content": "Your order is cancelled."}
        reason = "tool_calls" if "tool_calls" in delta else "stop"
        usage = {"prompt_tokens": len(json.dumps(body["messages"])) // 4, "completion_tokens": 5, "total_tokens": 0}
        choice = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": reason}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for more in ({"choices": [choice]}, {"choices": [], "usage": usage}):
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", **more}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, document: Any, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())


@pytest.fixture
def server() -> Iterator[tuple[str, type[Handler]]]:
    """A server on this machine: its URL and the class that answers."""
    mine = type("Mine", (Handler,), {"asked": [], "down": False})
    with ThreadingHTTPServer(("127.0.0.1", 0), mine) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/v1", mine
        finally:
            http.shutdown()
            thread.join()


def command(url: str, folder: Path, *more: str) -> tuple[Any, ...]:
    what = ("--runs", "1", "--strategy", "spec_agent", "-o", folder, "--json")
    return ("validate", "llama-a100", "--weak", url, "--strong", url, *what, *more)


def test_a_run_on_servers(run_cli: Any, server: Any, quick_folder: Path) -> None:
    url, handler = server
    done = run_cli(*command(url, quick_folder))
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["strategies"]["spec_agent"]["tasks"]["status"] == {"finished": 1}
    assert document["strategies"]["spec_agent"]["tasks"]["solved"] == 1
    assert document["measured"]["spec_agent"]["requests"] == 5  # look, cancel, review, reply, review
    bad = dict.fromkeys(("executed_before_verdict", "lost", "run_twice", "unresolved", "stopped"), 0)
    assert document["held"] == {"held": 2, "accepted": 2, **bad}
    assert len(handler.asked) == 5
    review = handler.asked[2]["messages"]
    assert review[: len(handler.asked[1]["messages"])] == handler.asked[1]["messages"]
    trajectories = load(quick_folder / "spec_agent").trajectories
    assert 0 < float(trajectories["time_s"].iloc[0]) < 120
    again = run_cli(*command(url, quick_folder, "--resume"))
    assert json.loads(again.out) == document  # a finished run is not played again
    assert len(handler.asked) == 5


def test_a_server_that_fails_on_the_way_can_come_back(
    run_cli: Any, server: Any, quick_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OpenAIServer.__init__.__kwdefaults__, "pause_s", 0.0)
    url, handler = server
    handler.down = True
    done = run_cli(*command(url, quick_folder))
    assert done.code == 3
    assert "out of order" in done.err
    path = quick_folder / "spec_agent" / "journal.db"
    with Journal(path) as journal:
        first = journal.keep("run", None)
        cut_s = journal.last_s()
        assert [e["slot"] for e in journal.events("effect")] == [f"{first}:cancel_by_number:0:d0.0",
                                                                 f"{first}:cancel_by_number:0:d1.0"]  # fmt: skip
    handler.down = False
    asked = len(handler.asked)
    done = run_cli(*command(url, quick_folder, "--resume"))
    assert done.code == 0, done.err
    assert len(handler.asked) == asked + 2  # the reply and its review
    document = json.loads(done.out)
    assert document["strategies"]["spec_agent"]["tasks"] == {
        "played": 1, "finished": 1, "solved": 1, "resumed": 1, "status": {"finished": 1},
    }  # fmt: skip
    with Journal(path) as journal:
        assert journal.keep("run", None) == first  # the same keys, so the desk knows what it has done
        assert journal.finished("cancel_by_number")["at_s"] > cut_s  # the clock went on
        (resumed,) = journal.events("resumed")
        assert resumed["at_s"] >= cut_s


def test_two_runs_never_share_keys(run_cli: Any, server: Any, quick_folder: Path) -> None:
    """A tool server that remembers keys must not answer a second run with what it did for the first."""
    url, _ = server
    names = set()
    for folder in ("a", "b"):
        assert run_cli(*command(url, quick_folder / folder)).code == 0
        with Journal(quick_folder / folder / "spec_agent" / "journal.db") as journal:
            names.add(journal.keep("run", None))
    assert len(names) == 2
