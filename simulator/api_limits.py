"""Rate limits of a priced API: token buckets for requests and tokens, waited for or refused and tried again."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import simpy

from hwprofiles.errors import InputError
from simulator.world import Ended, keyed

RETRY_STREAM = 5
_FULL = 1.0 - 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRules:
    """Limits of one API key.

    Parameters
    ----------
    requests_per_min, tokens_per_min : float or None
        Rates; each bucket holds one minute's worth and is full at the start.
    retries : int or None
        None: requests wait their turn, first come first served, as behind a client-side limiter. Else a refused one is
        sent again, up to `retries` times, after max(what the provider says, `backoff_s * 2^k`) * (1 + U / 2): the
        bucket's own refill, with a random part as clients have it, so that they do not all come back at once.
    """

    requests_per_min: float | None = None
    tokens_per_min: float | None = None
    retries: int | None = None
    backoff_s: float = 0.0


class TokenBucket:
    """`per_min` units a minute up to one minute's worth; taking more than is there leaves a debt to wait for."""

    __slots__ = ("_at_s", "level", "per_s", "size")

    def __init__(self, per_min: float) -> None:
        self.size = max(per_min, 1.0)
        self.per_s = per_min / 60.0
        self.level = self.size
        self._at_s = 0.0

    def wait_s(self, now_s: float, amount: float) -> float:
        """Seconds until `amount` is there, if nobody else takes any."""
        self.level = min(self.size, self.level + (now_s - self._at_s) * self.per_s)
        self._at_s = now_s
        return 0.0 if self.level >= amount * _FULL else (amount - self.level) / self.per_s

    def take(self, amount: float) -> None:
        """Take `amount`, into debt if need be."""
        self.level -= amount


class Gate:
    """The limits of one role's API in a run."""

    def __init__(self, env: simpy.Environment, rules: LimitRules, seed: int, role: str) -> None:
        self.env = env
        self.rules = rules
        self._seed = seed
        self._role = role
        self._requests = None if rules.requests_per_min is None else TokenBucket(rules.requests_per_min)
        self._tokens = None if rules.tokens_per_min is None else TokenBucket(rules.tokens_per_min)
        self._n = 0

    def enter(self, tokens: int) -> Generator[simpy.Event, object, float]:
        """Wait until a request of `tokens` is let in; returns the seconds.

        Raises
        ------
        InputError
            It has more tokens than a bucket holds, so it can never be let in.
        Ended
            It was refused once more than `retries` allows.
        """
        if self._tokens is not None and tokens > self._tokens.size:
            raise InputError(
                f"a request of {tokens} tokens can never pass {self._role}.limits.tokens_per_min = "
                f"{self._tokens.size:g}"
            )
        since_s = self.env.now
        self._n += 1
        number = self._n
        for attempt in range((self.rules.retries or 0) + 1):
            wait_s = self._wait_s(tokens)
            if wait_s <= 0 or self.rules.retries is None:
                self._take(tokens)
                if wait_s > 0:
                    yield self.env.timeout(wait_s)
                return float(self.env.now - since_s)
            if attempt < self.rules.retries:
                more = 1.0 + float(keyed(self._seed, RETRY_STREAM, number, attempt).random()) / 2.0
                yield self.env.timeout(max(wait_s, self.rules.backoff_s * 2.0**attempt) * more)
        raise Ended(
            f"{self._role}: the API's rate limit refused a request {(self.rules.retries or 0) + 1} times in "
            f"{self.env.now - since_s:g} s"
        )

    def _wait_s(self, tokens: int) -> float:
        now_s = self.env.now
        waits = [0.0 if self._requests is None else self._requests.wait_s(now_s, 1.0)]
        waits += [] if self._tokens is None else [self._tokens.wait_s(now_s, float(tokens))]
        return max(waits)

    def _take(self, tokens: int) -> None:
        if self._requests is not None:
            self._requests.take(1.0)
        if self._tokens is not None:
            self._tokens.take(float(tokens))
