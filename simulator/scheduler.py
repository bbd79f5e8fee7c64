"""Which sequences run in the next engine iteration: continuous batching as in vLLM v1, without a clock or a cost.

`form` picks a batch, `advance` books what it computed and returns the sequences that are done. Running sequences go
first (decodes, then unfinished prompts), then the queue in order of arrival; a queue head that does not fit blocks
those behind it. When blocks run out the sequence admitted last is preempted: it gives up its blocks, returns to the
head of the queue and recomputes its prompt and output so far, less what the prefix cache still holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from costmodel.request import CacheRule, Pass, cached_tokens, next_chunk
from simulator.kvcache import Holding, KvLedger


@dataclass(slots=True, eq=False)
class InFlight:
    """One request between its arrival in the queue and its last token.

    `goal_tokens` is the prompt plus, after a preemption, the output to recompute; `passes` counts from the last
    admission and `saved_tokens` are the prefix lengths whose recurrent state its blocks hold.
    """

    key: Hashable
    prompt_tokens: int
    reusable_tokens: int
    output_tokens: int
    goal_tokens: int
    computed_tokens: int = 0
    emitted_tokens: int = 0
    cached_tokens: int = 0
    n_preemptions: int = 0
    passes: list[Pass] = field(default_factory=list)
    saved_tokens: tuple[int, ...] = ()
    holding: Holding | None = None

    @property
    def is_decoding(self) -> bool:
        """The prompt is computed and output is left to decode."""
        return self.computed_tokens >= self.goal_tokens


@dataclass(slots=True)
class Batch:
    """One iteration: one token of each of `decodes`, one pass of each of `prefills`.

    The same batch can run `n_steps` times in a row, unless a request arrives at an `open` queue in between.
    """

    decodes: list[InFlight]
    prefills: list[tuple[InFlight, Pass]]
    n_steps: int = 1
    open: bool = False


class Scheduler:
    """Waiting queue, running list and KV ledger of one replica.

    Parameters
    ----------
    rule : CacheRule
        Token budget of an iteration and prefix-cache granularity.
    ledger : KvLedger
        Must be able to hold every request by itself.
    max_seqs : int
        Most sequences running at once.
    """

    def __init__(self, rule: CacheRule, ledger: KvLedger, max_seqs: int) -> None:
        self.rule = rule
        self.ledger = ledger
        self.max_seqs = max_seqs
        self.waiting: deque[InFlight] = deque()
        self.running: list[InFlight] = []

    def form(self) -> Batch:
        """The next batch; its sequences hold the blocks they need. Empty only when nothing can run."""
        budget = self.rule.chunk_tokens
        n_running = len(self.running)
        decodes, prefills = self._continue_running()
        if len(self.running) == n_running:
            budget -= len(decodes) + sum(p.new_tokens for _, p in prefills)
            prefills += self._admit(budget)
        batch = Batch(decodes, prefills, open=not self.waiting and len(self.running) < self.max_seqs)
        if len(self.running) >= n_running and not prefills and decodes:
            batch.n_steps = self._steps_ahead(decodes)
        return batch

    def advance(self, batch: Batch, n_steps: int) -> list[InFlight]:
        """Book `n_steps` iterations of `batch` and retire the sequences that emitted their last token."""
        for seq in batch.decodes:
            seq.computed_tokens += n_steps
            seq.emitted_tokens += n_steps
            if n_steps > 1 and (seq.holding is None or not self.ledger.grow(seq.holding, seq.computed_tokens)):
                raise AssertionError("a run of iterations outgrew the KV cache")
        for seq, part in batch.prefills:
            seq.computed_tokens += part.new_tokens
            seq.passes.append(part)
            seq.emitted_tokens += part.emits
            if self.rule.state_aligned and seq.computed_tokens % self.rule.block_tokens == 0:
                seq.saved_tokens += (seq.computed_tokens,)
        done = [s for s in _sequences(batch) if s.emitted_tokens >= s.output_tokens]
        for seq in done:
            self.running.remove(seq)
            self._release(seq)
        return done

    def _continue_running(self) -> tuple[list[InFlight], list[tuple[InFlight, Pass]]]:
        n_before = len(self.running)
        decodes = [s for s in self.running[:] if s.is_decoding and self._grow(s, s.computed_tokens + 1)]
        prefills: list[tuple[InFlight, Pass]] = []
        budget = self.rule.chunk_tokens - len(decodes)
        if len(decodes) < len(self.running):
            for seq in [s for s in self.running if not s.is_decoding]:
                new = next_chunk(self.rule, seq.goal_tokens, seq.computed_tokens, budget) if budget > 0 else 0
                if new > 0 and seq.holding is not None and self._grow(seq, seq.computed_tokens + new):
                    prefills.append((seq, _part(seq, new)))
                    budget -= new
        if len(self.running) < n_before:
            decodes = [s for s in decodes if s.holding is not None]
            prefills = [(s, p) for s, p in prefills if s.holding is not None]
        return decodes, prefills

    def _admit(self, budget: int) -> list[tuple[InFlight, Pass]]:
        admitted: list[tuple[InFlight, Pass]] = []
        while self.waiting and budget > 0 and len(self.running) < self.max_seqs:
            seq = self.waiting[0]
            hit = self._hit(seq)
            new = next_chunk(self.rule, seq.goal_tokens, hit, budget)
            if new <= 0 or self.ledger.own_blocks(hit + new, hit) > self.ledger.room_blocks:
                break
            self.waiting.popleft()
            self.running.append(seq)
            prefix = self.ledger.find(seq.key)
            seq.saved_tokens = (*(s for s in prefix.saved_tokens if s < hit), hit) if prefix else (hit,)
            seq.holding = self.ledger.claim(seq.key, hit)
            self.ledger.grow(seq.holding, hit + new)
            seq.computed_tokens = seq.cached_tokens = hit
            admitted.append((seq, _part(seq, new)))
            budget -= new
        return admitted

    def _hit(self, seq: InFlight) -> int:
        """Tokens found: what the caller says is reusable, less what was evicted since (state needs a saved length)."""
        prefix = self.ledger.find(seq.key)
        resident = max(prefix.tokens if prefix else 0, self.ledger.shared_tokens)
        reusable = min(seq.reusable_tokens, resident)
        if self.rule.state_aligned and resident < seq.reusable_tokens:
            saved = prefix.saved_tokens if prefix else ()
            reusable = max((s for s in (*saved, self.ledger.shared_tokens) if s <= reusable), default=0)
        return cached_tokens(self.rule, seq.goal_tokens, reusable)

    def _grow(self, seq: InFlight, tokens: int) -> bool:
        """Blocks for `tokens`, preempting from the end of the running list; False when `seq` itself had to go."""
        while seq.holding is not None and not self.ledger.grow(seq.holding, tokens):
            self._preempt(self.running.pop())
        return seq.holding is not None

    def _preempt(self, seq: InFlight) -> None:
        self._release(seq)
        seq.n_preemptions += 1
        seq.reusable_tokens = seq.computed_tokens
        seq.goal_tokens = seq.prompt_tokens + seq.emitted_tokens
        seq.computed_tokens = 0
        seq.passes.clear()
        self.waiting.appendleft(seq)

    def _release(self, seq: InFlight) -> None:
        if seq.holding is not None:
            self.ledger.release(seq.holding, seq.computed_tokens, seq.saved_tokens)
            seq.holding = None

    def _steps_ahead(self, decodes: list[InFlight]) -> int:
        """Iterations until a sequence finishes or blocks run out, the one already paid for included."""
        most = min(s.output_tokens - s.emitted_tokens for s in decodes)
        room = self.ledger.room_blocks
        if self.waiting and len(self.running) < self.max_seqs:
            # A blocked head that loses part of its prefix may need fewer blocks for its first pass, so look again then.
            room = self.ledger.room_before(self.waiting[0].key)
        held = [(s.computed_tokens, s.holding.n_blocks + s.holding.n_shared) for s in decodes if s.holding is not None]

        def fits(n_steps: int) -> bool:
            return sum(max(0, self.ledger.blocks(c + n_steps) - n) for c, n in held) <= room

        if fits(most):
            return most
        low, high = 1, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low


def _part(seq: InFlight, new_tokens: int) -> Pass:
    end = seq.computed_tokens + new_tokens
    return Pass(new_tokens, seq.computed_tokens, end == seq.goal_tokens)


def _sequences(batch: Batch) -> Iterable[InFlight]:
    yield from batch.decodes
    for seq, _ in batch.prefills:
        yield seq
