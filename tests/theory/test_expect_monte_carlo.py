"""`expect` against drawn paths: means of seeded walks within four standard errors, up to 200 steps."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.acceptance import AcceptanceLaw
from costmodel.deployment import deploy
from costmodel.expect import compile_tape, expect
from costmodel.pricing import Pricing, Site
from costmodel.protocol import Role
from costmodel.session import ProtocolSizes
from costmodel.strategies import strategy
from costmodel.task import Task, TaskStep
from costmodel.trajectory import Effect
from costmodel.walk import walk

PRICING = Pricing(
    {
        Role.WEAK: Site(server=deploy("Qwen/Qwen3.5-4B", "h200")),
        Role.STRONG: Site(server=deploy("Qwen/Qwen3.5-397B-A17B", "h200", n_devices=8, weight_dtype="fp8")),
    }
)
LAW = AcceptanceLaw(position_logits=(-0.6, 0.2, 0.9), effect_logits={Effect.WRITE: -1.0, Effect.PURE: 0.7})
SHIFT = 1.5


def drawn_task(n, rng):
    """Random lengths, effects and heavy-tailed tool times."""
    effects = rng.choice(list(Effect), size=n, p=[0.6, 0.1, 0.15, 0.1, 0.05])
    return Task(
        "t",
        ((Role.WEAK, 3000), (Role.STRONG, 3500)),
        0,
        tuple(
            TaskStep(i, Effect(e), v, v + 40, v + 200, o, t)
            for i, (e, v, o, t) in enumerate(
                zip(
                    effects,
                    rng.integers(10, 150, n).tolist(),
                    rng.integers(0, 500, n).tolist(),
                    rng.lognormal(-1, 1, n).tolist(),
                    strict=True,
                )
            )
        ),
    )


def drawn_verdict(task, rng):
    u = rng.random(len(task.steps))

    def verdict(start, n):
        for m in range(n):
            offset = LAW.position_logits[min(m, 2)] + LAW.effect_logits.get(task.steps[start + m].effect, 0.0)
            if u[start + m] >= 1 / (1 + np.exp(-(SHIFT + offset))):
                return m
        return n

    return verdict


@pytest.mark.parametrize(
    ("which", "n_steps", "n_paths"),
    [(("spec_agent", 4), 200, 60), (("spec_agent", 8), 40, 300), (("step_verification", 1), 30, 300)],
)
def test_means_of_drawn_paths_are_within_four_standard_errors(which, n_steps, n_paths):
    rng = np.random.default_rng(20261130 + n_steps)
    task, sizes = drawn_task(n_steps, rng), ProtocolSizes()
    found = expect(compile_tape(strategy(*which), [task], LAW, PRICING, sizes), SHIFT, PRICING)
    paths = [walk(task, strategy(*which), drawn_verdict(task, rng), PRICING, sizes) for _ in range(n_paths)]
    ledgers = np.array([p.ledger for p in paths])
    rounds = np.array([len(p.rounds) for p in paths])
    mean, error = ledgers.mean(axis=0), ledgers.std(axis=0, ddof=1) / np.sqrt(n_paths)
    expected = found.ledger[0]
    fixed = error < 1e-9 * np.maximum(mean, 1e-30)
    np.testing.assert_allclose(mean[fixed], expected[fixed], rtol=1e-9)
    assert (~fixed).sum() > 30
    # rarely visited cells are not normal with few paths: those that most paths visit are held to four errors
    often = ~fixed & ((ledgers > 0).mean(axis=0) > 0.5)
    assert (np.abs(mean - expected)[often] < 4 * error[often]).all()
    assert abs(rounds.mean() - found.count("rounds")[0]) <= 4 * rounds.std(ddof=1) / np.sqrt(n_paths) + 1e-9
    wall = np.array([p.wall_s for p in paths])
    # the check can fail: the mean is known to a few per cent
    assert wall.std(ddof=1) / np.sqrt(n_paths) < 0.03 * wall.mean()
