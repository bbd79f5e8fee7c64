"""`SCHEMA`, the one table of columns of a run's frames: it builds and checks them, labels axes and renders the docs."""

from __future__ import annotations

from typing import NamedTuple

from costmodel.cost import COLUMNS

SCHEMA_VERSION = 2
STATUSES = ("finished", "unfinished", "rejected", "failed")


class Column(NamedTuple):
    """A column: `dtype` is int64, float64, bool or string; `unit` is "" for names and flags, "1" for counts."""

    dtype: str
    unit: str
    meaning: str


_COSTS = {
    "flops": Column("float64", "FLOP", "operations, all devices"),
    "weight_bytes": Column("float64", "B", "weights read, all devices"),
    "kv_bytes": Column("float64", "B", "KV cache read and written, all devices"),
    "state_bytes": Column("float64", "B", "recurrent state read and written, all devices"),
    "activation_bytes": Column("float64", "B", "activations, all devices"),
    "interconnect_bytes": Column("float64", "B", "collectives between devices"),
    "energy_j": Column("float64", "J", "energy of the work itself, idle power apart"),
    "busy_s": Column("float64", "s", "engine time, its share of shared iterations"),
    "api_usd": Column("float64", "USD", "bill of priced APIs"),
    "wall_s": Column("float64", "s", "agent time on the critical path"),
}
assert tuple(_COSTS) == COLUMNS

SCHEMA: dict[str, dict[str, Column]] = {
    "trajectories": {
        "trajectory": Column("int64", "", "number in order of start"),
        "task": Column("string", "", "trajectory id in the workload"),
        "status": Column("string", "", "finished, unfinished (the run ended first), rejected (cannot run) or failed"),
        "reason": Column("string", "", "why it was rejected or failed"),
        "counted": Column("bool", "", "False for warm-up, and for what kept the load up behind the last counted one"),
        "arrival_s": Column("float64", "s", "start on the run's clock"),
        "finish_s": Column("float64", "s", "end on the run's clock; NaN unless finished"),
        "time_s": Column("float64", "s", "agent time, finish - arrival less user think time; NaN unless finished"),
        "queue_s": Column("float64", "s", "part of it in engine queues or preempted"),
        "n_steps": Column("int64", "1", "steps committed"),
        "n_rounds": Column("int64", "1", "rounds ended"),
        "n_drafted": Column("int64", "1", "steps drafted"),
        "n_accepted": Column("int64", "1", "drafted steps committed"),
        "n_reviews": Column("int64", "1", "reviews"),
        "n_repairs": Column("int64", "1", "steps the reviewer wrote"),
        "n_preemptions": Column("int64", "1", "times a request lost its place for want of KV blocks"),
        "weak_output_tokens": Column("int64", "tokens", "decoded by the weak model"),
        "strong_output_tokens": Column("int64", "tokens", "decoded by the strong model"),
        "wasted_output_tokens": Column("int64", "tokens", "decoded for drafts that were discarded"),
        "wasted_tool_calls": Column("int64", "1", "steps of discarded drafts whose tools ran"),
        "wasted_energy_j": Column("float64", "J", "energy of discarded drafts"),
        "wasted_busy_s": Column("float64", "s", "engine time of discarded drafts"),
        "wasted_usd": Column("float64", "USD", "API bill and device time, where it has a price, of discarded drafts"),
        "traffic_bytes": Column("float64", "B", "weight_bytes + kv_bytes + state_bytes"),
        **_COSTS,
    },
    "steps": {
        "trajectory": Column("int64", "", "number of the trajectory"),
        "round": Column("int64", "", "round in the trajectory"),
        "step": Column("int64", "", "index in the task"),
        "author": Column("string", "", "weak or strong"),
        "fate": Column("string", "", "written, accepted, repaired, discarded, matched (it made the call) or cancelled"),
        "effect": Column("string", "", "read, pure, write, reply or unknown"),
        "start_s": Column("float64", "s", "its request was sent"),
        "end_s": Column("float64", "s", "its answer was there"),
        "output_tokens": Column("int64", "tokens", "decoded for it, thinking included"),
    },
    "requests": {
        "trajectory": Column("int64", "", "number of the trajectory"),
        "step": Column("int64", "", "index of the (first) step it is about"),
        "kind": Column("string", "", "write, draft, verify or repair"),
        "role": Column("string", "", "weak or strong"),
        "replica": Column("int64", "", "number of the replica that served it"),
        "submit_s": Column("float64", "s", "it reached its engine"),
        "start_s": Column("float64", "s", "start of its first iteration"),
        "first_token_s": Column("float64", "s", "end of the iteration that gave its first token; NaN without one"),
        "finish_s": Column("float64", "s", "end of its last iteration"),
        "prompt_tokens": Column("int64", "tokens", "prompt, cached tokens included"),
        "cached_tokens": Column("int64", "tokens", "part of it found in the prefix cache"),
        "output_tokens": Column("int64", "tokens", "decoded, thinking included"),
        "n_preemptions": Column("int64", "1", "times it lost its place for want of KV blocks"),
        "cancelled": Column("bool", "", "given up before its last token"),
    },
    "phases": {
        "trajectory": Column("int64", "", "number of the trajectory"),
        "round": Column("int64", "", "round in the trajectory"),
        "step": Column("int64", "", "index of the (first) step it is about"),
        "kind": Column("string", "", "write, draft, verify, repair or tool"),
        "lane": Column("string", "", "weak, strong, tools or network"),
        "phase": Column("string", "", "phase of the ledger"),
        "start_s": Column("float64", "s", "start on the run's clock; parts of one request are laid end to end"),
        "end_s": Column("float64", "s", "end on the run's clock"),
        **_COSTS,
    },
    "engine": {
        "role": Column("string", "", "weak or strong"),
        "replica": Column("int64", "", "number of the replica"),
        "start_s": Column("float64", "s", "start of the iteration, or run of equal ones"),
        "time_s": Column("float64", "s", "seconds of all of it"),
        "n_steps": Column("int64", "1", "iterations"),
        "n_prefill_tokens": Column("int64", "tokens", "prompt tokens computed"),
        "n_decode": Column("int64", "1", "sequences that decoded a token each iteration"),
        "kv_used_tokens": Column("int64", "tokens", "KV cache held by running sequences at its end"),
        "n_waiting": Column("int64", "1", "jobs queued at its end"),
    },
}
