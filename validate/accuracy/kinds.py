"""What each row of a table measures: its kind, the deployment it names, or the reason why it cannot be predicted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from costmodel.arch import LinearAttention, ModelArch, MoeMlp
from costmodel.counts import layer_groups
from hwprofiles.hardware import Hardware
from validate.accuracy import names
from validate.accuracy.serving_load import load_of
from validate.accuracy.tables import Row

RowKind = Literal[
    "decode", "prefill", "warm", "batch", "gemm", "linear", "elementwise", "attention",
    "tpot", "ttft", "e2e", "tpot_tail", "ttft_tail", "e2e_tail", "throughput",
]  # fmt: skip
"""Steps: decode, prefill, warm (prefill on a cached prefix). Whole static batches. Operators. Serving: means and
medians, quantiles above the median (`_tail`), throughput."""

OPERATORS = frozenset({"gemm", "linear", "elementwise", "attention"})
SERVING = frozenset({"tpot", "ttft", "e2e", "tpot_tail", "ttft_tail", "e2e_tail", "throughput"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What one row is about, in the product's names; `model` is None for single operators without a model."""

    kind: RowKind
    device: Hardware
    n_devices: int
    model: ModelArch | None
    weight_dtype: str
    kv_dtype: str
    library: str
    generation: str
    split: Literal["tensor", "layer", "row"] = "tensor"
    expert_parallel: int = 1

    @property
    def dtype(self) -> str:
        """Storage of the weights, bf16 and fp16 as one."""
        return "bf16" if self.weight_dtype == "fp16" else self.weight_dtype

    @property
    def family(self) -> str:
        """`moe`, `hybrid`, `dense`, or `-` for single operators."""
        if self.model is None:
            return "-"
        layers = [layer for layer, _ in layer_groups(self.model)]
        if any(isinstance(layer.mlp, MoeMlp) for layer in layers):
            return "moe"
        return "hybrid" if any(isinstance(layer.attention, LinearAttention) for layer in layers) else "dense"


def classify(row: Row) -> Subject | str:
    """The subject of a row, or why it cannot be predicted."""
    kind = row_kind(row)
    if kind not in _KINDS:
        return kind
    device = names.find_device(row.hardware)
    if device is None:
        return "device without a profile"
    if device.bandwidth_bytes_per_s is None or not device.peak_flops_per_s or device.memory_bytes is None:
        return "device whose datasheet lacks memory, bandwidth or peaks"
    has_model = kind not in ("gemm", "attention")
    arch = names.find_model(row.model) if has_model else None
    if has_model and arch is None:
        return "model whose architecture is not bundled"
    weight = "bf16" if kind == "attention" else _weight_dtype(row, arch)
    kv = names.find_kv_dtype(row.kv_dtype, weight or "bf16")
    if weight is None or kv is None:
        return "storage type that is not known"
    return Subject(
        kind=kind,  # type: ignore[arg-type]  # one of _KINDS
        device=device,
        n_devices=_devices(row),
        model=arch,
        weight_dtype=weight,
        kv_dtype=kv,
        library=names.library(row.engine),
        generation=generation(row),
        split=_split(row),
        expert_parallel=_expert_parallel(row, arch),
    )


def _devices(row: Row) -> int:
    """Devices of a replica: rows with data-parallel attention may count only those of one attention group."""
    groups = row.note.get("attn_dp", "1")
    counted = not any(key.startswith("attention data-parallel, n_devices taken as tp") for key in row.note)
    return row.n_devices * (1 if counted or not groups.isdigit() else max(1, int(groups)))


def _expert_parallel(row: Row, arch: ModelArch | None) -> int:
    """Ranks that share the experts out (`moe_ep`); 1 where the stated devices or the experts do not divide by them."""
    text = row.note.get("moe_ep", "1")
    ranks = int(text) if text.isdigit() else 1
    layers = [layer.mlp for layer, _ in layer_groups(arch)] if arch else []
    experts = [mlp.n_experts for mlp in layers if isinstance(mlp, MoeMlp)]
    fits = ranks > 0 and experts and all(n % ranks == 0 for n in (_devices(row), *experts))
    return ranks if fits else 1


def _weight_dtype(row: Row, arch: ModelArch | None) -> str | None:
    """As stated; else as the experts' (`moe_dtype`), as the checkpoint is published, or bf16."""
    if row.weight_dtype not in ("unstated", ""):
        return names.find_weight_dtype(row.weight_dtype)
    experts = names.find_weight_dtype(row.note.get("moe_dtype", ""))
    published = arch.quantisation.weight_dtype if arch and arch.quantisation else "bf16"
    moe = arch is not None and any(isinstance(layer.mlp, MoeMlp) for layer, _ in layer_groups(arch))
    return experts if experts and moe else published


def _split(row: Row) -> Literal["tensor", "layer", "row"]:
    if row.n_devices > 1 and any(key.startswith("layer split") for key in row.note):
        return "layer"
    return "row" if row.n_devices > 1 and any(key.startswith("row split") for key in row.note) else "tensor"


_KINDS = frozenset(RowKind.__args__)  # type: ignore[attr-defined]


def row_kind(row: Row) -> str:
    """The kind of a row, or the reason why there is none."""
    if row.metric == "op_ms":
        return _operator(row)
    if _is_serving(row):
        return _serving(row)
    if row.batch is None or row.batch < 1:
        return "batch not stated" if row.batch is None else "batch below 1"
    return "multi-token prediction without a stated acceptance" if _drafted(row) else _step(row)


def _is_serving(row: Row) -> bool:
    everything = any(key.startswith("maximum load") for key in row.note)
    return "serving" in row.kind or row.table.startswith("serving") or everything


def _step(row: Row) -> str:
    if row.phase == "decode" and row.metric in ("step_ms", "tok_s"):
        return "decode"
    if row.phase == "prefill" and row.metric in ("step_ms", "tok_s", "ttft_ms"):
        if not row.input_tokens:
            return "prompt length not stated"
        return "warm" if row.context_tokens else "prefill"
    if row.phase == "e2e" and row.metric in ("latency_s", "latency_ms", "output_tok_s", "output_tok_s_per_gpu"):
        return "batch" if row.input_tokens and row.output_tokens else "lengths not stated"
    return f"metric {row.metric} of phase {row.phase} has no model"


def _operator(row: Row) -> str:
    if row.phase == "attention":
        return "attention" if {"heads", "kv_heads", "head_dim", "kind"} <= set(row.note) else "heads not stated"
    if "m" in row.note:
        return "gemm" if {"n", "k"} <= set(row.note) else "shape not stated"
    op = row.note.get("op", "")
    return "elementwise" if op.startswith("elementwise") else ("linear" if op else "operator not named")


_BASES = {"ttft": "ttft", "tpot": "tpot", "itl": "tpot", "e2e": "e2e"}
_POINT = re.compile(r"p(\d{1,2})(?:_|$)")


def serving_metric(row: Row) -> tuple[str, float | None] | None:
    """What a serving row gives: `ttft`, `tpot`, `e2e` and the quantile (None: mean), or `rate`; None if neither."""
    if row.metric == "req_s" or row.metric.startswith("output_tok_s"):
        return "rate", None
    base, _, rest = row.metric.partition("_")
    if base not in _BASES:
        return None
    point = _POINT.match(rest)
    return _BASES[base], int(point[1]) / 100 if point else None


def _serving(row: Row) -> str:
    metric = serving_metric(row)
    if metric is None:
        return f"metric {row.metric} of serving has no model"
    if _drafted(row):
        return "multi-token prediction without a stated acceptance"
    load = load_of(row, names.library(row.engine))
    if isinstance(load, str):
        return load
    name, point = metric
    return "throughput" if name == "rate" else f"{name}_tail" if point is not None and point > 0.5 else name


def _drafted(row: Row) -> bool:
    return any(row.note.get(key, "0") not in ("", "0", "1", "none", "nan", "False") for key in ("mtp", "nextn", "spec"))


def generation(row: Row) -> str:
    """Engine generation whose host time is in the row; or the source of rows without any."""
    if row.metric == "op_ms":
        return "vidur" if row.source.startswith("vidur") else "micro-benchmark"
    if "estimate" in row.kind:
        return "silicon-database"
    for start, name in _SOURCES:
        if row.source.startswith(start):
            return name.format(library=names.library(row.engine))
    library, engine = names.library(row.engine), row.engine.casefold()
    if library == "trtllm" and re.search(r"\b0\.[56]", engine):
        return "trtllm-2024"
    if _is_serving(row) or library == "trtllm":
        return f"{library}-{_year(row, library)}"
    return "llama.cpp-2023" if engine.startswith("llama.cpp (nov 2023)") else names.library(engine)


_FIRST_OF_2026 = {"vllm": (0, 14), "sglang": (0, 5, 8), "trtllm": (1, 2)}
"""First versions of 2026."""


def _year(row: Row, library: str) -> int:
    """The year of an engine: of the measurement, else of its version, else the latest."""
    measured = row.note.get("measured", "")[:4]
    version = re.search(r"\d+(?:\.\d+)+", row.engine)
    if measured.isdigit():
        early = int(measured) < 2026
    else:
        first = _FIRST_OF_2026.get(library)
        early = bool(version and first and tuple(map(int, version[0].split("."))) < first)
    return 2025 if early else 2026


_SOURCES = (
    ("splitwise", "vllm-2023"),
    ("LLM-Inference-Bench", "{library}-2024"),
    ("BLIS", "{library}-2026-inference-perf"),
)
"""Sources that ran one engine of one time, or one client."""
