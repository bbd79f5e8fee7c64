"""What a journal proves about held actions, from its events alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from costmodel.trajectory import RUNS_FREELY, Effect

HELD = frozenset(str(e) for e in Effect if e not in RUNS_FREELY)

Event = Mapping[str, Any]
Key = tuple[str, str]
"""A task and the idempotency key of one of its actions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a journal says about held actions.

    Parameters
    ----------
    held : actions that had to wait for a verdict or a repair
    accepted : of these, rightly authorised
    executed : of these, run to an end
    executed_before_verdict : run without a valid authorisation written before, or never announced; must be 0
    lost : accepted in a task that ended, never run and not reported; must be 0
    run_twice : sent again to a server that does not honour keys, so possibly run twice; must be 0
    unresolved : reported as of unknown fate
    stopped : accepted, and not begun because an action before it is of unknown fate
    """

    held: int
    accepted: int
    executed: int
    executed_before_verdict: int
    lost: int
    run_twice: int
    unresolved: int
    stopped: int

    @property
    def clean(self) -> bool:
        """True when nothing ran before its verdict, nothing was lost, nothing ran twice."""
        return self.executed_before_verdict == self.lost == self.run_twice == 0


@dataclass(slots=True)
class _Books:
    """A journal's events, sorted by what they say."""

    by_id: dict[int, Event] = field(default_factory=dict)
    asked: dict[tuple[str, int, str], Event] = field(default_factory=dict)
    intents: dict[Key, Event] = field(default_factory=dict)
    verdicts: list[Event] = field(default_factory=list)
    authorised: dict[Key, Event] = field(default_factory=dict)
    begun: dict[Key, int] = field(default_factory=dict)
    attempts: dict[Key, list[Event]] = field(default_factory=dict)
    effects: set[Key] = field(default_factory=set)
    unresolved: set[Key] = field(default_factory=set)
    ended: dict[str, str] = field(default_factory=dict)

    def take(self, e: Event) -> None:
        key = (e["task"], e["slot"].rpartition("#")[0] if e["kind"] == "attempt" else e["slot"])
        match e["kind"]:
            case "asked":
                self.by_id[e["id"]] = self.asked[e["task"], e["round"], e["slot"]] = e
            case "intent":
                self.intents[key] = e
            case "verdict":
                self.by_id[e["id"]] = e
                self.verdicts.append(e)
            case "authorised":
                self.authorised[key] = e
            case "executing":
                self.begun.setdefault(key, e["id"])
            case "attempt":
                self.begun.setdefault(key, e["id"])
                self.attempts.setdefault(key, []).append(e)
            case "effect":
                self.begun.setdefault(key, e["id"])
                self.effects.add(key)
            case "unresolved":
                self.unresolved.add(key)
            case "finished":
                self.ended[e["task"]] = e["status"]

    def covered(self, verdict: Event, key: Key) -> bool:
        """Whether a verdict really lets this action run: it names it, and it is what the reviewer answered."""
        intent = self.intents.get(key)
        said = self.asked.get((verdict["task"], verdict["round"], verdict["slot"]))
        if intent is None or said is None or key[1] not in verdict["covers"]:
            return False
        return (
            (intent["task"], intent["round"]) == (verdict["task"], verdict["round"])
            and intent["origin"] == "d"
            and intent["id"] < said["id"] < verdict["id"]
            and intent["offset"] < verdict["accepted"]
            and said["ask"] == "verify"
            and said["finish"] != "length"
            and said["text"].strip() == str(verdict["accepted"])
        )

    def allowed(self, key: Key) -> bool:
        """Whether an authorisation names an event that allows this action."""
        e, intent = self.authorised.get(key), self.intents[key]
        source = None if e is None else self.by_id.get(e["by"])
        if e is None or source is None or source["id"] > e["id"]:
            return False
        if e["why"] == "verdict":
            return source["kind"] == "verdict" and self.covered(source, key)
        return (
            e["why"] == "written"
            and source["kind"] == "asked"
            and source["ask"] in ("write", "repair")
            and (source["task"], source["round"], source["slot"]) == (intent["task"], intent["round"], intent["asked"])
        )


def prove(events: Iterable[Event]) -> Proof:
    """Count what became of every held action.

    An authorisation counts only if the event it names is a verdict that covers the action and says what the reviewer
    answered, or the request in which a model wrote the step to be committed as it is, and was written before the call.
    An action that was never announced counts as held and run too early.
    """
    books = _Books()
    for event in events:
        books.take(event)
    held = {k for k, e in books.intents.items() if e["effect"] in HELD}
    strange = set(books.begun) - set(books.intents)
    allowed = {k for k in held if books.allowed(k)}
    begun = {k: i for k, i in books.begun.items() if k in held}
    early = {k for k, i in begun.items() if k not in allowed or books.authorised[k]["id"] > i}
    due = allowed | {
        k for v in books.verdicts for k in ((v["task"], c) for c in v["covers"]) if k in held and books.covered(v, k)
    }
    open_ = {k for k in due if k[0] in books.ended and k not in books.effects and k not in books.unresolved}
    stopped = {k for k in open_ if books.ended[k[0]] == "unresolved" and k not in begun}
    twice = {k for k, sent in books.attempts.items() if k not in books.intents or k in held if _unsafe(sent)}
    return Proof(
        held=len(held) + len(strange),
        accepted=len(allowed),
        executed=len(books.effects & (held | strange)),
        executed_before_verdict=len(early) + len(strange),
        lost=len(open_ - stopped),
        run_twice=len(twice),
        unresolved=len((books.unresolved - books.effects) & held),
        stopped=len(stopped),
    )


def _unsafe(sent: list[Event]) -> bool:
    """Whether a call was sent again to a server that may have run it again."""
    return any(not e["keys_honoured"] for e in sent[1:])
