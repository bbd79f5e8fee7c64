"""What each row of a table measures: its kind, the deployment it names, or the reason why it cannot be predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from costmodel.arch import LinearAttention, ModelArch, MoeMlp
from costmodel.counts import layer_groups
from hwprofiles.hardware import Hardware
from validate.accuracy import names
from validate.accuracy.tables import Row

RowKind = Literal[
    "decode", "prefill", "warm", "batch", "gemm", "linear", "elementwise", "attention", "tpot", "ttft", "e2e"
]
"""Steps: decode, prefill, warm (prefill on a cached prefix). Whole static batches. Operators. Serving figures."""

OPERATORS = frozenset({"gemm", "linear", "elementwise", "attention"})
SERVING = frozenset({"tpot", "ttft", "e2e"})


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
        n_devices=row.n_devices,
        model=arch,
        weight_dtype=weight,
        kv_dtype=kv,
        library=names.library(row.engine),
        generation=generation(row),
        split=_split(row),
    )


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
    if "serving" in row.kind or row.table.startswith("serving"):
        return _serving(row)
    if row.batch is None or row.batch < 1:
        return "batch not stated" if row.batch is None else "batch below 1"
    return "multi-token prediction without a stated acceptance" if _drafted(row) else _step(row)


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


_QUANTILES = ("p50", "p90", "p99")


def _serving(row: Row) -> str:
    base, _, rest = row.metric.partition("_")
    if base in ("itl", "tpot", "ttft", "e2e"):
        if any(q in rest for q in _QUANTILES[1:]):
            return "a tail quantile, which needs the queueing simulation"
        if not row.input_tokens or not row.output_tokens:
            return "lengths not stated"
        if _drafted(row):
            return "multi-token prediction without a stated acceptance"
        if row.batch is None and _rate(row) is None:
            return "neither concurrency nor request rate stated"
        return "tpot" if base == "itl" else base
    return f"metric {row.metric} of serving has no closed form"


def _drafted(row: Row) -> bool:
    return any(row.note.get(key, "0") not in ("", "0", "1", "none", "nan", "False") for key in ("mtp", "nextn", "spec"))


def _rate(row: Row) -> float | None:
    try:
        return float(row.note.get("rate_req_s", ""))
    except ValueError:
        return None


def generation(row: Row) -> str:
    """Engine generation whose host time is in the row; or the source of rows without any."""
    if row.metric == "op_ms":
        return "vidur" if row.source.startswith("vidur") else "micro-benchmark"
    if "estimate" in row.kind:
        return "silicon-database"
    for start, name in _SOURCES:
        if row.source.startswith(start):
            return name.format(library=names.library(row.engine))
    if "serving" in row.kind or row.table.startswith("serving"):
        return f"{names.library(row.engine)}-2026"
    engine = row.engine.casefold()
    if names.library(engine) == "trtllm":
        return "trtllm-2024" if any(v in engine for v in ("0.5", "0.6")) else "trtllm-2026"
    return "llama.cpp-2023" if engine.startswith("llama.cpp (nov 2023)") else names.library(engine)


_SOURCES = (
    ("splitwise", "vllm-2023"),
    ("LLM-Inference-Bench", "{library}-2024"),
    ("BLIS", "{library}-2026-inference-perf"),
)
"""Sources that ran one engine of one time, or one client."""
