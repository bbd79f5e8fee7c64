"""Mean serving figures in closed form: a decode step at the mean concurrency, slowed by the prefills in between.

    tpot = decode(N, prompt + output / 2) + prefill(prompt) N / output,   N = concurrency, or rate * output * tpot
    ttft = request + prefill(prompt) (1 + burst (N - 1) / 2) + half a decode step;   e2e = ttft + (output - 1) tpot

where a prefill in between costs what it adds to a decode step that runs anyway, and `burst` is the share of a closed
loop's requests that start together (a benchmark of ten rounds starts a tenth of them at once).

Source: InferenceX rows: without the second term the bias of tpot goes to -0.56 at concurrency 64, with it it stays
within 0.05 up to 128. Limits: means only, no queueing; time to first token is short of the wait under load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from validate.accuracy.kinds import Subject
from validate.accuracy.steps import Steps
from validate.accuracy.tables import Row

Num = Any
_ROUNDS = 40
_DEFAULT_MAX_SEQS = 256.0


class Serving:
    """Prices the serving rows of one deployment."""

    def __init__(self, subject: Subject, rows: Sequence[Row]) -> None:
        self.steps = Steps(subject)
        self.kind = subject.kind
        self.prompt = np.array([row.input_tokens for row in rows], dtype=float)
        self.output = np.array([row.output_tokens for row in rows], dtype=float)
        shared = np.array([float(row.note.get("shared_prefix_tokens", 0)) for row in rows])
        self.shared = np.minimum(shared, self.prompt - 1.0)
        self.turns = np.array([float(row.note.get("multi_turn") == "1") for row in rows])
        self.closed = np.array([row.batch or 0.0 for row in rows])
        self.rate = np.array([_rate(row) for row in rows])
        self.most = np.array([float(row.note.get("max_num_seqs", _DEFAULT_MAX_SEQS)) for row in rows])

    def seconds(self, factors: Mapping[str, Num]) -> Num:
        """Seconds of the rows' kind: tpot, ttft or e2e."""
        rest = self.prompt - self.shared
        cached = self.shared + factors["cached_share"] * self.turns * (rest - 1.0)
        once = self.steps.prefill_s(factors, 1.0 + 0.0 * self.prompt, self.prompt - cached, cached)
        tpot = self._tpot(factors, cached)
        if self.kind == "tpot":
            return tpot
        burst = factors["burst_share"] * np.maximum(self.closed - 1.0, 0.0) / 2.0
        ttft = factors["request_s"] + once * (1.0 + burst) + tpot / 2.0
        return ttft if self.kind == "ttft" else ttft + (self.output - 1.0) * tpot

    def _tpot(self, factors: Mapping[str, Num], cached: Num) -> Num:
        context = self.prompt + self.output / 2.0
        n = np.where(self.closed > 0, self.closed, 1.0)
        tpot = 0.0
        for _ in range(_ROUNDS if np.any(self.closed <= 0) else 1):
            decode = self.steps.decode_s(factors, n, context)
            mixed = self.steps.mixed_s(factors, n, context, self.prompt - cached, cached)
            tpot = decode + (mixed - decode) * n / self.output
            open_n = np.clip(self.rate * self.output * tpot, 1.0, self.most)
            n = np.where(self.closed > 0, self.closed, open_n)
        return tpot


def _rate(row: Row) -> float:
    try:
        return float(row.note.get("rate_req_s", 0.0))
    except ValueError:
        return 0.0
