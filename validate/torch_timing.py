"""Times engine steps of a decoder in torch alone, and calibrates device factors from them: no engine, so no host times.

On a GPU a step is captured once as a CUDA graph and replayed between two events, so that launching its kernels takes no
part in the time. Where a step cannot be captured it is launched kernel by kernel, and left out where launching takes
longer than most of it. On a CPU the clock is read before and after.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from costmodel.deployment import Deployment, kv_capacity_tokens
from hwprofiles.efficiency import Factor
from validate.calibrate import felt
from validate.calibrate_model import Point, Pricer
from validate.calibrate_prior import prior
from validate.calibrate_probe import Sample, sample_of
from validate.design import Limits, candidates, choose
from validate.dummy_model import shape_of
from validate.torch_model import Decoder

ENGINE = "torch"
WARM, REPEATS = 2, 7
_PASS_TOKENS = 16_384
"""More than any prefill that is timed: each goes in one pass."""
_NOTHING = 1e-15
"""A host time that no clock sees and that still has a logarithm."""
_LAUNCH_BOUND = 0.7
"""Share of a step's time from which launching it is what was timed."""
_MOST_SEQS = 64
_MOST_FAILURES = 3
"""Points in a row that fail for another reason than memory, after which the device is given up."""


def without_engine(dep: Deployment) -> Deployment:
    """The deployment as torch alone runs it: no host times, one pass per prefill, prefixes of any length."""
    none = Factor(value=_NOTHING, low=_NOTHING, high=_NOTHING, tier="measured", source="no engine runs")
    engine = replace(
        dep.engine,
        name=ENGINE,
        title="torch alone, no engine",
        page_tokens=1,
        chunk_tokens=_PASS_TOKENS,
        factors=dict.fromkeys(dep.engine.factors, none),
    )
    return replace(dep, engine=engine)


def room_of(dep: Deployment, longest: int) -> Limits:
    """What a decoder of `longest` positions has room for on the device."""
    return Limits(max_model_tokens=longest, kv_tokens=kv_capacity_tokens(dep), max_seqs=_MOST_SEQS)


def chosen_points(dep: Deployment, longest: int, budget_s: float) -> tuple[Point, ...]:
    """What to time: the design of a calibration, of what the device has room for.

    Parameters
    ----------
    dep : Deployment
        Of `without_engine`.
    longest : int
        Positions of the decoder.
    """
    room = room_of(dep, longest)
    points = candidates(room)
    if not points:
        return ()
    return choose(dep, felt(prior(dep), [Pricer(dep, points).seconds]), room, budget_s)


@dataclass(slots=True)
class Timings:
    """What came of it: samples, notes on what was left out, and how steps were launched."""

    samples: list[Sample]
    notes: list[str]
    captured: int = 0
    launched: int = 0


class Timer:
    """Times points of one decoder.

    Parameters
    ----------
    decoder : Decoder
    now_s : callable
        Of a CPU's steps, and of the budget.
    """

    def __init__(self, decoder: Decoder, now_s: Callable[[], float] = time.perf_counter) -> None:
        self.decoder, self.torch, self._now_s = decoder, decoder.torch, now_s
        self.cuda = decoder.device != "cpu"
        self.found = Timings([], [])

    def measure(
        self,
        points: Sequence[Point],
        budget_s: float,
        *,
        progress: Callable[[str], None] = lambda _: None,
        each: Callable[[Sample], None] = lambda _: None,
    ) -> Timings:
        """Time points in order; one that does not fit the memory, or cannot be run, is left out with a note.

        Parameters
        ----------
        budget_s : float
            After which no further point is begun.
        """
        self.found = Timings([], [])
        begun_s, failures = self._now_s(), 0
        with self.torch.inference_mode():
            points = self._reserve(points)
            for i, point in enumerate(points):
                if self._now_s() - begun_s > budget_s:
                    self.found.notes.append(f"no time was left for {len(points) - i} of {len(points)} points")
                    break
                progress(f"{i + 1} of {len(points)}: {point.label}")
                try:
                    took = self._seconds(point)
                except RuntimeError as error:
                    scarce = is_memory(error, self.torch)
                    failures = 0 if scarce else failures + 1
                    self._left_out(point, "out of memory" if scarce else _one_line(error))
                    if failures == _MOST_FAILURES:
                        self.found.notes.append(f"{failures} points in a row failed, so the rest was not tried")
                        break
                    continue
                failures = 0
                if took is None:
                    self._left_out(point, "launching its kernels takes longer than running them")
                    continue
                sample = sample_of(point, took)
                self.found.samples.append(sample)
                each(sample)
        return self.found

    def _left_out(self, point: Point, why: str) -> None:
        self.found.notes.append(f"{point.label}: left out, {why}")
        if self.cuda:
            self.torch.cuda.empty_cache()

    def _reserve(self, points: Sequence[Point]) -> list[Point]:
        """Room for the largest point; where that cannot be had, for the largest that can: the others are left out."""
        kept = list(points)
        while kept:
            most = max(held_tokens(p) for p in kept)
            try:
                self.decoder.reserve(most)
                break
            except RuntimeError as error:
                if not is_memory(error, self.torch):
                    raise
                for p in [p for p in kept if held_tokens(p) == most]:
                    kept.remove(p)
                    self._left_out(p, f"no memory for a cache of {most} tokens")
        return kept

    def _seconds(self, point: Point) -> list[float] | None:
        batch = self.decoder.prepare(point.batch, point.new_tokens, int(point.context_tokens))
        if not self.cuda:
            for _ in range(WARM):
                self.decoder.step(batch)
            self.found.launched += 1
            return [self._one_cpu(batch) for _ in range(REPEATS)]
        with self._captured(batch) as replay:
            if replay is not None:
                self.found.captured += 1
                return [self._one_cuda(replay)[0] for _ in range(WARM + REPEATS)][WARM:]
        took = [self._one_cuda(lambda: self.decoder.step(batch)) for _ in range(WARM + REPEATS)][WARM:]
        self.found.launched += 1
        return [seconds for seconds, _ in took] if not launch_bound(took) else None

    def _one_cpu(self, batch: Any) -> float:
        begun_s = self._now_s()
        self.decoder.step(batch)
        return self._now_s() - begun_s

    def _one_cuda(self, launch: Callable[[], object]) -> tuple[float, float]:
        """Seconds between two events on the device, and seconds that launching took on the host."""
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda.synchronize()
        begun_s = self._now_s()
        first.record()
        launch()
        last.record()
        host_s = self._now_s() - begun_s
        self.torch.cuda.synchronize()
        return first.elapsed_time(last) / 1e3, host_s

    @contextmanager
    def _captured(self, batch: Any) -> Iterator[Callable[[], object] | None]:
        """The step as a CUDA graph; None where it cannot be captured for another reason than memory."""
        cuda = self.torch.cuda
        aside = cuda.Stream()
        aside.wait_stream(cuda.current_stream())
        with cuda.stream(aside):
            for _ in range(WARM):
                self.decoder.step(batch)
        cuda.current_stream().wait_stream(aside)
        graph: Any = cuda.CUDAGraph()
        try:
            with cuda.graph(graph):
                self.decoder.step(batch)
        except RuntimeError as error:
            if is_memory(error, self.torch):
                raise
            graph = None
        try:
            yield None if graph is None else graph.replay
        finally:
            if graph is not None:
                cuda.synchronize()
                graph.reset()
                cuda.empty_cache()


def held_tokens(point: Point) -> int:
    """Tokens in the cache at the end of a point's step, over all its sequences."""
    return point.batch * (int(point.context_tokens) + point.new_tokens)


def launch_bound(took: Sequence[tuple[float, float]]) -> bool:
    """Whether (device, host) seconds of repeats say that launching was what was timed."""
    device_s, host_s = (sorted(t[i] for t in took)[len(took) // 2] for i in (0, 1))
    return host_s > _LAUNCH_BOUND * device_s


def is_memory(error: RuntimeError, torch: Any) -> bool:
    """Whether an error of torch means that memory ran out, on the device or on the host."""
    text = str(error).casefold()
    return isinstance(error, torch.OutOfMemoryError) or "not enough memory" in text or "out of memory" in text


def decoder_of(dep: Deployment, cuda: bool, longest: int) -> Decoder:
    """The decoder of a deployment's model in bf16 on this machine's device."""
    return Decoder(shape_of(dep.model), dep.model.vocab, longest, "cuda" if cuda else "cpu")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
