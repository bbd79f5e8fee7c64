"""What each model has in its cache for one task, and which engine request each protocol request becomes.

Contexts are canonical: whoever wrote step j, its visible tokens and its observation follow. A role's cache is a set of
reusable prefix lengths of the context as that role sees it. When a round commits, only the longest one inside the
committed context still matters (and the next shorter one, should it be the whole context), so the state of a session is
a handful of integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from costmodel.protocol import Role
from costmodel.request import CacheRule, RequestPlan
from costmodel.task import Task, TaskStep
from costmodel.trajectory import RUNS_FREELY


class EngineRequest(NamedTuple):
    """One request to a model.

    Parameters
    ----------
    kind : str
        write, draft, verify or repair.
    step : int
        Index of the (first) step it is about.
    reusable_tokens : int
        Longest prefix this role has computed and could find in its cache.
    spans : tuple of (phase, end)
        Labels of prompt positions in order: positions below `end`, and above the span before, belong to `phase`.
    decode_phase : str
        Phase of the decoded tokens.
    """

    role: Role
    kind: str
    step: int
    prompt_tokens: int
    reusable_tokens: int
    output_tokens: int
    spans: tuple[tuple[str, int], ...]
    decode_phase: str


class ToolRun(NamedTuple):
    """The tools of one step, run for real."""

    step: int
    seconds: float


Work = EngineRequest | ToolRun


@dataclass(frozen=True, slots=True)
class ProtocolSizes:
    """Token counts of the protocol itself, and how a rejected step is repaired (`fresh` or `continue`)."""

    instruction_tokens: int = 60
    verdict_tokens: int = 10
    repair_mode: str = "fresh"


CacheState = tuple[tuple[int, ...], int]
"""(reusable prefix lengths, tokens ever computed) of one role."""

State = tuple[int, CacheState, CacheState]
"""(committed steps, weak cache, strong cache): all that the future depends on."""


class _RoleCache:
    """Reusable prefix lengths of one role, and how far it has ever computed."""

    __slots__ = ("computed", "rule", "saved")

    def __init__(self, rule: CacheRule, saved: tuple[int, ...], computed: int) -> None:
        self.rule = rule
        self.saved = list(saved)
        self.computed = computed

    def reusable(self, limit: int) -> int:
        if self.rule.state_aligned:
            return max((s for s in self.saved if s <= limit), default=0)
        return min(max(self.saved), limit)

    def extend(self, plan: RequestPlan, limit: int) -> None:
        """A request has run; of what it computed, positions up to `limit` belong to the context."""
        if self.rule.state_aligned:
            self.saved += [s for s in plan.saved_tokens if s <= limit]
        else:
            self.saved.append(min(max(plan.saved_tokens), limit))
        self.computed = max(self.computed, limit)

    def cut(self, *limits: int) -> None:
        """The context diverges after the last of `limits`, and may yet after the others: what is beyond is void.

        A prompt of exactly a limit recomputes its last token, so it needs the longest saved state below that.
        """
        if len(limits) == 1 and not self.rule.state_aligned:
            limit, top = limits[0], max(self.saved)
            self.saved = [limit - 1, limit] if top >= limit else [top]
        else:
            self.saved = sorted({self.reusable(at) for limit in limits for at in (limit - 1, limit)})
        self.computed = min(self.computed, limits[-1])


def first_state(rules: Mapping[Role, CacheRule], held_tokens: Mapping[Role, int]) -> State:
    """The state of a task whose first prompts find `held_tokens` of each role in its cache."""
    return (0, _first(rules[Role.WEAK], held_tokens[Role.WEAK]), _first(rules[Role.STRONG], held_tokens[Role.STRONG]))


def _first(rule: CacheRule, shared_tokens: int) -> CacheState:
    """A cache that holds only what all tasks share; a recurrent state exists at its last block boundary."""
    held = shared_tokens // rule.block_tokens * rule.block_tokens if rule.state_aligned else shared_tokens
    return ((held,), shared_tokens)


class Session:
    """One task in progress: turns what a strategy asks for into engine requests and keeps both caches' books.

    Parameters
    ----------
    task : Task
    rules : mapping Role -> CacheRule
    sizes : ProtocolSizes
    state : State or None
        None starts the task; otherwise continue from there.
    """

    def __init__(
        self, task: Task, rules: Mapping[Role, CacheRule], sizes: ProtocolSizes, state: State | None = None
    ) -> None:
        self.task = task
        self.sizes = sizes
        if state is None:
            state = first_state(rules, dict.fromkeys(Role, task.shared_tokens))
        self.index, weak, strong = state
        self._cache = {
            Role.WEAK: _RoleCache(rules[Role.WEAK], *weak),
            Role.STRONG: _RoleCache(rules[Role.STRONG], *strong),
        }
        self._contexts = task.contexts

    @property
    def state(self) -> State:
        """The session's state between rounds."""
        w, s = (self._cache[r] for r in (Role.WEAK, Role.STRONG))
        return (self.index, (tuple(w.saved), w.computed), (tuple(s.saved), s.computed))

    @property
    def remaining(self) -> int:
        """Steps not yet committed."""
        return len(self.task.steps) - self.index

    def write(self, role: Role, kind: str, offset: int, decode_phase: str) -> EngineRequest:
        """`role` writes the step at `offset` from the committed ones (kinds write, draft, repair)."""
        at = self.index + offset
        prompt = self._contexts[role][at]
        span = ("repair_prefill" if kind == "repair" else "observation_prefill", prompt)
        return self._request(role, kind, at, prompt, self.task.steps[at].decoded(role), (span,), decode_phase)

    def wrote(self, request: EngineRequest, plan: RequestPlan) -> None:
        """A writing request has run: its prompt, and its own tokens unless thinking stood before them, are cached."""
        step = self.task.steps[request.step]
        cache = self._cache[request.role]
        stays = request.output_tokens == step.visible and cache.rule.keeps_output
        cache.extend(plan, request.prompt_tokens + (request.output_tokens - 1 if stays else 0))

    def verify(self, role: Role, n_steps: int) -> EngineRequest:
        """`role` reviews the next `n_steps`: committed context, segment, instruction; a short verdict comes back."""
        prompt = self.segment_end(role, n_steps) + self.sizes.instruction_tokens
        spans = ("observation_prefill", self._contexts[role][self.index]), ("verify_prefill", prompt)
        return self._request(role, "verify", self.index, prompt, self.sizes.verdict_tokens, spans, "verdict_decode")

    def verified(self, request: EngineRequest, plan: RequestPlan, n_steps: int) -> None:
        """A review has run: the segment is cached, instruction and verdict never belong to the context."""
        self._cache[request.role].extend(plan, self.segment_end(request.role, n_steps))

    def segment_end(self, role: Role, n_steps: int) -> int:
        """Position after a drafted segment: with the last step's observation if it ran, without if it is held."""
        last = self.index + n_steps - 1
        held = self.task.steps[last].effect not in RUNS_FREELY
        return self._contexts[role][last] + self.task.steps[last].visible if held else self._contexts[role][last + 1]

    def repair_continued(self, verify: EngineRequest, plan: RequestPlan, offset: int) -> EngineRequest:
        """Repair straight after the verdict: the review's prompt and verdict are the prefix, the tail stays in view."""
        at = self.index + offset
        seen = verify.prompt_tokens + verify.output_tokens
        reusable = max(plan.saved_tokens, default=0)
        return EngineRequest(
            verify.role,
            "repair",
            at,
            seen,
            reusable,
            self.task.steps[at].decoded(verify.role),
            (("repair_prefill", seen),),
            "repair_decode",
        )

    def reject(self, offset: int) -> None:
        """The step at `offset` of the drafted segment is invalid: both caches are void from there on."""
        for role, cache in self._cache.items():
            cache.cut(self._contexts[role][self.index + offset])

    def commit(self, accepted: int, written_by: Role | None, carried: int = 0) -> tuple[TaskStep, ...]:
        """Commit `accepted` drafted steps and, unless None, one step written by `written_by`; returns them.

        The role that did not write the last step keeps nothing beyond the steps before it. What was computed of the
        `carried` drafted steps behind stays; each of them may yet be rejected.
        """
        n = accepted + (written_by is not None)
        if n < 1 or n > self.remaining:
            raise ValueError(f"a round must commit between 1 and {self.remaining} steps, got {n}")
        start = self.index
        self.index += n
        for role, cache in self._cache.items():
            contexts = self._contexts[role]
            mine = written_by is None or role is written_by
            cache.cut(*(contexts[self.index : self.index + carried + 1] if mine else (contexts[start + accepted],)))
        return self.task.steps[start : self.index]

    def _request(
        self,
        role: Role,
        kind: str,
        step: int,
        prompt: int,
        output: int,
        spans: tuple[tuple[str, int], ...],
        decode_phase: str,
    ) -> EngineRequest:
        cache = self._cache[role]
        kept, end = [], 0
        for phase, stop in (("reprefill", cache.computed), ("prompt_prefill", self._contexts[role][0]), *spans):
            if stop > end < prompt:
                end = stop if stop < prompt else prompt
                kept.append((phase, end))
        return EngineRequest(role, kind, step, prompt, cache.reusable(prompt - 1), output, tuple(kept), decode_phase)
