"""What work costs: the quantities every ledger cell holds, and the phases every ledger is split into."""

from __future__ import annotations

QUANTITIES: tuple[str, ...] = (
    "flops",
    "weight_bytes",
    "kv_bytes",
    "state_bytes",
    "activation_bytes",
    "interconnect_bytes",
    "energy_j",
    "busy_s",
)
"""Columns of an engine's resource ledger, summed over all devices of a deployment.

`energy_j` is above idle; `busy_s` is engine time, not device time.
"""

COLUMNS: tuple[str, ...] = (*QUANTITIES, "api_usd", "wall_s")
"""Columns of a trajectory's ledger: the engine's, what a priced API bills, and time on the critical path."""

TRAFFIC: tuple[str, ...] = ("weight_bytes", "kv_bytes", "state_bytes")
"""The headline memory traffic: weights, KV cache and recurrent state, replication included."""

PHASES: tuple[str, ...] = (
    "prompt_prefill",
    "observation_prefill",
    "decode",
    "draft_decode",
    "verify_prefill",
    "verdict_decode",
    "repair_prefill",
    "repair_decode",
    "reprefill",
    "wasted_draft",
    "tool",
    "wasted_tool",
    "network",
    "host",
    "queue",
)
"""The closed list of phases. `decode` is a model writing a step by itself; `reprefill` recomputes tokens that were
computed before (cache blocks, state alignment, roll-back, eviction); `wasted_*` belong to discarded drafts."""
