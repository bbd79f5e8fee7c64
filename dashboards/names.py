"""The words a reader sees for strategies, objectives, columns, phases and tiers."""

from __future__ import annotations

STRATEGY_LABELS: dict[str, str] = {
    "strong_only": "Strong only",
    "token_speculation": "Token speculation",
    "weak_only": "Weak only",
    "step_verification": "Step verification",
    "spec_agent": "SpecAgent",
    "task_router": "Task router",
    "step_router": "Step router",
    "step_speculation": "Step speculation",
    "spec_agent_pipelined": "SpecAgent, pipelined",
    "spec_agent_adaptive": "SpecAgent, adaptive",
}

OBJECTIVE_LABELS: dict[str, str] = {
    "time": "Time",
    "time_alone": "Time, idle engines",
    "traffic": "Memory traffic",
    "flops": "FLOPs",
    "energy": "Energy",
    "usd": "Money",
    "money": "Money",
    "strong_output_tokens": "Strong tokens",
    "success": "Success",
}
"""Objectives in the order in which figures and cards list them."""

HIGHER_IS_BETTER: frozenset[str] = frozenset({"success"})
"""Objectives of which more is a win; of all others less is."""

COLUMN_LABELS: dict[str, str] = {
    "time_s": "Time per task",
    "time_alone_s": "Time on idle engines",
    "traffic_bytes": "Memory traffic",
    "flops": "Compute",
    "energy_j": "Energy",
    "usd": "Money",
    "success": "Success",
    "strong_output_tokens": "Strong model output",
}

COLUMN_NOTES: dict[str, str] = {
    "time_s": "mean agent time at the scenario’s load; user gaps left out",
    "time_alone_s": "the same with nobody else on the engines",
    "traffic_bytes": "weights, KV cache and recurrent state, over all devices",
    "strong_output_tokens": "what it decodes: verdicts, repairs, thinking included",
}

PHASE_LABELS: dict[str, str] = {
    "prompt_prefill": "Prompt prefill",
    "observation_prefill": "Observation prefill",
    "decode": "Own decode",
    "draft_decode": "Draft decode",
    "verify_prefill": "Verify prefill",
    "verdict_decode": "Verdict decode",
    "repair_prefill": "Repair prefill",
    "repair_decode": "Repair decode",
    "reprefill": "Re-prefill",
    "wasted_draft": "Discarded draft",
    "tool": "Tool",
    "wasted_tool": "Discarded tool call",
    "network": "Network",
    "host": "Host",
    "queue": "Queue",
}

TIER_NOTES: dict[str, str] = {
    "datasheet": "stated by the maker",
    "measured": "read off a real system or a real trace",
    "fitted": "adjusted so that predictions match measurements",
    "assumed": "nobody measured it; the interval carries the doubt",
}
"""Tiers from the firmest to the softest, with what each means."""


def label(name: str, table: dict[str, str]) -> str:
    """The words of `table` for `name`, or `name` itself with its underscores as spaces."""
    return table.get(name, name.replace("_", " "))


def in_order(names: list[str], table: dict[str, str]) -> list[str]:
    """`names` without repeats, in the order of `table`, those it does not know last and as they came."""
    unique = list(dict.fromkeys(names))
    return [n for n in table if n in unique] + [n for n in unique if n not in table]
