"""Takes the chosen measurements: sends prompts of random tokens to a target and reads times off the answers.

A prefill point is the time to the one token asked for. A decode point is the time between tokens while all sequences of
the group decode: from the last one's first token to the first one's last; where tokens come in bursts, what longer
answers take more than shorter ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from validate.calibrate_model import Point
from validate.design import DECODE_TOKENS, SIGMA, Limits, repeats_of
from validate.fit_layout import Array

_LEAST_PIECES = 6
"""Pieces of an answer while its whole group decodes, below which no step is read off."""
_LENGTHS = (DECODE_TOKENS, 4 * DECODE_TOKENS)
_SPREAD = 0.3
"""Share of a group's time between its first and its last end, above which it did not decode together."""
_BURST, _ODD = 0.05, 0.25
"""An answer whose decode is a smaller share of its time came in a burst; so did a step that is less of the slowest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One answered request: seconds when it was sent and when each piece of the answer came; counts as reported.

    `cached_tokens` is None where the server does not tell, `output_ids` empty where it does not tell its tokens.
    """

    sent_s: float
    piece_s: tuple[float, ...]
    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int
    output_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server says of itself; None where it does not."""

    model: str
    version: str | None
    block_tokens: int | None
    kv_blocks: int | None
    max_model_tokens: int | None


class Target(Protocol):
    """A server that can be timed."""

    facts: ServerFacts

    async def together(self, prompts: Sequence[Sequence[int]], output_tokens: int) -> list[Timed]:
        """Send all prompts at once, each to be answered with `output_tokens`; the answers in order."""

    def now_s(self) -> float:
        """The clock of the times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A point as it was really served, its median seconds and the log noise of that."""

    point: Point
    seconds: float
    sigma: float


class Prober:
    """Times points on a target.

    Parameters
    ----------
    vocabulary : int
        Token ids are drawn below this.
    block_tokens : int
        Granularity of the prefix cache, for servers that do not report hits.
    seed : int
    """

    def __init__(self, target: Target, vocabulary: int, block_tokens: int, seed: int = 0) -> None:
        self.target, self.block_tokens = target, block_tokens
        self.rng = random.Random(seed)
        self.ids = (min(256, vocabulary // 2), min(vocabulary, 32_000))

    async def measure(
        self,
        points: Sequence[Point],
        budget_s: float,
        progress: Callable[[str], None] = lambda _: None,
        each: Callable[[Sample], None] = lambda _: None,
    ) -> tuple[list[Sample], list[str]]:
        """Samples in order, and notes about the points that could not be timed or for which no time was left.

        `each` is told of every sample as soon as it is there.
        """
        await self._warm_up()
        begun_s = self.target.now_s()
        samples: list[Sample] = []
        said: list[str] = []
        for i, point in enumerate(points):
            if self.target.now_s() - begun_s > budget_s:
                return samples, [*said, f"no time was left for {len(points) - i} of {len(points)} points"]
            progress(f"{i + 1} of {len(points)}: {point.label}")
            sample = await (self._decode(point) if point.kind == "decode" else self._prefill(point))
            if sample is None:
                said.append(f"{point.label}: left out, the server's answers do not overlap enough to time a step")
            else:
                samples.append(sample)
                each(sample)
        return samples, said

    def _tokens(self, n: int) -> list[int]:
        return [self.rng.randrange(*self.ids) for _ in range(n)]

    async def _warm_up(self) -> None:
        """Two requests that are not looked at: kernels compile, connections open."""
        for _ in range(2):
            await self.target.together([self._tokens(64)], 4)

    async def _prefill(self, point: Point) -> Sample | None:
        base = self._tokens(int(point.context_tokens))
        if base:
            await self.target.together([base], 1)
        took: list[float] = []
        served = point
        while not took or len(took) < repeats_of(took[0]):
            (answer,) = await self.target.together([[*base, *self._tokens(point.new_tokens)]], 1)
            if not answer.piece_s:
                return None
            took.append(answer.piece_s[0] - answer.sent_s)
            served = self._served(point, answer)
        return sample_of(served, took)

    def _served(self, point: Point, answer: Timed) -> Point:
        """The point by the server's counts; without them whole blocks of the context are taken as found."""
        cached = answer.cached_tokens
        if cached is None:
            cached = int(point.context_tokens) // self.block_tokens * self.block_tokens
        return replace(point, new_tokens=max(1, answer.prompt_tokens - cached), context_tokens=float(cached))

    async def _decode(self, point: Point) -> Sample | None:
        prompts = [self._tokens(max(1, int(point.context_tokens))) for _ in range(point.batch)]
        await self.target.together(prompts, 1)
        tried: list[list[list[Timed]]] = []
        for n_tokens in _LENGTHS:
            answers: list[list[Timed]] = []
            while not answers or len(answers) < repeats_of(took_s(answers[0])):
                answers.append(await self.target.together(prompts, n_tokens))
            found = [step for step in (between_tokens(one) for one in answers) if step is not None]
            slowest_s = max((s for s, _ in found), default=0.0)
            found = [(s, c) for s, c in found if s >= _ODD * slowest_s]
            if len(found) >= 2:
                context = float(np.mean([c for _, c in found]))
                return sample_of(replace(point, context_tokens=context), [s for s, _ in found])
            tried.append(answers)
        steps = between_lengths(*tried)
        middle = sum(_LENGTHS) / 2 - 1.0
        return sample_of(replace(point, context_tokens=point.context_tokens + middle), steps) if steps else None


def took_s(answers: Sequence[Timed]) -> float:
    """Seconds from sending a group to its last end; infinite where an answer never began."""
    if any(not a.piece_s for a in answers):
        return math.inf
    return max(a.piece_s[-1] for a in answers) - min(a.sent_s for a in answers)


def between_lengths(short: Sequence[Sequence[Timed]], long: Sequence[Sequence[Timed]]) -> list[float]:
    """Seconds of one decode step of a group, from how much longer it takes to the end of longer answers.

    step = (end(long) - median end(short)) / (tokens(long) - tokens(short)) of every repeat of the longer

    What comes before all decode together and after the first has ended is the same for both and cancels, and it does
    not matter when the pieces between came. Empty where an answer is none, where longer ones were not slower, or where
    they ended so far apart that some waited for others.
    """
    if any(not math.isfinite(took_s(g)) for g in (*short, *long)) or any(_in_turns(group) for group in long):
        return []
    few, many = (float(np.mean([a.output_tokens for g in groups for a in g])) for groups in (short, long))
    if many <= few:
        return []
    base_s = float(np.median([took_s(g) for g in short]))
    steps = [(took_s(g) - base_s) / (many - few) for g in long]
    return steps if min(steps) > 0.0 else []


def _in_turns(answers: Sequence[Timed]) -> bool:
    ends = [a.piece_s[-1] for a in answers]
    return max(ends) - min(ends) > _SPREAD * took_s(answers)


def between_tokens(answers: Sequence[Timed]) -> tuple[float, float] | None:
    """Seconds of one decode step of a group, and the mean context in it.

    None where they hardly decoded together, or where pieces were held up on their way and came in bursts: then the
    times say nothing of the steps. Pieces are counted as tokens where there is one each; a server that sends several
    tokens in one is scaled to its own count.
    """
    if any(len(a.piece_s) < _LEAST_PIECES for a in answers):
        return None
    last = max(answers, key=lambda a: a.piece_s[0])
    end_s = min(a.piece_s[-1] for a in answers)
    inside = [t for t in last.piece_s if t <= end_s]
    if len(inside) < _LEAST_PIECES:
        return None
    gaps_s = np.diff(inside)
    if np.median(gaps_s) < 0.5 * np.mean(gaps_s) or inside[-1] - inside[0] < _BURST * (end_s - last.sent_s):
        return None
    per_piece = (last.output_tokens - 1) / (len(last.piece_s) - 1)
    step_s = (inside[-1] - inside[0]) / ((len(inside) - 1) * per_piece)
    middle_s = (inside[0] + inside[-1]) / 2
    grown = [sum(t <= middle_s for t in a.piece_s) * per_piece for a in answers]
    return step_s, float(np.mean([a.prompt_tokens + g for a, g in zip(answers, grown, strict=True)])) - 1.0


def sample_of(point: Point, took: Sequence[float]) -> Sample:
    """The median of some repeats and the noise of it: their own scatter, but no less than `SIGMA`."""
    logs = np.log(np.maximum(1e-9, np.asarray(took)))
    scatter = float(np.std(logs, ddof=1)) if len(took) > 1 else 0.0
    return Sample(point=point, seconds=float(np.exp(np.median(logs))), sigma=max(SIGMA, scatter / len(took) ** 0.5))


def limits(facts: ServerFacts, kv_tokens: int, max_model_tokens: int, max_seqs: int) -> Limits:
    """What the server takes, by its own word where it gives one."""
    told = facts.kv_blocks * facts.block_tokens if facts.kv_blocks and facts.block_tokens else kv_tokens
    return Limits(
        max_model_tokens=min(facts.max_model_tokens or max_model_tokens, max_model_tokens),
        kv_tokens=told,
        max_seqs=min(64, max_seqs),
    )


def arrays(samples: Sequence[Sample]) -> tuple[Array, Array]:
    """Seconds and log noise of samples."""
    return np.array([s.seconds for s in samples]), np.array([s.sigma for s in samples])
