"""How a checkpoint is quantised, read from the `quantization_config` of its configuration."""

from __future__ import annotations

import re

from costmodel.arch import Layer, LinearAttention, MoeMlp, Quantisation
from costmodel.config_fields import Fields

METHODS = ("awq", "fp8", "gptq", "modelopt", "mxfp4")
_MODELOPT_DTYPES = {"FP8": "fp8", "NVFP4": "nvfp4"}
_INTEGER_DTYPES = {4: "int4", 8: "int8"}
_INT4_GROUP = 128


def read_quantisation(fields: Fields, layers: tuple[Layer, ...]) -> Quantisation | None:
    """`Quantisation` of a configuration object, None when it holds no `quantization_config`.

    Raises
    ------
    ProfileError
        Unknown method, a block or group size whose bytes per weight are not in the table, or a mix of precisions
        other than "all layer products" and "routed experts alone".
    """
    if fields.get("quantization_config") is None:
        return None
    quant = fields.child("quantization_config")
    method = quant.text("quant_method", METHODS)
    excluded = _excluded(quant)
    if method == "mxfp4":
        excluded = [*excluded, "re:.*self_attn.*", "re:.*shared_expert.*"]
    dtype = _weight_dtype(quant, method)
    kept = {piece: _excluded_everywhere(quant, excluded, modules) for piece, modules in _modules(layers).items()}
    if not any(kept.values()):
        return Quantisation(weight_dtype=dtype)
    if "experts" in kept and not kept["experts"] and all(v for piece, v in kept.items() if piece != "experts"):
        return Quantisation(weight_dtype=dtype, experts_only=True)
    names = ", ".join(sorted(piece for piece, v in kept.items() if v))
    raise quant.fail(
        "modules_to_not_convert", f"keeps {names} in 16 bit, which is neither nothing nor all but the routed experts"
    )


def _weight_dtype(quant: Fields, method: str) -> str:
    match method:
        case "fp8":
            block = quant.list_of("weight_block_size", int)
            if block not in (None, [128, 128]):
                raise quant.fail("weight_block_size", f"must be [128, 128] or null, got {block}")
            return "fp8"
        case "modelopt":
            return _MODELOPT_DTYPES[quant.text("quant_algo", tuple(_MODELOPT_DTYPES))]
        case "gptq" | "awq":
            bits = quant.integer("bits")
            if bits not in _INTEGER_DTYPES:
                raise quant.fail("bits", f"must be 4 or 8, got {bits}")
            group = quant.integer("group_size", _INT4_GROUP, low=-1)
            if bits == 4 and group != _INT4_GROUP:
                raise quant.fail("group_size", f"must be {_INT4_GROUP} for 4 bit, got {group}")
            return _INTEGER_DTYPES[bits]
        case _:
            return "mxfp4"


def _excluded(quant: Fields) -> list[str]:
    """Module patterns kept in 16 bit; the three spellings of the key mean the same."""
    names: list[str] = []
    for key in ("modules_to_not_convert", "ignore", "exclude_modules"):
        names += quant.list_of(key, str) or []
    return names


def _modules(layers: tuple[Layer, ...]) -> dict[str, list[str]]:
    """Representative module names per piece of the model, without the leading `model.` or `language_model.`."""
    pieces: dict[str, list[str]] = {}
    for i, layer in enumerate(layers):
        kind = "linear_attn" if isinstance(layer.attention, LinearAttention) else "self_attn"
        pieces.setdefault("attention", []).append(f"layers.{i}.{kind}.o_proj")
        if isinstance(layer.mlp, MoeMlp):
            pieces.setdefault("experts", []).append(f"layers.{i}.mlp.experts.0.down_proj")
            if layer.mlp.shared_width:
                shared = "shared_expert" if layer.mlp.shared_gate else "shared_experts"
                pieces.setdefault("shared experts", []).append(f"layers.{i}.mlp.{shared}.down_proj")
        else:
            pieces.setdefault("dense feed-forward", []).append(f"layers.{i}.mlp.down_proj")
    return pieces


def _excluded_everywhere(quant: Fields, patterns: list[str], modules: list[str]) -> bool:
    """Whether all `modules` are kept in 16 bit; some but not all is an error."""
    tests = [_compiled(quant, p) for p in patterns]
    hits = sum(any(test.match(m) for test in tests) for m in modules)
    if hits not in (0, len(modules)):
        raise quant.fail(
            "modules_to_not_convert",
            f"keeps {hits} of {len(modules)} modules like {modules[-1]!r} in 16 bit: a mix per layer is not supported",
        )
    return hits > 0


def _compiled(quant: Fields, pattern: str) -> re.Pattern[str]:
    """A pattern of one of the three dialects (regular expression, wildcard, module prefix) as an anchored regex."""
    if pattern.startswith("re:"):
        try:
            return re.compile(pattern[3:] + r"\Z")
        except re.error as error:
            raise quant.fail("ignore", f"holds the broken regular expression {pattern!r:.80}: {error}") from None
    bare = re.sub(r"^(model\.)?(language_model\.)?(model\.)?", "", pattern)
    bare = bare.replace("block_sparse_moe", "mlp")
    body = "".join(".*" if c == "*" else re.escape(c) for c in bare)
    anywhere = r"(.*\.)?" if bare.isidentifier() else ""
    return re.compile(rf"{anywhere}{body}(\..*)?\Z")
