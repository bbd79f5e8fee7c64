"""A link as requests meet it: half a round trip each way with jitter, and outages that hold what is sent.

What is sent in an outage leaves at its end, or, after `timeout_s`, is sent again; what is under way gets through.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import simpy

from simulator.latency import Law
from simulator.world import Ended, keyed

JITTER_STREAM, OUTAGE_STREAM = 3, 4

MAX_SKIPPED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRules:
    """What a link does beside its mean round trip and bandwidth.

    Parameters
    ----------
    jitter_s, jitter : mean and law of a round trip's extra time, drawn for each way (half of it) of each request
    outage_every_s, outage_s : means of the exponential times up, between outages, and down; None: always up
    timeout_s, retries, backoff_s : how a request in an outage is sent again; without `timeout_s` it waits
    """

    jitter_s: float = 0.0
    jitter: Law | None = None
    outage_every_s: float | None = None
    outage_s: float | None = None
    timeout_s: float | None = None
    retries: int = 0
    backoff_s: float = 0.0


class Outages:
    """Alternating exponential times up and down, drawn as the clock goes on; the same for every strategy.

    The link is up at the start. After `MAX_SKIPPED` outages that nobody met, the next state is drawn from the long run
    (down with probability down / (up + down)), which such times, being without memory, allow.
    """

    def __init__(self, up_s: float, down_s: float, rng: np.random.Generator) -> None:
        self._up_s = up_s
        self._down_s = down_s
        self._rng = rng
        self._begin_s = float(rng.exponential(up_s))
        self._end_s = self._begin_s + float(rng.exponential(down_s))

    def up_at(self, now_s: float) -> float:
        """`now_s` if the link is up then, else the end of the outage."""
        if now_s - self._end_s > MAX_SKIPPED * (self._up_s + self._down_s):
            down = self._rng.random() * (self._up_s + self._down_s) < self._down_s
            self._begin_s = now_s if down else now_s + float(self._rng.exponential(self._up_s))
            self._end_s = self._begin_s + float(self._rng.exponential(self._down_s))
        while self._end_s <= now_s:
            self._begin_s = self._end_s + float(self._rng.exponential(self._up_s))
            self._end_s = self._begin_s + float(self._rng.exponential(self._down_s))
        return self._end_s if self._begin_s <= now_s else now_s


class Link:
    """A link of a run.

    Parameters
    ----------
    env : simpy.Environment
    rules : LinkRules
    seed : int
    """

    def __init__(self, env: simpy.Environment, rules: LinkRules, seed: int) -> None:
        self.env = env
        self.rules = rules
        self._seed = seed
        r = rules
        self._outages = None
        if r.outage_every_s is not None and r.outage_s is not None:
            self._outages = Outages(r.outage_every_s, r.outage_s, keyed(seed, OUTAGE_STREAM, 0, 0))

    def jitter_s(self, number: int, step: int, kind: int) -> tuple[float, float]:
        """Extra seconds of a request's way there and back; its mean is in the round trip and so taken off here."""
        law = self.rules.jitter
        if law is None:
            return 0.0, 0.0
        half = self.rules.jitter_s / 2.0
        there, back = keyed(self._seed, JITTER_STREAM, number, step, kind).random(2).tolist()
        return half * (law.quantile(there) - 1.0), half * (law.quantile(back) - 1.0)

    def wait(self) -> Generator[simpy.Event, object, float]:
        """Wait until the link takes what is sent; returns the seconds.

        Raises
        ------
        Ended
            After the last retry the link is still down.
        """
        if self._outages is None:
            return 0.0
        since_s = self.env.now
        for retry in range(self.rules.retries + 1):
            if retry and self.rules.backoff_s > 0:
                yield self.env.timeout(self.rules.backoff_s * 2.0 ** (retry - 1))
            left_s = self._outages.up_at(self.env.now) - self.env.now
            limit_s = self.rules.timeout_s
            if left_s <= 0:
                return float(self.env.now - since_s)
            yield self.env.timeout(left_s if limit_s is None else min(left_s, limit_s))
            if limit_s is None or left_s <= limit_s:
                return float(self.env.now - since_s)
        raise Ended(f"the link was down for {self.env.now - since_s:g} s, {self.rules.retries} retries included")
