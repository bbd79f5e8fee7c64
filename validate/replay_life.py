"""One trajectory of a replay: its rounds driven order by order, its prompts built so that prefixes are found again."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from costmodel.draws import Draws, VerdictRule
from costmodel.orders import Await, Begin, Came, Halt, Look, Order
from costmodel.protocol import Role
from costmodel.request import RequestPlan
from costmodel.round_result import START, RoundResult
from costmodel.rounds import play_round
from costmodel.session import EngineRequest, Session, ToolRun, Work
from costmodel.task import Task
from hwprofiles.errors import InputError
from validate.calibrate_probe import Timed

if TYPE_CHECKING:
    from validate.replay import Replay

_KEPT = 6
"""Sequences of one role and trajectory that later prompts may go on from."""
_Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Words:
    """Token ids of prompts: `ids` is the range of a model's vocabulary, by role; `salt` keeps one run's from another's.

    A server remembers the prompts of an earlier strategy or run; the same ones would be found in its cache.
    """

    ids: Mapping[Role, tuple[int, int]]
    salt: str

    def shared(self, role: Role, n: int) -> list[int]:
        """The tokens that all prompts of a role begin with."""
        return self.draw(random.Random(f"{self.salt}/{role}/prefix"), role, n)

    def of(self, role: Role, number: int) -> random.Random:
        """The stream of a role's tokens in one trajectory."""
        return random.Random(f"{self.salt}/{number}/{role}")

    def draw(self, rng: random.Random, role: Role, n: int) -> list[int]:
        """`n` tokens that the role's model knows."""
        return [rng.randrange(*self.ids[role]) for _ in range(n)]


def token_ids(vocabulary: int) -> tuple[int, int]:
    """Ids to draw from, [low, high): none of the marks that tokenizers put first, where there is room."""
    return min(256, vocabulary // 2), min(vocabulary, 32_000)


@dataclass(slots=True)
class _Said:
    """What one role of one trajectory has sent and been answered: prompts are built on these."""

    words: Words
    role: Role
    rng: random.Random
    sequences: list[list[int]]

    def prompt(self, n_tokens: int, reusable_tokens: int) -> list[int]:
        """`n_tokens` that share exactly `reusable_tokens` with a sequence that the engine has computed."""
        base = next((s for s in reversed(self.sequences) if len(s) >= reusable_tokens), [])
        kept = base[: min(reusable_tokens, n_tokens)]
        return kept + self.fresh(n_tokens - len(kept))

    def fresh(self, n_tokens: int) -> list[int]:
        return self.words.draw(self.rng, self.role, n_tokens)

    def computed(self, prompt: list[int], output: Sequence[int]) -> None:
        self.sequences = [*self.sequences[1 - _KEPT :], [*prompt, *output]]


class Life:
    """One trajectory; `live` plays it and leaves its rows with the replay."""

    def __init__(self, replay: Replay, number: int, task: Task, begun_s: float, *, counted: bool) -> None:
        self.counted = counted
        self.r, self.number, self.task, self.begun_s = replay, number, task, begun_s
        self.session = Session(task, replay.pricing.rules, replay.case.sizes)
        self.draws: Draws | VerdictRule = replay.verdicts(number, task)
        self.said = {
            role: _Said(
                replay.words, role, replay.words.of(role, number), [replay.words.shared(role, task.shared_tokens)]
            )
            for role in Role
        }
        self.running: list[asyncio.Task[Any]] = []
        self.open: list[list[_Row]] = []
        self.rounds = 0
        self.start_s = 0.0
        self.counts: dict[str, int] = dict.fromkeys(
            (
                "n_steps",
                "n_drafted",
                "n_accepted",
                "n_reviews",
                "n_repairs",
                "weak_output_tokens",
                "strong_output_tokens",
            ),
            0,
        )

    def now_s(self) -> float:
        """Seconds since the replay began."""
        return self.r.clock.now_s() - self.begun_s

    async def live(self) -> None:
        """Play it to its end; raises `EngineError` where a server fails."""
        self.start_s = self.now_s()
        carry = START
        try:
            while self.session.remaining:
                result = await self._round(play_round(self.session, self.r.how, self.draws, carry))
                carry = result.carry
        finally:
            for left in self.running:
                left.cancel()
            await asyncio.gather(*self.running, return_exceptions=True)
        finish_s = self.now_s()
        self.r.rows.trajectories.append(
            {
                "trajectory": self.number,
                "task": self.task.id,
                "status": "finished",
                "counted": self.counted,
                "arrival_s": self.start_s,
                "finish_s": finish_s,
                "time_s": finish_s - self.start_s,
                "wall_s": finish_s - self.start_s,
                "n_rounds": self.rounds,
                **self.counts,
            }
        )

    async def _round(self, game: Any) -> RoundResult:
        answer: object = None
        numbers: dict[int, asyncio.Task[Any]] = {}
        items: list[list[_Row]] = []
        while True:
            try:
                order: Order = game.send(answer)
            except StopIteration as stop:
                self._judge(stop.value, items)
                self._count(stop.value)
                return stop.value  # type: ignore[no-any-return]  # the generator's result
            answer = None
            match order:
                case EngineRequest() | ToolRun():
                    items.append([])
                    answer = await self._do(order, items[-1])
                case Begin(number, work):
                    items.append([])
                    numbers[number] = asyncio.ensure_future(self._do(work, items[-1]))
                    self.running.append(numbers[number])
                case Await(wanted):
                    answer = await self._first(numbers, wanted)
                case Halt(number):
                    await self._halt(numbers[number])
                case Look():
                    answer = self.now_s() - self.start_s

    async def _first(self, numbers: Mapping[int, asyncio.Task[Any]], wanted: tuple[int, ...]) -> Came:
        waited = not any(numbers[n].done() for n in wanted)
        if waited:
            await asyncio.wait([numbers[n] for n in wanted], return_when=asyncio.FIRST_COMPLETED)
        number = next(n for n in wanted if numbers[n].done())
        return Came(number, waited, numbers[number].result())

    async def _halt(self, task: asyncio.Task[Any]) -> None:
        """Give a request up: its connection is closed, which ends it on the server."""
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def _judge(self, result: RoundResult, items: list[list[_Row]]) -> None:
        """Mark what turned out to be wasted; the fate of some works is only known rounds later."""
        fates = (*result.earlier, *result.wasted)
        left = []
        for rows, wasted in zip([*self.open, *items], fates, strict=True):
            if wasted is None:
                left.append(rows)
            for row in rows if wasted else ():
                row["phase"] = "wasted_tool" if row["kind"] == "tool" else "wasted_draft"
        self.open = left

    def _count(self, result: RoundResult) -> None:
        self.rounds += 1
        for name, n in (
            ("n_steps", len(result.committed)),
            ("n_drafted", result.drafted),
            ("n_accepted", result.accepted),
            ("n_reviews", int(result.verified)),
            ("n_repairs", int(result.repaired)),
        ):
            self.counts[name] += n

    async def _do(self, work: Work, rows: list[_Row]) -> RequestPlan | None:
        if isinstance(work, ToolRun):
            start_s = self.now_s()
            await self.r.clock.sleep(work.seconds)
            self._phase(rows, work.step, "tool", "tools", "tool", start_s, self.now_s())
            return None
        plan = self.r.pricing.plan(work)
        said = self.said[work.role]
        prompt = said.prompt(work.prompt_tokens, work.reusable_tokens)
        submit_s = self.now_s()
        try:
            (timed,) = await self.r.lanes[work.role].together([prompt], work.output_tokens)
        except asyncio.CancelledError:
            self._request(rows, work, submit_s, None, cancelled=True)
            raise
        if (timed.prompt_tokens, timed.output_tokens) != (work.prompt_tokens, work.output_tokens):
            raise InputError(
                f"the {work.role} server counted {timed.prompt_tokens} prompt and {timed.output_tokens} output tokens "
                f"where {work.prompt_tokens} and {work.output_tokens} were asked for; a replay needs a server that "
                "takes token ids and honours ignore_eos"
            )
        said.computed(prompt, timed.output_ids or said.fresh(work.output_tokens))
        self._request(rows, work, submit_s, timed, cancelled=False)
        return plan

    def _request(
        self, rows: list[_Row], work: EngineRequest, submit_s: float, timed: Timed | None, *, cancelled: bool
    ) -> None:
        finish_s = self.now_s()
        first_s = timed.piece_s[0] - self.begun_s if timed and timed.piece_s else math.nan
        output = timed.output_tokens if timed else 0
        self.counts[f"{work.role}_output_tokens"] += output
        self.r.rows.requests.append(
            {
                "trajectory": self.number,
                "step": work.step,
                "kind": work.kind,
                "role": str(work.role),
                "submit_s": submit_s,
                "start_s": submit_s,
                "first_token_s": first_s,
                "finish_s": finish_s,
                "prompt_tokens": work.prompt_tokens,
                "cached_tokens": (timed.cached_tokens or 0) if timed else 0,
                "output_tokens": output,
                "cancelled": cancelled,
            }
        )
        if timed is not None:
            label = work.spans[-1][0] if work.spans else "observation_prefill"
            self._phase(rows, work.step, work.kind, str(work.role), label, submit_s, first_s)
            self._phase(rows, work.step, work.kind, str(work.role), work.decode_phase, first_s, finish_s)

    def _phase(
        self, rows: list[_Row], step: int, kind: str, lane: str, phase: str, start_s: float, end_s: float
    ) -> None:
        if end_s > start_s:
            row = {"trajectory": self.number, "round": self.rounds, "step": step, "kind": kind, "lane": lane}
            rows.append({**row, "phase": phase, "start_s": start_s, "end_s": end_s, "wall_s": end_s - start_s})
            self.r.rows.phases.append(rows[-1])
