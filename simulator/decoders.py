"""All sequences of a replica that decode, as sums: what an iteration costs them, and when the next of them finishes.

Every decoding sequence emits one token in every iteration, so all of them share one counter of iterations. One that
joined with `c` cached tokens at iteration `i` holds `base + iteration` of them, `base = c - i`; its last token, the
iterations at which it needs another block, and the one at which it fills an attention window are known when it joins.
Nothing below looks at every sequence.
"""

from __future__ import annotations

from heapq import heappop, heappush

from costmodel.cost import QUANTITIES
from simulator.inflight import NOTHING, InFlight
from simulator.jobs import EngineCost, Shares

BUSY = QUANTITIES.index("busy_s")


class Buckets:
    """Sequences by the iteration at which something happens to them."""

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[int, list[InFlight]] = {}
        self._heap: list[int] = []

    def add(self, iteration: int, seq: InFlight) -> None:
        """Note that something happens to `seq` at `iteration`."""
        found = self._at.get(iteration)
        if found is None:
            self._at[iteration] = [seq]
            heappush(self._heap, iteration)
        else:
            found.append(seq)

    def discard(self, iteration: int, seq: InFlight) -> None:
        """Forget it, if it is still noted."""
        found = self._at.get(iteration)
        if found is not None and seq in found:
            found.remove(seq)

    def first(self) -> int | None:
        """The next iteration at which something happens."""
        heap = self._heap
        while heap:
            if self._at[heap[0]]:
                return heap[0]
            del self._at[heappop(heap)]
        return None

    def pop(self, iteration: int) -> list[InFlight]:
        """Those whose time has come, in the order in which they were added."""
        heap, found = self._heap, []
        while heap and heap[0] <= iteration:
            found += self._at.pop(heappop(heap))
        return found


class _Window:
    """Sums over the sequences of one attention window: `growing` ones see more every iteration, `full` ones do not."""

    __slots__ = ("base", "fills", "full", "growing", "slope", "slope_s", "width")

    def __init__(self, width: int | None, slope: Shares) -> None:
        self.width = width
        self.slope = slope
        self.slope_s = slope[BUSY]
        self.growing = self.base = self.full = 0
        self.fills = Buckets()

    def join(self, seq: InFlight, iteration: int) -> None:
        if self.width is None or seq.base + iteration + 1 < self.width:
            self.growing += 1
            self.base += seq.base
            if self.width is not None:
                self.fills.add(self.width - seq.base - 1, seq)
        else:
            self.full += 1

    def leave(self, seq: InFlight, iteration: int) -> None:
        if self.width is None or seq.base + iteration + 1 < self.width:
            self.growing -= 1
            self.base -= seq.base
            if self.width is not None:
                self.fills.discard(self.width - seq.base - 1, seq)
        else:
            self.full -= 1

    def advance(self, iteration: int) -> None:
        for seq in self.fills.pop(iteration):
            self.growing -= 1
            self.base -= seq.base
            self.full += 1


class Decoders:
    """The decoding sequences of one replica.

    Parameters
    ----------
    cost : EngineCost
    page_tokens : int
        Tokens of one KV block.

    Limits
    ------
    A sequence's part of the fixed costs is a difference of running sums, which start anew whenever nobody decodes: its
    relative error is 1e-16 times the iterations since then over its own.
    """

    def __init__(self, cost: EngineCost, page_tokens: int) -> None:
        self.n = 0
        self.iteration = 0
        self.crossing = [0] * page_tokens
        self._cost = cost
        self._page = page_tokens
        self._due = Buckets()
        self._windows = [_Window(width, slope) for width, slope in cost.slopes if any(slope)]
        self._clipped = any(window.width is not None for window in self._windows)
        self._spent = [0.0] * len(QUANTITIES)
        self._unspent = 0
        self._fixed_s, self._per = 0.0, NOTHING
        self._fixed: dict[int, tuple[float, Shares]] = {}

    def join(self, seq: InFlight, now_s: float) -> None:
        """A sequence whose prompt is computed decodes from the next iteration on."""
        i = self.iteration
        if self.n:
            self._settle()
        else:
            self._spent, self._unspent = [0.0] * len(QUANTITIES), 0
        self._resize(self.n + 1)
        seq.is_decoding = True
        seq.base = base = seq.computed_tokens - i
        seq.joined_s, seq.joined, seq.spent = now_s, i, self._spent
        seq.due = i + seq.output_tokens - seq.emitted_tokens
        self._due.add(seq.due, seq)
        self.crossing[-base % self._page] += 1
        for window in self._windows:
            window.join(seq, i)

    def leave(self, seq: InFlight, now_s: float) -> None:
        """A sequence is done, dropped or preempted: settle its tokens, time and cost."""
        i = self.iteration
        n_steps = i - seq.joined
        start = seq.base + seq.joined
        self._settle()
        self._resize(self.n - 1)
        seq.is_decoding = False
        seq.computed_tokens = start + n_steps
        seq.emitted_tokens += n_steps
        seq.decode_s += now_s - seq.joined_s
        seq.last_s = now_s
        self._due.discard(seq.due, seq)
        self.crossing[-seq.base % self._page] -= 1
        seen, slope = 0, NOTHING
        if self._windows:
            window = self._windows[0]
            window.leave(seq, i)
            seen, slope = _seen(start, n_steps, window.width), window.slope
        columns = zip(seq.spent, self._spent, slope)  # noqa: B905  # equal by construction, and hot
        cost = [b - a + seen * s for a, b, s in columns]
        for window in self._windows[1:]:
            window.leave(seq, i)
            seen = _seen(start, n_steps, window.width)
            cost = [c + seen * s for c, s in zip(cost, window.slope)]  # noqa: B905  # as above
        if seq.decode is not NOTHING:
            cost = [a + b for a, b in zip(seq.decode, cost, strict=True)]
        seq.decode = tuple(cost)

    def _settle(self) -> None:
        """Bring the running sums up to the present iteration."""
        k = self._unspent
        if k:
            self._spent = [a + k * b for a, b in zip(self._spent, self._per)]  # noqa: B905  # as above
            self._unspent = 0

    def _resize(self, n: int) -> None:
        self.n = n
        found = self._fixed.get(n)
        if found is None:
            fixed = self._cost.decode_fixed(n) if n else NOTHING
            found = self._fixed[n] = fixed[BUSY], tuple([x / max(1, n) for x in fixed])
        self._fixed_s, self._per = found

    def next_blocks(self) -> int:
        """Blocks that the next iteration needs."""
        return self.crossing[self.iteration % self._page]

    def crosses(self, seq: InFlight) -> bool:
        """Whether `seq` needs a block for the next iteration."""
        return (seq.base + self.iteration) % self._page == 0

    def blocks(self, n_steps: int) -> int:
        """Blocks that the next `n_steps` iterations need in all."""
        page = self._page
        cycles, rest = divmod(n_steps, page)
        at = self.iteration % page
        some = self.crossing[at : at + rest]
        if at + rest > page:
            some += self.crossing[: at + rest - page]
        return cycles * self.n + sum(some)

    def uniform_steps(self) -> int:
        """Iterations until one of them finishes or fills a window: over so many, time is a parabola."""
        due = self._due.first()
        assert due is not None
        most = due - self.iteration
        if self._clipped:
            for window in self._windows:
                fills = window.fills.first()
                if fills is not None:
                    most = min(most, fills - self.iteration)
        return most

    def rate_s(self) -> tuple[float, float]:
        """Seconds of the next iteration if it only decodes, and what every further one takes longer than the last."""
        first, more = self._fixed_s, 0.0
        for window in self._windows:
            seen = window.base + window.growing * (self.iteration + 1)
            if window.full and window.width is not None:
                seen += window.full * window.width
            first += window.slope_s * seen
            more += window.slope_s * window.growing
        return first, more

    def advance(self, n_steps: int) -> list[InFlight]:
        """Let `n_steps` iterations pass; returns those that are due."""
        self._unspent += n_steps
        self.iteration = i = self.iteration + n_steps
        if self._clipped:
            for window in self._windows:
                window.advance(i)
        return self._due.pop(i)


def _seen(start: int, n: int, width: int | None) -> int:
    """Sum of min(x, width) for x = start + 1 .. start + n."""
    if width is None:
        return n * start + n * (n + 1) // 2
    linear = min(max(width - start, 0), n)
    return linear * start + linear * (linear + 1) // 2 + (n - linear) * width
