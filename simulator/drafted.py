"""Decoding sequences under token-level speculation: each pass yields E tokens of every sequence, E not a whole number.

A sequence that joined with `c` cached tokens at iteration `i` holds `base + E iteration` of them, `base = c - E i`, and
every pass sees `pass_tokens` more than that. Whole tokens count for output and blocks: floor(passes E).
"""

from __future__ import annotations

import math

from costmodel.request import CacheRule, decode_passes
from costmodel.spans import run_sum
from hwprofiles.errors import InputError
from simulator.decoders import BUSY, Buckets, Decoders
from simulator.inflight import NOTHING, InFlight
from simulator.jobs import EngineCost, Shares


class _Window:
    """Sums over the sequences of one attention window: `growing` ones see more every iteration, `full` ones do not."""

    __slots__ = ("base", "fills", "full", "growing", "rule", "slope", "slope_s", "width")

    def __init__(self, width: int | None, slope: Shares, rule: CacheRule) -> None:
        self.width = width
        self.slope = slope
        self.slope_s = slope[BUSY]
        self.rule = rule
        self.growing = self.full = 0
        self.base = 0.0
        self.fills = Buckets()

    def fills_at(self, seq: InFlight) -> int | None:
        """The first iteration that sees the whole window; None: none does."""
        if self.width is None:
            return None
        return math.ceil((self.width - seq.fluid_base - self.rule.pass_tokens) / self.rule.tokens_per_pass)

    def join(self, seq: InFlight, iteration: int) -> None:
        fills_at = self.fills_at(seq)
        if fills_at is not None and fills_at <= iteration:
            self.full += 1
            return
        self.growing += 1
        self.base += seq.fluid_base
        if fills_at is not None:
            self.fills.add(fills_at, seq)

    def leave(self, seq: InFlight, iteration: int) -> None:
        fills_at = self.fills_at(seq)
        if fills_at is not None and fills_at <= iteration:
            self.full -= 1
            return
        self._stop(seq)
        if fills_at is not None:
            self.fills.discard(fills_at, seq)

    def advance(self, iteration: int) -> None:
        for seq in self.fills.pop(iteration):
            self._stop(seq)
            self.full += 1

    def _stop(self, seq: InFlight) -> None:
        self.growing -= 1
        self.base = self.base - seq.fluid_base if self.growing else 0.0


class DraftedDecoders(Decoders):
    """The decoding sequences of a replica that drafts tokens.

    Raises
    ------
    InputError
        A pass yields more tokens than a block holds.

    Limits
    ------
    Looks at every sequence for the blocks that an iteration needs. Blocks are taken for tokens that a pass keeps, not
    for drafts it rejects.
    """

    def __init__(self, cost: EngineCost, page_tokens: int) -> None:
        super().__init__(cost, page_tokens)
        self._rule = rule = cost.rule
        if rule.tokens_per_pass > page_tokens:
            raise InputError(f"a pass of {rule.tokens_per_pass:g} tokens is more than a block of {page_tokens} tokens")
        self._spans = [_Window(width, slope, rule) for width, slope in cost.slopes if any(slope)]
        self._seqs: dict[InFlight, None] = {}

    def join(self, seq: InFlight, now_s: float) -> None:
        """A sequence whose prompt is computed decodes from the next iteration on."""
        i = self.iteration
        if self.n:
            self._settle()
        else:
            self._spent, self._unspent = [0.0] * len(NOTHING), 0
        self._resize(self.n + 1)
        seq.is_decoding = True
        seq.fluid_base = seq.computed_tokens - self._rule.tokens_per_pass * i
        seq.joined_s, seq.joined, seq.spent = now_s, i, self._spent
        seq.due = i + decode_passes(self._rule, 1 + seq.output_tokens - seq.emitted_tokens)
        self._due.add(seq.due, seq)
        self._seqs[seq] = None
        for window in self._spans:
            window.join(seq, i)

    def leave(self, seq: InFlight, now_s: float) -> None:
        """A sequence is done, dropped or preempted: settle its tokens, time and cost."""
        i, rule = self.iteration, self._rule
        start, n_passes, gained = seq.computed_tokens, i - seq.joined, self._gained(seq, i)
        self._settle()
        self._resize(self.n - 1)
        seq.is_decoding = False
        seq.decode_s += now_s - seq.joined_s
        seq.last_s = now_s
        self._due.discard(seq.due, seq)
        del self._seqs[seq]
        cost = [b - a for a, b in zip(seq.spent, self._spent, strict=True)]
        for window in self._spans:
            window.leave(seq, i)
            seen = float(run_sum(float(start), float(n_passes), window.width, rule.pass_tokens, rule.tokens_per_pass))
            cost = [c + seen * s for c, s in zip(cost, window.slope, strict=True)]
        seq.decode = tuple([a + b for a, b in zip(seq.decode, cost, strict=True)])
        seq.computed_tokens += gained
        seq.emitted_tokens += gained

    def _gained(self, seq: InFlight, iteration: int) -> int:
        """Whole tokens that `seq` has by `iteration` emitted since it joined."""
        passed = (iteration - seq.joined) * self._rule.tokens_per_pass
        return min(int(passed + 1e-6), seq.output_tokens - seq.emitted_tokens)

    def _more_blocks(self, seq: InFlight, n_steps: int) -> int:
        start, page = seq.computed_tokens, self._page
        now = start + self._gained(seq, self.iteration)
        then = start + self._gained(seq, self.iteration + n_steps)
        return -(-then // page) + now // -page

    def next_blocks(self) -> int:
        """Blocks that the next iteration needs."""
        return self.blocks(1)

    def crosses(self, seq: InFlight) -> bool:
        """Whether `seq` needs a block for the next iteration."""
        return self._more_blocks(seq, 1) > 0

    def blocks(self, n_steps: int) -> int:
        """Blocks that the next `n_steps` iterations need in all."""
        return sum([self._more_blocks(seq, n_steps) for seq in self._seqs])

    def uniform_steps(self) -> int:
        """Iterations until one of them finishes or fills a window: over so many, time is a parabola."""
        due = self._due.first()
        assert due is not None
        fills = [window.fills.first() for window in self._spans]
        return min([due, *(f for f in fills if f is not None)]) - self.iteration

    def rate_s(self) -> tuple[float, float]:
        """Seconds of the next iteration if it only decodes, and what every further one takes longer than the last."""
        first, more, each = self._fixed_s, 0.0, self._rule.tokens_per_pass
        for window in self._spans:
            seen = window.base + window.growing * (self.iteration * each + self._rule.pass_tokens)
            if window.full and window.width is not None:
                seen += window.full * window.width
            first += window.slope_s * seen
            more += window.slope_s * window.growing * each
        return first, more

    def advance(self, n_steps: int) -> list[InFlight]:
        """Let `n_steps` iterations pass; returns those that are due."""
        self._unspent += n_steps
        self.iteration += n_steps
        for window in self._spans:
            window.advance(self.iteration)
        return self._due.pop(self.iteration)
