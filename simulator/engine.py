"""One engine replica over time: batches of the `Scheduler`, each as long as the cost model says.

Start with `Engine.submit`. One SimPy event per run of iterations: between arrivals and finishes the engine skips ahead
over decode-only ones, whose time is a parabola in their number. Arrivals are seen at the end of the iteration in
progress, exactly as in the plain loop (`skip_ahead=False`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import simpy

from costmodel.request import cached_tokens, saved_by
from hwprofiles.errors import InputError
from simulator.decoders import BUSY, Decoders
from simulator.drafted import DraftedDecoders
from simulator.inflight import InFlight
from simulator.iterations import Batch, Later, Wake, seconds
from simulator.jobs import EngineCost, EngineJob, JobResult, LogEntry
from simulator.kvcache import KvLedger
from simulator.scheduler import Scheduler
from simulator.shared_device import SharedDevice


class Ask(simpy.Event):
    """The answer to a submitted job, still to come: its value will be the `JobResult`."""

    def __init__(self, env: simpy.Environment, seq: InFlight) -> None:
        super().__init__(env)
        self.seq = seq


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
    log : callable or None
        Is given a `LogEntry` per iteration or run of iterations.
    ledger : KvLedger or None
        KV cache of one's own, which then says what is shared.

    Raises
    ------
    InputError
        For limits under which an engine cannot work.

    Limits
    ------
    Host times overlap freely; no priorities. The old end of a run cut short stays on the calendar, as an empty event.
    """

    def __init__(
        self,
        env: simpy.Environment,
        cost: EngineCost,
        *,
        shared_tokens: int = 0,
        skip_ahead: bool = True,
        log: Callable[[LogEntry], object] | None = None,
        ledger: KvLedger | None = None,
    ) -> None:
        rule = cost.rule
        if cost.max_seqs < 1 or rule.chunk_tokens < cost.max_seqs * rule.pass_tokens:
            raise InputError(
                f"max_seqs must be between 1 and the token budget of a step ({rule.chunk_tokens}) over "
                f"{rule.pass_tokens} tokens each, got {cost.max_seqs}"
            )
        if rule.state_aligned and rule.chunk_tokens < rule.block_tokens:
            raise InputError(f"token budget {rule.chunk_tokens} is below the cache block of {rule.block_tokens} tokens")
        self.env = env
        self.cost = cost
        self.ledger = KvLedger(cost.kv_tokens, shared_tokens=shared_tokens) if ledger is None else ledger
        self.busy_s = 0.0
        self.n_submitted = self.n_finished = self.n_rejected = 0
        decoders = Decoders if rule.pass_tokens == 1 else DraftedDecoders
        self._decoders = decoders(cost, self.ledger.page_tokens)
        self._scheduler = Scheduler(rule, self.ledger, self._decoders, cost.max_seqs)
        self._asks: dict[InFlight, Ask] = {}
        self._n_cancelled = 0
        self._skip_ahead = skip_ahead
        self._log = log
        self._run: Batch | None = None
        self._next: simpy.Event | None = None
        self.device: SharedDevice | None = None

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

    def submit(self, job: EngineJob) -> Ask:
        """Hand in a job; the event's value is its `JobResult`, and `cancel` takes the event.

        Raises
        ------
        InputError
            When the job is empty or can never fit the KV cache.
        """
        self.n_submitted += 1
        try:
            self._check(job)
            host_s = seconds(self.cost.request_s(job.prompt_tokens))
        except InputError:
            self.n_rejected += 1
            raise
        now = self.env.now
        key, prompt, reusable, output = job
        seq = InFlight(job, now, now + host_s, key, prompt, reusable, output, prompt)
        ask = Ask(self.env, seq)
        if host_s > 0:
            Later(self.env, host_s, self._host_done, ask)
        else:
            self._enter(ask)
        return ask

    def cancel(self, ask: Ask) -> None:
        """Give a job up; its event still comes, with the cost so far and `cancelled` set. No effect on a finished job.

        A job that is queued, or still in its host time, leaves at once; a running one at the end of the iteration in
        progress, unless that is its last. Its blocks become the cached prefix of its key, as a finished job's do.
        """
        seq, now = ask.seq, self.env.now
        if ask.triggered or seq.is_cancelled:
            return
        seq.is_cancelled = True
        if ask.seq in self._asks:
            self.cut_short()
        if seq.is_queued:
            self._scheduler.waiting.remove(seq)
            del self._asks[seq]
            self._answer(ask, now)
        elif seq in self._asks:
            self._n_cancelled += 1
        else:
            seq.ready_s = now
            self._answer(ask, now)

    def _host_done(self, event: simpy.Event) -> None:
        ask = cast(Ask, event.value)
        if not ask.triggered:
            self._enter(ask)

    def _enter(self, ask: Ask) -> None:
        """Join the queue: wake an idle engine, or end a run of iterations at the end of the one in progress."""
        seq = ask.seq
        seq.is_queued = True
        self._asks[seq] = ask
        self._scheduler.waiting.append(seq)
        if self._run is None:
            if self._next is None:
                self._next = Wake(self.env, 0.0, self._go_on)
        elif self._run.open:
            self.cut_short()

    def cut_short(self) -> None:
        """End a run of iterations at the end of the one in progress."""
        run = self._run
        if run is not None and run.n_steps > 1:
            n_steps = run.step_at(self.env.now)
            if n_steps < run.n_steps:
                run.n_steps = n_steps
                self._next = Wake(self.env, run.end_s(n_steps) - self.env.now, self._go_on)

    def _go_on(self, event: simpy.Event) -> None:
        """Book the batch that has ended and start the next one; sleep when nothing is left."""
        if event is not self._next:
            return
        self._next = None
        device = self.device
        if self._run is not None:
            self._book(self._run)
            self._run = None
            if device is not None:
                device.give_up(self)
        if self._asks:
            if device is None or device.take(self):
                self._start()
        elif device is not None:
            device.give_up(self)

    def resume(self) -> None:
        """Start the next iteration now: the shared devices are free."""
        self._next = Wake(self.env, 0.0, self._go_on)

    def _start(self) -> None:
        run = self._scheduler.form(self.env.now)
        prefills = run.prefills
        if run.n_decode:
            run.first_s, run.more_s = self._decoders.rate_s()
        elif not prefills:
            raise InputError(f"the engine cannot progress: {self.n_waiting} jobs wait and none can run")
        if run.n_steps > 1 and not (self._skip_ahead and (self.device is None or not self.device.is_wanted)):
            run.n_steps = 1
        if prefills:
            run.added = added = self.cost.prefill_added([part for _, part in prefills], run.n_decode)
            run.first_s += sum([share[BUSY] for share in added])
        self._run = run
        seconds(run.first_s)
        self._next = Wake(self.env, seconds(run.end_s(run.n_steps) - run.start_s), self._go_on)

    def _book(self, run: Batch) -> None:
        now, start_s = self.env.now, run.start_s
        time_s = now - start_s
        self.busy_s += time_s
        if run.added:
            for (seq, part), share in zip(run.prefills, run.added, strict=True):
                if not seq.prefill:
                    seq.start_s, seq.found_tokens = start_s, seq.cached_tokens
                else:
                    seq.stalled_s += start_s - seq.last_s
                if part.emits and not seq.emitted_tokens:
                    seq.first_token_s = now
                seq.prefill.append((part, share))
                seq.pass_s.append(time_s)
                seq.last_s = now
        for seq in self._scheduler.advance(run, now):
            if seq.is_cancelled:
                seq.is_cancelled = False
                self._n_cancelled -= 1
            self._answer(self._asks.pop(seq), now)
        if self._n_cancelled:
            self._drop_cancelled(now)
        if self._log is not None:
            n_prefill_tokens = sum([part.new_tokens for _, part in run.prefills])
            n, used = run.n_decode, self.ledger.allocated_blocks * self.ledger.page_tokens
            self._log(LogEntry(start_s, time_s, run.n_steps, n_prefill_tokens, n, used, self.n_waiting))

    def _drop_cancelled(self, now: float) -> None:
        for seq in [s for s in self._scheduler.running if s.is_cancelled]:
            self._scheduler.drop(seq, now)
            self._n_cancelled -= 1
            self._answer(self._asks.pop(seq), now)

    def _answer(self, ask: Ask, now: float) -> None:
        seq, started = ask.seq, bool(ask.seq.prefill)
        self.n_finished += 1
        ask.succeed(
            JobResult(
                seq.job,
                seq.submit_s,
                seq.ready_s,
                seq.start_s if started else now,
                seq.first_token_s,
                now,
                seq.found_tokens,
                self._saved(seq),
                seq.n_preemptions,
                tuple(seq.prefill),
                tuple(seq.pass_s),
                seq.decode,
                seq.decode_s,
                seq.stalled_s + (now - seq.last_s if started else 0.0),
                seq.emitted_tokens,
                seq.is_cancelled,
            )
        )

    def _saved(self, seq: InFlight) -> tuple[int, ...]:
        rule = self.cost.rule
        if rule.state_aligned:
            return saved_by(rule, seq.cached_tokens, tuple(seq.passes), seq.prompt_tokens, 1)
        if seq.is_cancelled:
            return (seq.computed_tokens or seq.reusable_tokens,)
        return saved_by(rule, 0, (), seq.prompt_tokens, seq.output_tokens)

    def _check(self, job: EngineJob) -> None:
        if job.prompt_tokens < 1 or job.output_tokens < 1 or job.reusable_tokens < 0:
            raise InputError(f"a job needs prompt and output tokens >= 1 and reusable tokens >= 0, got {job}")
        needed = job.prompt_tokens + job.output_tokens - 1
        ledger = self.ledger
        if ledger.blocks(needed) <= ledger.total_blocks - ledger.shared_blocks:
            return
        shared = cached_tokens(self.cost.rule, job.prompt_tokens, min(job.reusable_tokens, ledger.shared_tokens))
        if ledger.own_blocks(needed, shared) > ledger.total_blocks - ledger.shared_blocks:
            raise InputError(
                f"a request of {needed} tokens (prompt {job.prompt_tokens}, output {job.output_tokens}) can never fit "
                f"the KV cache of {ledger.total_blocks * ledger.page_tokens} tokens"
            )
