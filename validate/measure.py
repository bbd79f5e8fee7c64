"""A journal as a measured run: the same frames that a simulated run has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from simulator.results import SCHEMA, RunResult, build
from validate.journal import Journal

Row = dict[str, Any]

_DECODE = {"draft": "draft_decode", "write": "decode", "repair": "repair_decode", "verify": "verdict_decode"}
_PREFILL = {
    "draft": "observation_prefill",
    "write": "observation_prefill",
    "repair": "repair_prefill",
    "verify": "verify_prefill",
}


def measured(journal: Journal, meta: Mapping[str, Any]) -> RunResult:
    """Frames of a journaled run; costs that nobody measured (FLOPs, bytes, joules) are NaN.

    A request's time up to its first token counts as prefill, the rest as decode; where the first token's time is not
    known, all of it counts as decode. A run that was cut goes on from the last time its journal tells: what it was
    not working does not count.
    """
    tasks: dict[str, list[Row]] = {}
    for event in journal.events():
        tasks.setdefault(event["task"], []).append(event)
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SCHEMA}
    for number, (task, events) in enumerate(tasks.items()):
        view = _Task(number, task, events)
        rows["trajectories"].append(_tuple("trajectories", view.trajectory()))
        rows["steps"] += [_tuple("steps", r) for r in view.steps()]
        rows["phases"] += [_tuple("phases", r) for r in view.phases()]
    return build({"kind": "measured", "engines": [], **meta}, rows)


def _tuple(frame: str, row: Row) -> tuple[Any, ...]:
    """A row in the schema's order; what is absent is NaN (numbers) or empty (text)."""
    missing = {"float64": math.nan, "string": "", "int64": 0, "bool": False}
    return tuple(row.get(name, missing[column.dtype]) for name, column in SCHEMA[frame].items())


class _Task:
    """One task's events, read once."""

    def __init__(self, number: int, task: str, events: list[Row]) -> None:
        self.number, self.task = number, task
        self.asked = [e for e in events if e["kind"] == "asked"]
        self.committed = {e["round"]: e for e in events if e["kind"] == "committed"}
        self.verdicts = [e for e in events if e["kind"] == "verdict"]
        self.intents = {e["slot"]: e for e in events if e["kind"] == "intent"}
        self.matched = {e["by"] for e in events if e["kind"] == "reused"}
        self.effects = [e for e in events if e["kind"] == "effect" and "start_s" in e]
        self.start_s = next((e["at_s"] for e in events if e["kind"] == "task"), math.nan)
        self.end = next((e for e in events if e["kind"] == "finished"), None)
        self.kept = {key for e in self.committed.values() for s in e["steps"] for key in s["keys"]}
        latest_first = list(self.intents.values())[::-1]
        by_fate = sorted(latest_first, key=lambda e: e["slot"] in self.kept)
        self.wrote = {(e.get("asked_in", e["round"]), e["asked"]): e for e in by_fate}

    def trajectory(self) -> Row:
        done = self.end is not None and self.end["status"] == "finished"
        finish_s = self.end["at_s"] if self.end and done else math.nan
        tokens = {role: sum(a["output_tokens"] for a in self.asked if a["role"] == role) for role in ("weak", "strong")}
        return {
            "trajectory": self.number,
            "task": self.task,
            "status": "finished" if done else "unfinished",
            "reason": "" if done or self.end is None else self.end["status"],
            "counted": done,
            "arrival_s": self.start_s,
            "finish_s": finish_s,
            "time_s": finish_s - self.start_s,
            "queue_s": 0.0,
            "n_steps": sum(len(e["steps"]) for e in self.committed.values()),
            "n_rounds": len(self.committed),
            "n_drafted": sum(a["ask"] == "draft" for a in self.asked),
            "n_accepted": sum(
                self.intents[s["keys"][0]]["origin"] == "d" for e in self.committed.values() for s in e["steps"]
            ),
            "n_reviews": len(self.verdicts),
            "n_repairs": sum(a["ask"] == "repair" for a in self.asked),
            "weak_output_tokens": tokens["weak"],
            "strong_output_tokens": tokens["strong"],
            "wall_s": finish_s - self.start_s,
        }

    def _fate(self, asked: Row) -> str:
        if asked["ask"] == "write":
            return "written"
        if asked["ask"] == "repair":
            return "repaired"
        slot = self._intent(asked).get("slot")
        return "accepted" if slot in self.kept else "matched" if slot in self.matched else "discarded"

    def _intent(self, asked: Row) -> Row:
        """The first action of the step a request wrote; empty where the run was cut before it was journaled."""
        return self.wrote.get((asked["round"], asked["slot"]), {})

    def _first_step(self, round_: int) -> int:
        return sum(len(e["steps"]) for r, e in self.committed.items() if r < round_)

    def steps(self) -> Iterator[Row]:
        for a in self.asked:
            if a["ask"] != "verify":
                yield {
                    "trajectory": self.number,
                    "round": a["round"],
                    "step": a["step"],
                    "author": a["role"],
                    "fate": self._fate(a),
                    "effect": self._intent(a).get("effect", "unknown"),
                    "start_s": a["sent_s"],
                    "end_s": a["done_s"],
                    "output_tokens": a["output_tokens"],
                }

    def phases(self) -> Iterator[Row]:
        for a in self.asked:
            wasted = a["ask"] == "draft" and self._fate(a) == "discarded"
            first_s = a["sent_s"] if a["first_token_s"] is None else a["first_token_s"]
            parts = (
                (_PREFILL[a["ask"]], a["sent_s"], first_s),
                (_DECODE[a["ask"]], first_s, a["done_s"]),
            )
            for phase, start_s, end_s in parts:
                if end_s > start_s:
                    yield self._part(a, a["ask"], a["role"], "wasted_draft" if wasted else phase, start_s, end_s)
        for e in self.effects:
            free = self.intents[e["slot"]]["origin"] == "d" and e["slot"] not in self.kept
            phase = "wasted_tool" if free else "tool"
            step = self._first_step(e["round"]) + self.intents[e["slot"]]["offset"]
            yield self._part({**e, "step": step}, "tool", "tools", phase, e["start_s"], e["end_s"])

    def _part(self, event: Row, kind: str, lane: str, phase: str, start_s: float, end_s: float) -> Row:
        return {
            "trajectory": self.number,
            "round": event["round"],
            "step": event["step"],
            "kind": kind,
            "lane": lane,
            "phase": phase,
            "start_s": start_s,
            "end_s": end_s,
            "wall_s": end_s - start_s,
        }
