"""Which sequences run in the next engine iteration: continuous batching as in vLLM v1, without a clock or a cost.

`form` picks a batch, `advance` books what it computed and returns the sequences that are done. Running sequences go
first (decodes, then unfinished prompts), then the queue in order of arrival; a queue head that does not fit blocks
those behind it. When blocks run out the sequence admitted last is preempted: it gives up its blocks, returns to the
head of the queue and recomputes its prompt and output so far, less what the prefix cache still holds.
"""

from __future__ import annotations

from collections import deque

from costmodel.request import CacheRule, Pass, cached_tokens, next_chunk
from simulator.decoders import Decoders
from simulator.inflight import InFlight
from simulator.iterations import Batch
from simulator.kvcache import KvLedger


class Scheduler:
    """Waiting queue, running sequences and KV ledger of one replica.

    Parameters
    ----------
    rule : CacheRule
        Token budget of an iteration and prefix-cache granularity.
    ledger : KvLedger
        Must be able to hold every request by itself.
    decoders : Decoders
        Of the same page size.
    max_seqs : int
        Most sequences running at once.
    """

    def __init__(self, rule: CacheRule, ledger: KvLedger, decoders: Decoders, max_seqs: int) -> None:
        self.rule = rule
        self.ledger = ledger
        self.decoders = decoders
        self.max_seqs = max_seqs
        self.waiting: deque[InFlight] = deque()
        self.running: dict[InFlight, None] = {}
        self.prefilling: list[InFlight] = []

    def form(self, now_s: float) -> Batch:
        """The next batch; its sequences hold the blocks they need. Empty only when nothing can run."""
        decoders, waiting, running = self.decoders, self.waiting, self.running
        n_running = len(running)
        if decoders.n and (needed := decoders.next_blocks()):
            self._grow_decoders(needed, now_s)
        prefills: list[tuple[InFlight, Pass]] = []
        if waiting or self.prefilling:
            budget = self.rule.chunk_tokens - decoders.n * self.rule.pass_tokens
            if self.prefilling:
                budget = self._continue_prefills(prefills, budget, now_s)
            if waiting and len(running) >= n_running:
                self._admit(prefills, budget)
        n_steps = 1
        if not prefills and decoders.n and len(running) >= n_running:
            n_steps = self._steps_ahead()
        return Batch(decoders.n, prefills, n_steps, not waiting and len(running) < self.max_seqs, now_s)

    def advance(self, batch: Batch, now_s: float) -> list[InFlight]:
        """Book the iterations of `batch`, ended at `now_s`; retires and returns the sequences that are done."""
        done: list[InFlight] = []
        decoders = self.decoders
        if batch.n_decode:
            n_steps = batch.n_steps
            if n_steps > 1:
                self.ledger.take(decoders.blocks(n_steps) - decoders.next_blocks())
            done = decoders.advance(n_steps)
            for seq in done:
                self.drop(seq, now_s)
        for seq, part in batch.prefills:
            seq.computed_tokens += part.new_tokens
            seq.passes.append(part)
            if self.rule.state_aligned and seq.computed_tokens % self.rule.block_tokens == 0:
                seq.saved_tokens += (seq.computed_tokens,)
            if part.emits:
                seq.emitted_tokens += 1
                if seq.emitted_tokens >= seq.output_tokens:
                    self.drop(seq, now_s)
                    done.append(seq)
                else:
                    self.prefilling.remove(seq)
                    decoders.join(seq, now_s)
        return done

    def drop(self, seq: InFlight, now_s: float) -> None:
        """Take a running sequence out; what it computed becomes the cached prefix of its key."""
        del self.running[seq]
        self._release(seq, 0, now_s)

    def _grow_decoders(self, needed: int, now_s: float) -> None:
        """A block for each of the `needed` decoding sequences, preempting from the end of the running ones."""
        decoders, ledger = self.decoders, self.ledger
        if needed <= ledger.free_blocks + ledger.cached_blocks:
            ledger.take(needed)
            return
        for seq in [s for s in self.running if s.is_decoding and decoders.crosses(s)]:
            while ledger.room_blocks < 1 and seq in self.running:
                self._preempt(0, now_s)
            if seq in self.running:
                ledger.take(1)

    def _continue_prefills(self, prefills: list[tuple[InFlight, Pass]], budget: int, now_s: float) -> int:
        """Passes of the unfinished prompts into `prefills`; returns the budget that is left."""
        n_running = len(self.running)
        for seq in list(self.prefilling):
            if seq.holding is None or budget <= 0:
                continue
            new = next_chunk(self.rule, seq.goal_tokens, seq.computed_tokens, budget)
            if new <= 0:
                continue
            holding = seq.holding
            while seq in self.running and not self.ledger.grow(holding, seq.computed_tokens + new):
                self._preempt(1, now_s)
            if seq in self.running:
                prefills.append((seq, _part(seq, new)))
                budget -= new
        if len(self.running) < n_running:
            prefills[:] = [(s, p) for s, p in prefills if s.holding is not None]
        return budget

    def _admit(self, prefills: list[tuple[InFlight, Pass]], budget: int) -> None:
        waiting, ledger, rule = self.waiting, self.ledger, self.rule
        while waiting and budget > 0 and len(self.running) < self.max_seqs:
            seq = waiting[0]
            prefix = ledger.find(seq.key)
            hit = self._hit(seq, prefix.tokens if prefix else 0, prefix.saved_tokens if prefix else ())
            new = next_chunk(rule, seq.goal_tokens, hit, budget)
            room = ledger.free_blocks + ledger.cached_blocks
            if new <= 0 or ledger.own_blocks(hit + new, hit) > room:
                break
            waiting.popleft()
            seq.is_queued = False
            self.running[seq] = None
            self.prefilling.append(seq)
            if rule.state_aligned:
                seq.saved_tokens = (*(s for s in prefix.saved_tokens if s < hit), hit) if prefix else (hit,)
            seq.holding = ledger.claim(seq.key, hit)
            ledger.grow(seq.holding, hit + new)
            seq.computed_tokens = seq.cached_tokens = hit
            prefills.append((seq, _part(seq, new)))
            budget -= new

    def _hit(self, seq: InFlight, tokens: int, saved: tuple[int, ...]) -> int:
        """Tokens found: what the caller says is reusable, less what was evicted since (state needs a saved length)."""
        shared = self.ledger.shared_tokens
        resident = tokens if tokens > shared else shared
        reusable = seq.reusable_tokens if seq.reusable_tokens < resident else resident
        if self.rule.state_aligned and resident < seq.reusable_tokens:
            reusable = max((s for s in (*saved, shared) if s <= reusable), default=0)
        return cached_tokens(self.rule, seq.goal_tokens, reusable)

    def _preempt(self, granted_blocks: int, now_s: float) -> None:
        """The sequence admitted last goes back to the queue; `granted_blocks`: decoders have the next iteration's."""
        seq, _ = self.running.popitem()
        self._release(seq, granted_blocks, now_s)
        seq.n_preemptions += 1
        seq.reusable_tokens = seq.computed_tokens
        seq.goal_tokens = seq.prompt_tokens + seq.emitted_tokens
        seq.computed_tokens = 0
        seq.passes.clear()
        seq.is_queued = True
        self.waiting.appendleft(seq)

    def _release(self, seq: InFlight, granted_blocks: int, now_s: float) -> None:
        holding = seq.holding
        assert holding is not None
        if seq.is_decoding:
            granted = granted_blocks if granted_blocks and self.decoders.crosses(seq) else 0
            self.decoders.leave(seq, now_s)
            holding.n_blocks = self.ledger.blocks(seq.computed_tokens) + granted - holding.n_shared
        else:
            self.prefilling.remove(seq)
        self.ledger.release(holding, seq.computed_tokens, seq.saved_tokens)
        seq.holding = None

    def _steps_ahead(self) -> int:
        """Iterations until a sequence finishes or blocks run out, the one already paid for included."""
        decoders = self.decoders
        most = decoders.uniform_steps()
        if most <= 1:
            return 1
        room = self.ledger.free_blocks + self.ledger.cached_blocks + decoders.next_blocks()
        if self.waiting and len(self.running) < self.max_seqs:
            # A blocked head that loses part of its prefix may need fewer blocks for its first pass, so look again then.
            room = self.ledger.room_before(self.waiting[0].key) + decoders.next_blocks()
        each = int(most * self.rule.tokens_per_pass) // self.ledger.page_tokens + 1
        if decoders.n * each <= room or decoders.blocks(most) <= room:
            return most
        low, high = 1, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if decoders.blocks(middle) <= room else (low, middle)
        return low


def _part(seq: InFlight, new_tokens: int) -> Pass:
    end = seq.computed_tokens + new_tokens
    return Pass(new_tokens, seq.computed_tokens, end == seq.goal_tokens)
