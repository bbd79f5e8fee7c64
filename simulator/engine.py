"""One engine replica over time: a SimPy process that runs batches of the `Scheduler` at the price of a cost model.

Start with `Engine.run`. One event per iteration, or per run of iterations: between arrivals and finishes the engine
skips ahead over decode-only iterations, whose seconds the cost model gives in one call. A request that arrives
meanwhile is seen at the end of the iteration in progress, exactly as in the plain loop (`skip_ahead=False`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Generator
from dataclasses import dataclass, field

import numpy as np
import simpy
from simpy.events import NORMAL, EventPriority

from costmodel.cost import QUANTITIES
from costmodel.request import Pass, cached_tokens, saved_by
from hwprofiles.errors import InputError
from simulator.jobs import EngineCost, EngineJob, JobResult, LogEntry, Shares
from simulator.kvcache import KvLedger
from simulator.scheduler import Batch, InFlight, Scheduler


class Instant(simpy.Event):
    """An event that comes after every ordinary one of its instant: all arrivals of an instant join the same batch."""

    def fire(self, delay_s: float = 0.0) -> None:
        """Happen `delay_s` from now."""
        self._ok = True
        self._value = None
        self.env.schedule(self, priority=EventPriority(NORMAL + 1), delay=delay_s)


@dataclass(slots=True, eq=False)
class _Ticket:
    """The record of a job under way."""

    job: EngineJob
    done: simpy.Event
    submit_s: float
    ready_s: float
    start_s: float = math.nan
    first_token_s: float = math.nan
    cached_tokens: int = 0
    prefill: list[tuple[Pass, Shares]] = field(default_factory=list)
    pass_s: list[float] = field(default_factory=list)
    decode: Shares = field(default_factory=lambda: np.zeros(len(QUANTITIES)))
    decode_s: float = 0.0


class Engine:
    """One replica of a deployment, serving jobs in continuous batches.

    Parameters
    ----------
    env : simpy.Environment
        The clock, in seconds.
    cost : EngineCost
        Price of an iteration and limits of the deployment.
    shared_tokens : int
        Leading tokens that every job may reuse from the start: computed beforehand, held once in the KV cache.
    skip_ahead : bool
        False runs every iteration as an event of its own; the results are the same.
    keep_log : bool
        Keep a `LogEntry` per iteration or run of iterations in `log`.

    Raises
    ------
    InputError
        For limits under which an engine cannot work.

    Limits
    ------
    Host time of different requests overlaps freely; scheduling follows arrival order only (no priorities). After a
    skipped run is cut short its old end stays on the calendar as an empty event, so run to an event or a time.
    """

    def __init__(
        self,
        env: simpy.Environment,
        cost: EngineCost,
        *,
        shared_tokens: int = 0,
        skip_ahead: bool = True,
        keep_log: bool = False,
    ) -> None:
        rule = cost.rule
        if cost.max_seqs < 1 or rule.chunk_tokens < cost.max_seqs:
            raise InputError(
                f"max_seqs must be between 1 and the token budget of a step ({rule.chunk_tokens}), got {cost.max_seqs}"
            )
        if rule.state_aligned and rule.chunk_tokens < rule.block_tokens:
            raise InputError(f"token budget {rule.chunk_tokens} is below the cache block of {rule.block_tokens} tokens")
        self.env = env
        self.cost = cost
        self.ledger = KvLedger(cost.kv_tokens, shared_tokens=shared_tokens)
        self.log: list[LogEntry] = []
        self.busy_s = 0.0
        self.n_submitted = self.n_finished = self.n_rejected = 0
        self._scheduler = Scheduler(rule, self.ledger, cost.max_seqs)
        self._tickets: dict[InFlight, _Ticket] = {}
        self._skip_ahead = skip_ahead
        self._keep_log = keep_log
        self._idle: Instant | None = None
        self._open = False
        self._ends_s: list[float] = []
        self._process = env.process(self.run())

    @property
    def n_running(self) -> int:
        """Jobs in the running batch."""
        return len(self._scheduler.running)

    @property
    def n_waiting(self) -> int:
        """Jobs in the queue."""
        return len(self._scheduler.waiting)

    @property
    def n_outstanding(self) -> int:
        """Jobs submitted and not finished: in their host time, waiting or running."""
        return self.n_submitted - self.n_finished - self.n_rejected

    def submit(self, job: EngineJob) -> simpy.Event:
        """Hand in a job; the event's value is its `JobResult`.

        Raises
        ------
        InputError
            When the job is empty or can never fit the KV cache.
        """
        self.n_submitted += 1
        try:
            self._check(job)
            host_s = _seconds(self.cost.request_s(job.prompt_tokens))
        except InputError:
            self.n_rejected += 1
            raise
        done = self.env.event()
        ticket = _Ticket(job, done, self.env.now, self.env.now + host_s)
        if host_s > 0:
            self.env.timeout(host_s).callbacks.append(lambda _: self._enter(ticket))
        else:
            self._enter(ticket)
        return done

    def run(self) -> Generator[simpy.Event, object, None]:
        """Serve for ever: form a batch, let its time pass, book it, retire what is done; sleep when idle."""
        wake = Instant(self.env)
        wake.fire()
        yield wake
        while True:
            if not self._tickets:
                self._idle = Instant(self.env)
                yield self._idle
            batch = self._scheduler.form()
            if not (batch.decodes or batch.prefills):
                raise InputError(f"the engine cannot progress: {self.n_waiting} jobs wait and none can run")
            start_s = self.env.now
            contexts = [seq.computed_tokens for seq in batch.decodes]
            shares = self._price(batch, contexts)
            self._open = batch.open
            while True:
                wake = Instant(self.env)
                wake.fire(self._ends_s[-1] - self.env.now)
                try:
                    yield wake
                    break
                except simpy.Interrupt:
                    continue
            self._book(batch, contexts, shares, start_s)

    def _price(self, batch: Batch, contexts: list[int]) -> Shares | None:
        """Set the ends of the iterations of `batch`; shares of a single one, None for a run (its length may change)."""
        now = self.env.now
        if self._skip_ahead and batch.n_steps > 1:
            seconds = self.cost.decode_run_s(contexts, batch.n_steps)
            _seconds(float(seconds.min()))
            self._ends_s = np.add.accumulate(np.concatenate(([now], seconds)))[1:].tolist()
            _seconds(self._ends_s[-1])
            return None
        time_s, shares = self.cost.step([part for _, part in batch.prefills], contexts)
        self._ends_s = [now + _seconds(time_s)]
        return shares

    def _book(self, batch: Batch, contexts: list[int], shares: Shares | None, start_s: float) -> None:
        now = self.env.now
        n_steps = len(self._ends_s)
        if shares is None:
            shares = self.cost.decode_run_shares(contexts, n_steps)
        n_prefills = len(batch.prefills)
        for i, (seq, part) in enumerate(batch.prefills):
            ticket = self._tickets[seq]
            if math.isnan(ticket.start_s):
                ticket.start_s = start_s
                ticket.cached_tokens = seq.cached_tokens
            if part.emits and math.isnan(ticket.first_token_s):
                ticket.first_token_s = now
            ticket.prefill.append((part, shares[i].copy()))
            ticket.pass_s.append(now - start_s)
        for i, seq in enumerate(batch.decodes):
            ticket = self._tickets[seq]
            ticket.decode += shares[n_prefills + i]
            ticket.decode_s += now - start_s
        self.busy_s += now - start_s
        for seq in self._scheduler.advance(batch, n_steps):
            self._finish(seq)
        if self._keep_log:
            n_prefill_tokens = sum(part.new_tokens for _, part in batch.prefills)
            kv_used = self.ledger.allocated_blocks * self.ledger.page_tokens
            row = (start_s, now - start_s, n_steps, n_prefill_tokens, len(batch.decodes), kv_used, self.n_waiting)
            self.log.append(LogEntry(*row))

    def _enter(self, ticket: _Ticket) -> None:
        """Join the queue: wake an idle engine, or end a run of iterations at the end of the one in progress."""
        job = ticket.job
        seq = InFlight(job.key, job.prompt_tokens, job.reusable_tokens, job.output_tokens, job.prompt_tokens)
        self._tickets[seq] = ticket
        self._scheduler.waiting.append(seq)
        if self._idle is not None:
            self._idle.fire()
            self._idle = None
        elif self._open and len(self._ends_s) > 1:
            n_steps = bisect_left(self._ends_s, self.env.now) + 1
            if n_steps < len(self._ends_s):
                del self._ends_s[n_steps:]
                self._process.interrupt()

    def _finish(self, seq: InFlight) -> None:
        ticket = self._tickets.pop(seq)
        job = ticket.job
        saved = saved_by(self.cost.rule, seq.cached_tokens, tuple(seq.passes), job.prompt_tokens, job.output_tokens)
        self.n_finished += 1
        ticket.done.succeed(
            JobResult(
                job=job,
                submit_s=ticket.submit_s,
                ready_s=ticket.ready_s,
                start_s=ticket.start_s,
                first_token_s=ticket.first_token_s,
                finish_s=self.env.now,
                cached_tokens=ticket.cached_tokens,
                saved_tokens=saved,
                n_preemptions=seq.n_preemptions,
                prefill=tuple(ticket.prefill),
                pass_s=tuple(ticket.pass_s),
                decode=ticket.decode,
                decode_s=ticket.decode_s,
            )
        )

    def _check(self, job: EngineJob) -> None:
        if job.prompt_tokens < 1 or job.output_tokens < 1 or job.reusable_tokens < 0:
            raise InputError(f"a job needs prompt and output tokens >= 1 and reusable tokens >= 0, got {job}")
        needed = job.prompt_tokens + job.output_tokens - 1
        ledger = self.ledger
        shared = cached_tokens(self.cost.rule, job.prompt_tokens, min(job.reusable_tokens, ledger.shared_tokens))
        if ledger.own_blocks(needed, shared) > ledger.total_blocks - ledger.shared_blocks:
            raise InputError(
                f"a request of {needed} tokens (prompt {job.prompt_tokens}, output {job.output_tokens}) can never fit "
                f"the KV cache of {ledger.total_blocks * ledger.page_tokens} tokens"
            )


def _seconds(value: float) -> float:
    if not 0 <= value < math.inf:
        raise InputError(f"a cost model must give finite seconds >= 0, got {value}")
    return float(value)
