"""The names that tables use, mapped to the product's own; one file, `data/names.toml`, has them all."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from costmodel.arch import ModelArch
from costmodel.dtypes import BYTES_PER_KV, BYTES_PER_WEIGHT
from costmodel.models import model, model_names
from hwprofiles.errors import InputError
from hwprofiles.hardware import Fact, Hardware
from hwprofiles.load import hardware

_FILE_ENDING = re.compile(
    r"(\.gguf|[-_.:](ud-)?(q\d_[0k](_[a-z]+)?|iq\d_[a-z]+|4bit|8bit|bf16|fp8|fp4|nvfp4|awq|gptq|mxfp4(-q4)?|mlx-[a-z0-9]+))$",
    re.IGNORECASE,
)
_VARIANT = re.compile(
    r"[-_](instruct|chat|it|hf|base|thinking|2507|2512|qat|latest|fp8-dynamic|v\d\.\d|nvfp4|fp8)$", re.IGNORECASE
)

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s?GB", re.IGNORECASE)
_ASSUMED_MEMORY_BYTES = 64e9
_ASSUMED_NPU_OPS = 45e12


@cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    raw = tomllib.loads((files("validate.accuracy") / "data" / "names.toml").read_text(encoding="utf-8"))
    return {section: {key.casefold(): value for key, value in names.items()} for section, names in raw.items()}


@cache
def find_device(name: str) -> Hardware | None:
    """The device a table means, or None."""
    folded = " ".join(name.split()).casefold()
    try:
        device = hardware(_tables()["hardware"].get(folded, folded))
    except InputError:
        return None
    stated = _MEMORY.search(name) if device.vendor == "Apple" else None
    if stated is not None:
        memory = Fact(value=float(stated[1]) * 1e9, tier="measured", source="as the table says")
        device = replace(device, memory_bytes=memory)
    return _completed(device)


def _completed(device: Hardware) -> Hardware:
    """A device with what its vendor leaves out assumed: 16 bit at half the 8-bit rate, and room for what was run."""
    peaks, memory = device.peak_flops_per_s, device.memory_bytes
    if "int8" in peaks and not {"bf16", "fp16", "fp32"} & set(peaks):
        half = Fact(value=peaks["int8"].value / 2, tier="assumed", source="half of int8")
        peaks = {**peaks, "bf16": half}
    if not peaks and device.device_class == "npu":
        rate = Fact(value=_ASSUMED_NPU_OPS, tier="assumed", source="not published: a phone's NPU of its generation")
        peaks = {"int8": rate, "bf16": replace(rate, value=_ASSUMED_NPU_OPS / 2)}
    if memory is None:
        memory = Fact(value=_ASSUMED_MEMORY_BYTES, tier="assumed", source="not published: whatever was run did fit")
    return replace(device, peak_flops_per_s=peaks, memory_bytes=memory)


@cache
def find_model(name: str) -> ModelArch | None:
    """The architecture a table means, or None.

    Tried in this order: the name as it stands, without its owner, without file endings (`-Q4_K_M.gguf`, `-4bit`), and
    without what does not change dimensions (`-Instruct`, `-it`).
    """
    for candidate in _candidates(name):
        known = _tables()["models"].get(candidate.casefold())
        try:
            return model(known or candidate)
        except InputError:
            continue
    return _named_after(name)


_SIZE = re.compile(r"\d(\.\d+)?b", re.IGNORECASE)


def _named_after(name: str) -> ModelArch | None:
    """A fine-tune that carries the name of its base, the longest one with a size in it: `ArliAI_Qwen3.5-27B-RpRMax`."""
    known = {short: full for full in model_names() if _SIZE.search(short := full.split("/", 1)[1].casefold())}
    known.update({k: v for k, v in _tables()["models"].items() if "/" not in k and _SIZE.search(k)})
    folded = name.casefold()
    hits = [k for k in known if re.search(rf"(?<![a-z0-9.]){re.escape(k)}(?![a-z0-9.])", folded)]
    return model(known[max(hits, key=len)]) if hits else None


def _candidates(name: str) -> list[str]:
    name = " ".join(name.split())
    found = [name]
    if "/" in name:
        found.append(name.split("/", 1)[1])
    for pattern in (_FILE_ENDING, _VARIANT):
        while True:
            shorter = pattern.sub("", found[-1])
            if shorter == found[-1]:
                break
            found.append(shorter)
    return [c for c in found if c]


@cache
def find_weight_dtype(name: str) -> str | None:
    """The storage type of weights a table means, or None."""
    folded = name.casefold()
    dtype = _tables()["weights"].get(folded, folded)
    return dtype if dtype in BYTES_PER_WEIGHT else None


@cache
def find_kv_dtype(name: str, weight_dtype: str) -> str | None:
    """The storage type of the KV cache; where the table says nothing, 16 bit."""
    folded = name.casefold()
    if folded in ("", "-"):
        return "fp16" if weight_dtype == "fp16" else "bf16"
    dtype = _tables()["kv"].get(folded, folded)
    return dtype if dtype in BYTES_PER_KV else None


@cache
def library(engine: str) -> str:
    """The kernel library behind an engine's name: its first word without the version (`vllm-0.19.0` is `vllm`)."""
    word = re.split(r"[\s/(;]", engine.casefold().strip(), maxsplit=1)[0]
    word = re.split(r"-(?=v?\d|nightly|glm)", word, maxsplit=1)[0]
    return {"tensorrt-llm": "trtllm", "deepspeed-mii": "mii", "llamacpp": "llama.cpp"}.get(word, word) or "unknown"
