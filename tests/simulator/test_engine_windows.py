"""Sliding windows: running sums over clipped contexts equal the sums by sequence, whatever joins, fills and leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.cost import QUANTITIES
from costmodel.request import CacheRule
from simulator.decoders import BUSY, Decoders
from simulator.inflight import InFlight
from simulator.jobs import EngineJob

WINDOWS = (None, 24, 100)
KV, FLOPS = QUANTITIES.index("kv_bytes"), QUANTITIES.index("flops")


def unit(column, value=1.0):
    return tuple(value if i == column else 0.0 for i in range(len(QUANTITIES)))


@dataclass
class Windowed:
    """A step of n sequences: 1 + 0.1 n seconds, 1e-3 s and a byte per token seen in each window."""

    rule: CacheRule

    @property
    def slopes(self):
        return tuple((w, tuple(np.add(unit(KV), unit(BUSY, 1e-3)).tolist())) for w in WINDOWS)

    def decode_fixed(self, n_seqs):
        return tuple(np.add(unit(FLOPS, float(n_seqs)), unit(BUSY, 1 + 0.1 * n_seqs)).tolist())


def sequence(prompt, output):
    job = EngineJob("a", prompt, 0, output)
    return InFlight(job, 0.0, 0.0, "a", prompt, 0, output, prompt, computed_tokens=prompt, emitted_tokens=1)


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.integers(1, 130), st.integers(2, 150), st.integers(0, 60)), min_size=1, max_size=6),
    st.booleans(),
)
def test_sums_are_those_of_the_sequences(drawn, one_by_one):
    decoders = Decoders(Windowed(CacheRule(block_tokens=16, chunk_tokens=64)), 16)
    waiting = sorted(((at, sequence(prompt, output)) for prompt, output, at in drawn), key=lambda x: x[0])
    alive, expected, now, blocks = {}, {}, 0.0, 0
    while waiting or alive:
        while waiting and (waiting[0][0] <= decoders.iteration or not alive):
            seq = waiting.pop(0)[1]
            decoders.join(seq, now)
            alive[seq], expected[seq] = seq.computed_tokens, np.zeros(len(QUANTITIES))
        most = decoders.uniform_steps()
        if waiting:
            most = max(1, min(most, waiting[0][0] - decoders.iteration))
        k = 1 if one_by_one else most
        first, more = decoders.rate_s()
        for i in range(k):
            seen = {s: sum(min(c + 1, w) if w else c + 1 for w in WINDOWS) for s, c in alive.items()}
            assert first + i * more == pytest.approx(1 + 0.1 * len(alive) + 1e-3 * sum(seen.values()), rel=1e-12)
            for s in alive:
                own = np.divide(decoders._cost.decode_fixed(len(alive)), len(alive))
                own[KV] += seen[s]
                own[BUSY] += 1e-3 * seen[s]
                expected[s] += own
                blocks += -(-(alive[s] + 1) // 16) - -(-alive[s] // 16)
                alive[s] += 1
        assert decoders.blocks(k) == blocks
        blocks = 0
        now += k * first + more * k * (k - 1) / 2
        for seq in decoders.advance(k):
            decoders.leave(seq, now)
            assert (seq.computed_tokens, seq.emitted_tokens) == (alive.pop(seq), seq.output_tokens)
            np.testing.assert_allclose(seq.decode, expected[seq], rtol=1e-10)
    assert decoders.n == 0
    assert not any(decoders.crossing)
