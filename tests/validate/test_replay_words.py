"""Prompts of a replay: within the vocabulary, and never those of an earlier strategy or run."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from costmodel.protocol import Role
from validate.replay_life import Words, token_ids


@given(vocabulary=st.integers(2, 200_000))
def test_ids_are_in_the_vocabulary(vocabulary):
    low, high = token_ids(vocabulary)
    assert 0 <= low < high <= vocabulary


def test_another_salt_gives_other_prompts_and_the_same_the_same():
    ids = {Role.WEAK: (256, 607), Role.STRONG: (256, 32_000)}
    one, again, other = Words(ids, "run/spec_agent"), Words(ids, "run/spec_agent"), Words(ids, "run/strong_only")
    for role in Role:
        tokens = one.shared(role, 64)
        assert tokens == again.shared(role, 64)
        assert tokens != other.shared(role, 64)
        assert all(ids[role][0] <= t < ids[role][1] for t in tokens)
        assert one.draw(one.of(role, 3), role, 32) != one.draw(other.of(role, 3), role, 32)
    assert one.draw(random.Random(0), Role.WEAK, 0) == []
