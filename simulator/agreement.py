"""How often drafted steps would be kept: from two traces of the same tasks, or from judgements.

Agreement asks for the same tool with the same arguments. It is a lower bound for what a verifier accepts: a strong
model agrees with its own second run only 0.87 to 0.93 of the time, because several next calls can be right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.trajectory import Effect, Step, Trajectory, Workload
from hwprofiles.errors import InputError
from simulator.effects import bare_name
from simulator.rates import METHOD, PositionRate, Rate, Trial, by_effect, by_position, rate
from simulator.rejections import Difference, Rejections, rejections
from simulator.traces.raw import loose_key
from simulator.verifier import VerifierCurves

SOLVED = 1 - 1e-6
HANDOVERS = ("transfer_to_human_agents",)
"""Tools left out of the comparison: handing over ends the task, and its argument is a free-text summary."""
_COMPARED = (Effect.READ, Effect.WRITE, Effect.UNKNOWN)
LEAST_CALLS, LEAST_TASKS = 20, 3
"""Fewer comparisons than these are no measurement: `Agreement.toml` writes no line for a scenario from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Acceptance per drafted call or step, given that all before it were accepted.

    Calls are the same when tool and normalised arguments are; `literal` compares the arguments letter by letter.
    `any_order` accepts a call that the strong model also made, whenever it made it; `leading_share` is the share of the
    strong model's calls that are covered that way. `not_compared` counts the strong model's steps of the compared
    tasks that hold no compared call (replies above all), `rejections` says how far the weak model came where they first
    differ. All are None for judgements, which have `verifier` where they also say which steps were valid.
    """

    kind: str
    source: str
    tasks: int
    mean: Rate
    by_position: tuple[PositionRate, ...]
    by_effect: Mapping[str, Rate]
    any_order: Rate | None
    leading_share: float | None
    literal: Rate | None = None
    rejections: Rejections | None = None
    verifier: VerifierCurves | None = None
    not_compared: int | None = None
    method: str
    notes: tuple[str, ...] = ()

    @property
    def too_few(self) -> str | None:
        """Why this is too little to plan with; None where it is enough."""
        if self.mean.n >= LEAST_CALLS and self.tasks >= LEAST_TASKS:
            return None
        what = "calls compared" if self.kind == "trace_pair" else "steps judged"
        tasks = "1 task" if self.tasks == 1 else f"{self.tasks} tasks"
        return (
            f"no line for a scenario: {self.mean.n} {what} in {tasks}; at least {LEAST_CALLS} in {LEAST_TASKS} tasks "
            "are needed, so plan with the prior until you have more"
        )

    def band(self) -> dict[str, Any]:
        """The mean as the value of a scenario's `protocol.acceptance`."""
        if self.kind == "trace_pair":
            what = f"trace pair: literal agreement, a lower bound; {self.source}; replies are not compared"
        else:
            what = f"judgements: {self.source}"
        count = f"{self.tasks} tasks, {self.mean.n} {'calls' if self.kind == 'trace_pair' else 'steps'}"
        source = "".join(c if c.isprintable() else "?" for c in f"{what}; {count}")
        numbers = {k: float(f"{getattr(self.mean, k):.4g}") for k in ("value", "low", "high")}
        return {**numbers, "tier": "measured", "source": source.replace("\\", "/").replace('"', "'")}

    def toml(self) -> str:
        """The line for a scenario file; it belongs under its [protocol] header.

        Raises
        ------
        InputError
            Too few calls or tasks to plan with (`too_few` says it).
        """
        if self.too_few is not None:
            raise InputError(self.too_few)
        b = self.band()
        return (
            f"acceptance = {{ value = {b['value']:.4g}, low = {b['low']:.4g}, high = {b['high']:.4g}, "
            f'tier = "measured", source = "{b["source"]}" }}\n'
        )


_Call = tuple[str, str | None, str, str | None]
"""Tool, normalised arguments, effect, arguments letter by letter."""


def agreement(weak: Workload, strong: Workload, *, ignore: Collection[str] = HANDOVERS) -> Agreement:
    """Agreement of a weak model's calls with a strong model's on the tasks that the strong one solved.

    Read, write and unknown calls are compared in order, by name and normalised arguments, up to the first difference;
    where they differ the strong model's call says which effect the case counts for. A task ends where either run ends.

    Parameters
    ----------
    weak, strong : Workload
        Traces of the same tasks (matched by task and trial).
    ignore : collection of str
        Tools to leave out.

    Raises
    ------
    InputError
        If no task occurs in both, the strong model solved none of them, or no call can be compared.
    """
    notes: list[str] = []
    pairs = _pairs(weak, strong, notes)
    exact: list[Trial] = []
    loose: list[Trial] = []
    letters: list[Trial] = []
    shares = []
    for i, (w, s) in enumerate(pairs):
        mine, theirs = _calls(w, ignore), _calls(s, ignore)
        exact.extend(_prefix(i, mine, theirs, _SAME))
        letters.extend(_prefix(i, mine, theirs, _LITERAL))
        covered, trials = _any_order(i, mine, theirs)
        loose.extend(trials)
        if theirs:
            shares.append(covered / len(theirs))
    if not exact or not loose:
        raise InputError("no call to compare: the trace pair has no read, write or unknown tool calls on shared tasks")
    if any(t.effect == Effect.UNKNOWN for t in exact):
        notes.append(
            "some tools have no declared effect and are listed under unknown: an effects map tells reads apart"
        )
    return Agreement(
        kind="trace_pair",
        source=f"weak {weak.name}, strong {strong.name}",
        tasks=len(pairs),
        mean=rate(exact),
        by_position=by_position(exact),
        by_effect=by_effect(exact),
        any_order=rate(loose),
        leading_share=sum(shares) / len(shares) if shares else None,
        literal=rate(letters),
        rejections=rejections([_first_difference(w, s, ignore) for w, s in pairs]),
        not_compared=sum(not _step_calls(step, ignore) for _, s in pairs for step in s.steps),
        method=METHOD,
        notes=tuple(notes),
    )


def _key(trajectory: Trajectory) -> tuple[str, int]:
    return (trajectory.task if trajectory.task is not None else trajectory.id), trajectory.trial or 0


def _pairs(weak: Workload, strong: Workload, notes: list[str]) -> list[tuple[Trajectory, Trajectory]]:
    theirs = {_key(t): t for t in strong.trajectories}
    shared = {_key(t): (t, theirs[_key(t)]) for t in weak.trajectories if _key(t) in theirs}
    if not shared:
        raise InputError(f"no task occurs in both {weak.name!r} and {strong.name!r} (matched by task id and trial)")
    domains = [{t.domain for t in w.trajectories if t.domain is not None} for w in (weak, strong)]
    if all(domains) and not domains[0] & domains[1]:
        notes.append(f"the traces name different domains ({', '.join(sorted(domains[0] | domains[1]))}): same tasks?")
    known = [p for p in shared.values() if p[1].outcome is not None]
    if not known:
        notes.append("the strong trace records no outcomes: all shared tasks are used")
        return list(shared.values())
    solved = [p for p in known if (p[1].outcome or 0.0) >= SOLVED]
    if not solved:
        raise InputError(f"the strong model solved none of the {len(known)} shared tasks, so nothing can be compared")
    notes.append(f"{len(shared)} shared tasks, of which the strong model solved {len(solved)}: only these are used")
    return solved


def _calls(trajectory: Trajectory, ignore: Collection[str]) -> list[_Call]:
    return [call for step in trajectory.steps for call in _step_calls(step, ignore)]


def _step_calls(step: Step, ignore: Collection[str]) -> list[_Call]:
    found = []
    for tool in step.tools:
        name = bare_name(tool.name)
        if tool.effect in _COMPARED and name not in ignore and tool.name not in ignore:
            found.append((name, loose_key(tool.arguments), tool.effect.value, tool.arguments))
    return found


_SAME, _LITERAL = slice(0, 2), slice(0, 4, 3)


def _prefix(task: int, mine: Sequence[_Call], theirs: Sequence[_Call], by: slice) -> list[Trial]:
    trials = []
    for position, (w, s) in enumerate(zip(mine, theirs, strict=False)):
        same = w[by] == s[by]
        trials.append(Trial(task, position, s[2], same))
        if not same:
            break
    return trials


def _first_difference(weak: Trajectory, strong: Trajectory, ignore: Collection[str]) -> Difference | None:
    """Where the weak model's calls first differ from the strong one's; None where they agree as far as both go."""
    mine, theirs = _calls(weak, ignore), _calls(strong, ignore)
    trials = _prefix(0, mine, theirs, _SAME)
    if not trials or trials[-1].accepted:
        return None
    kept = len(trials) - 1
    return Difference(kept_calls=kept, dropped_calls=len(mine) - kept, output_tokens=_written(strong, kept, ignore))


def _written(trajectory: Trajectory, call: int, ignore: Collection[str]) -> int | None:
    """Output tokens of the step that made the call with this number."""
    seen = 0
    for step in trajectory.steps:
        seen += len(_step_calls(step, ignore))
        if seen > call:
            return step.output_tokens
    return None


def _any_order(task: int, mine: Sequence[_Call], theirs: Sequence[_Call]) -> tuple[int, list[Trial]]:
    left = Counter(c[:2] for c in theirs)
    trials = []
    for position, call in enumerate(mine):
        found = left[call[:2]] > 0
        trials.append(Trial(task, position, call[2], found))
        if not found:
            break
        left[call[:2]] -= 1
    return sum(t.accepted for t in trials), trials
