"""Real vLLM in this process: two engines with random weights, made once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from validate.vllm_offline import VllmOffline

WEAK_CHUNK, STRONG_CHUNK = 64, 128
"""Token budgets small enough that these prompts take several passes."""


class Seconds:
    """The clock of a real run."""

    def now_s(self) -> float:
        return time.monotonic()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("vllm", reason="vLLM is not installed here; `make validate` makes an environment with it")
    from validate.small_models import make_model

    return make_model(tmp_path_factory.mktemp("models") / "tiny", "tiny", seed=1)


@pytest.fixture(scope="session")
def open_engine() -> Callable[..., VllmOffline]:
    pytest.importorskip("vllm", reason="vLLM is not installed here; `make validate` makes an environment with it")
    from validate.vllm_offline import VllmOffline

    def open_one(model: Path, **options: object) -> VllmOffline:
        return VllmOffline(model, Seconds(), kv_cache_memory_bytes=128 << 20, max_model_len=2048, **options)

    return open_one


@pytest.fixture(scope="session")
def weak(open_engine: Callable[..., VllmOffline], tiny_model: Path) -> VllmOffline:
    """0.5 M random weights that write at random (greedy, random weights say one thing for ever)."""
    return open_engine(tiny_model, temperature=1.0, seed=3, longest_text=24, max_num_batched_tokens=WEAK_CHUNK)


@pytest.fixture(scope="session")
def strong(open_engine: Callable[..., VllmOffline], tmp_path_factory: pytest.TempPathFactory) -> VllmOffline:
    """13 M random weights, greedy."""
    from validate.small_models import make_model

    model = make_model(tmp_path_factory.mktemp("models") / "small", "small", seed=2)
    return open_engine(model, longest_text=24, max_num_batched_tokens=STRONG_CHUNK)
