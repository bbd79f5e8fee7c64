"""The record of one request between its submission and its answer."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from costmodel.cost import QUANTITIES
from costmodel.request import Pass
from simulator.jobs import EngineJob, Shares
from simulator.kvcache import Holding

NOTHING: Shares = (0.0,) * len(QUANTITIES)


@dataclass(slots=True, eq=False)
class InFlight:
    """One request under way.

    `goal_tokens` is the prompt plus, after a preemption, the output to recompute; `passes` counts from the last
    admission and `saved_tokens` are the prefix lengths whose recurrent state its blocks hold. `computed_tokens` and
    `emitted_tokens` stand still while it decodes (`Decoders` counts for all); `base` (under token speculation
    `fluid_base`), `joined`, `joined_s`, `due` and `spent` are theirs. `last_s` is the end of the last iteration it had
    a part in.
    """

    job: EngineJob
    submit_s: float
    ready_s: float
    key: Hashable
    prompt_tokens: int
    reusable_tokens: int
    output_tokens: int
    goal_tokens: int
    computed_tokens: int = 0
    emitted_tokens: int = 0
    cached_tokens: int = 0
    n_preemptions: int = 0
    passes: list[Pass] = field(default_factory=list)
    saved_tokens: tuple[int, ...] = ()
    holding: Holding | None = None
    is_queued: bool = False
    is_decoding: bool = False
    is_cancelled: bool = False
    base: int = 0
    fluid_base: float = 0.0
    joined: int = 0
    joined_s: float = 0.0
    due: int = 0
    spent: Sequence[float] = NOTHING
    start_s: float = math.nan
    first_token_s: float = math.nan
    last_s: float = 0.0
    found_tokens: int = 0
    prefill: list[tuple[Pass, Shares]] = field(default_factory=list)
    pass_s: list[float] = field(default_factory=list)
    decode: Shares = NOTHING
    decode_s: float = 0.0
    stalled_s: float = 0.0
