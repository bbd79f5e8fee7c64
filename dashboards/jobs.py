"""Long questions in the background: worker processes that can be watched and stopped.

Questions and answers cross as JSON, never as pickles.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import queue
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

MOST_KEPT = 64
"""Answers that are kept; the oldest go first."""


@dataclass(slots=True)
class Job:
    """A question and how far it is: `status` is waiting, running, done, failed or cancelled."""

    kind: str
    question: Mapping[str, Any]
    status: str = "waiting"
    line: str = ""
    document: Mapping[str, Any] | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def is_over(self) -> bool:
        """True when nothing more will come."""
        return self.over.is_set()

    def end(self, status: str, line: str = "", document: Mapping[str, Any] | None = None) -> None:
        """Nothing more will come."""
        self.status, self.line, self.document = status, line, document
        self.over.set()


class Jobs:
    """Answers questions in `workers` processes, started when first needed.

    Parameters
    ----------
    workers : int
        Questions answered at once; the others wait.
    most_waiting : int
        Questions that may wait; one more is refused.
    """

    def __init__(self, workers: int = 2, most_waiting: int = 16) -> None:
        self._jobs: dict[str, Job] = {}
        self._queue: queue.Queue[Job | None] = queue.Queue()
        self._lock = threading.Lock()
        self._workers, self._most_waiting = workers, most_waiting
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()

    def start(self, kind: str, question: Mapping[str, Any]) -> str:
        """Ask; returns the key to look the answer up with. The same question again finds the answer that is there."""
        with self._lock:
            for key, job in self._jobs.items():
                if (job.kind, job.question) == (kind, question) and job.status not in ("failed", "cancelled"):
                    return key
            key, job = secrets.token_urlsafe(12), Job(kind, question)
            self._jobs[key] = job
            if sum(j.status == "waiting" for j in self._jobs.values()) > self._most_waiting:
                job.end("failed", "too many questions wait already; try again when some are answered")
                return key
            for old in [k for k, j in self._jobs.items() if j.is_over][: max(0, len(self._jobs) - MOST_KEPT)]:
                del self._jobs[old]
            if not self._threads:
                atexit.register(self.close)
            if len(self._threads) < self._workers:
                thread = threading.Thread(target=self._serve, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._queue.put(job)
        return key

    def get(self, key: object) -> Job | None:
        """The job of a key; None where it is not, or no longer, known."""
        return self._jobs.get(key) if isinstance(key, str) else None

    def cancel(self, key: object) -> None:
        """Stop a job; a running one's process is ended."""
        job = self.get(key)
        if job is not None and not job.is_over:
            job.stop.set()
            if job.status == "waiting":
                job.end("cancelled")

    def close(self) -> None:
        """End all processes."""
        self._closed.set()
        for job in list(self._jobs.values()):
            job.stop.set()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout=5)
        atexit.unregister(self.close)

    def _serve(self) -> None:
        worker: _Worker | None = None
        while (job := self._queue.get()) is not None and not self._closed.is_set():
            if job.stop.is_set():
                job.end("cancelled")
                continue
            if worker is None or not worker.alive:
                worker = _Worker()
            job.status = "running"
            worker.answer(job)
        if worker is not None:
            worker.end()


class _Worker:
    """A process that answers one question after another."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_answer_all, args=(theirs,))
        self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def answer(self, job: Job) -> None:
        """Put the answer into `job`; ends the process when the job is stopped or the process dies."""
        try:
            self._pipe.send_bytes(json.dumps({"kind": job.kind, "question": job.question}).encode())
            while not job.is_over:
                if self._pipe.poll(0.1):
                    _take(job, json.loads(self._pipe.recv_bytes()))
                elif job.stop.is_set():
                    job.end("cancelled")
                    self.end()
        except (EOFError, OSError):
            job.end("failed", "its process was ended from outside (out of memory, or killed)")
            self.end()

    def end(self) -> None:
        self._process.terminate()
        self._process.join(timeout=2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()


def _take(job: Job, message: Mapping[str, Any]) -> None:
    if "line" in message:
        job.line = str(message["line"])
    elif "error" in message:
        job.end("failed", str(message["error"]))
    else:
        job.end("done", document=message["document"])


def _answer_all(pipe: Connection) -> None:
    """The life of a worker: until its parent is gone."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is the parent's to handle
    try:
        while True:
            asked = json.loads(pipe.recv_bytes())
            pipe.send_bytes(json.dumps(_answered(asked["kind"], asked["question"], pipe)).encode())
    except (EOFError, OSError):
        return


def _answered(kind: str, question: Mapping[str, Any], pipe: Connection) -> dict[str, Any]:
    from dashboards.questions import QUESTIONS
    from hwprofiles.errors import InputError

    def tell(line: str) -> None:
        pipe.send_bytes(json.dumps({"line": line}).encode())

    answer: Callable[[Mapping[str, Any], Callable[[str], None]], Mapping[str, Any]] = QUESTIONS[kind]
    try:
        return {"document": answer(question, tell)}
    except InputError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"error": f"a bug in specroof, please report it: {type(error).__name__}: {error}"}
