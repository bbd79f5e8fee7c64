"""What became of a request stream: times of every request, their means and quantiles, throughput."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """What became of each request, arrays in the order of the requests.

    Parameters
    ----------
    submit_s, start_s, first_token_s, finish_s : float arrays
        When it was sent, first computed, answered its first and its last token.
    output_tokens, cached_tokens, replica, n_preemptions : int arrays
        `cached_tokens` of the prompt were found in the prefix cache.
    busy_s : float array (n_replicas,)
    """

    submit_s: Array
    start_s: Array
    first_token_s: Array
    finish_s: Array
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]
    replica: NDArray[np.int64]
    n_preemptions: NDArray[np.int64]
    busy_s: Array

    @property
    def ttft_s(self) -> Array:
        """Time to first token: first_token_s - submit_s."""
        return self.first_token_s - self.submit_s

    @property
    def e2e_s(self) -> Array:
        """Request latency: finish_s - submit_s."""
        return self.finish_s - self.submit_s

    @property
    def tpot_s(self) -> Array:
        """Mean time between the tokens of a request: (finish_s - first_token_s) / (output_tokens - 1); NaN for one."""
        gaps = np.where(self.output_tokens > 1, self.output_tokens - 1, np.nan)
        found: Array = (self.finish_s - self.first_token_s) / gaps
        return found

    def document(self) -> dict[str, Any]:
        """Means and quantiles over all requests, throughput and use of the replicas, as plain values."""
        span_s = float(self.finish_s.max() - self.submit_s.min())
        return {
            "requests": len(self.submit_s),
            "duration_s": span_s,
            "requests_per_s": len(self.submit_s) / span_s,
            "output_tokens_per_s": float(self.output_tokens.sum()) / span_s,
            "cached_share": float(self.cached_tokens.sum() / self.prompt_tokens.sum()),
            "preemptions": int(self.n_preemptions.sum()),
            "utilisation": [float(busy) / span_s for busy in self.busy_s],
            "requests_by_replica": np.bincount(self.replica, minlength=len(self.busy_s)).tolist(),
            **{name: spread(getattr(self, name)) for name in ("ttft_s", "tpot_s", "e2e_s")},
        }


def spread(values: Array) -> dict[str, float | None]:
    """Mean and `QUANTILES` of the values that are not NaN."""
    known = values[~np.isnan(values)]
    if not len(known):
        return dict.fromkeys(("mean", *(f"p{100 * q:g}" for q in QUANTILES)))
    points = np.quantile(known, QUANTILES).tolist()
    return {"mean": float(known.mean())} | {f"p{100 * q:g}": point for q, point in zip(QUANTILES, points, strict=True)}
