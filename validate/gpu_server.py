"""One vLLM server of a model with random weights, as a child process on a free loopback port: start, wait, stop."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from validate.engine import EngineError

HOST = "127.0.0.1"
_POLL_S = 0.25
_PROBE_S = 5.0
_STOP_S = 8.0
"""After which a server that was asked to stop is killed, as one is that is still starting."""
_TAIL_BYTES = 65_536
_TOLD = 400
_TELLING = re.compile(r"\b\w*(Error|Exception): |out of memory")

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # compiled on first use; greedy decoding needs none
}
"""Nothing is looked up or reported outside this machine."""
CPU_ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
"""The last lets the `uni` executor be: a worker in a process of its own spins while it waits, asked or not,
and takes its core from whoever works; on two cores two servers then hold each other up by hundreds of milliseconds."""
CPU_OPTIONS = ("--enforce-eager", "--distributed-executor-backend", "uni", "--block-size", "32")
"""On a CPU compiling takes a minute and gains nothing, and blocks are multiples of 32."""


def command(folder: Path, name: str, port: int, options: Sequence[str] = ()) -> list[str]:
    """The command line of a server whose weights are random and never on disk (`--load-format dummy`)."""
    return [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(folder), "--load-format", "dummy", "--served-model-name", name),
        *("--host", HOST, "--port", str(port), "--enable-prompt-tokens-details"),
        *options,
    ]


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with closing(socket.socket()) as taken:
        taken.bind((HOST, 0))
        return int(taken.getsockname()[1])


class Server:
    """A child process that answers at `url` once it is ready, and is stopped with all its own children.

    Parameters
    ----------
    argv : sequence of str
    port : int
    log : Path
        Gets everything it writes.
    environment : mapping
        On top of this process's own and `ENVIRONMENT`.
    """

    def __init__(self, argv: Sequence[str], port: int, log: Path, environment: Mapping[str, str]) -> None:
        self.argv, self.port, self.log = list(argv), port, log
        self.environment = {**os.environ, **ENVIRONMENT, **environment}
        self.url = f"http://{HOST}:{port}/v1"
        self._child: subprocess.Popen[bytes] | None = None
        self._sink: IO[bytes] | None = None
        self._ask = build_opener(ProxyHandler({}))

    def start(self, within_s: float, *, progress: Callable[[str], None] = lambda _: None) -> float:
        """Start and wait until it answers; the seconds that took.

        Raises
        ------
        EngineError
            It ended, or did not answer in time; the message has the last line of its log that says anything.
        """
        begun_s = time.monotonic()
        self._sink = self.log.open("wb")
        child = self._launch()
        while (passed_s := time.monotonic() - begun_s) < within_s:
            if child.poll() is not None:
                raise EngineError(f"the server ended with status {child.returncode}: {last_words(self.log)}")
            if self._answers():
                return time.monotonic() - begun_s
            progress(f"waiting for {' '.join(self.argv[1:5])}: {passed_s:.0f} of {within_s:.0f} s")
            time.sleep(_POLL_S)
        raise EngineError(f"the server was not ready within {within_s:.0f} s; it last said: {last_words(self.log)}")

    def _launch(self) -> subprocess.Popen[bytes]:
        """Start the child and know it: a signal that comes meanwhile is handled just after."""
        with _signals_later():
            self._child = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=self._sink,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )
        return self._child

    def stop(self, grace_s: float = _STOP_S) -> None:
        """Stop it and whatever it started, by force after `grace_s`; one that never started or has ended is fine."""
        child, self._child = self._child, None
        if child is not None:
            _signal(child.pid, signal.SIGTERM)
            try:
                child.wait(grace_s)
            except subprocess.TimeoutExpired:
                pass
            finally:
                _signal(child.pid, signal.SIGKILL)
                child.wait(_STOP_S)
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _answers(self) -> bool:
        try:
            with self._ask.open(f"http://{HOST}:{self.port}/health", timeout=_PROBE_S) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


@contextmanager
def _signals_later() -> Iterator[None]:
    """Hold back what would interrupt the main thread (no other is ever interrupted) until the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    held = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.signal(number, lambda got, _frame: came.append(got)) for number in held}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for late in came:
        signal.raise_signal(late)


def last_words(log: Path) -> str:
    """The last line of a log that names an error, else its last line; empty logs say so."""
    try:
        with log.open("rb") as source:
            source.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = source.read().decode("utf-8", "replace")
    except OSError as error:
        return f"no log ({error.strerror or error})"
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line) and " WARNING " not in line]
    return (telling or lines or ["nothing"])[-1][:_TOLD]


def _signal(group: int, number: int) -> None:
    """To a whole process group, which may be gone."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
