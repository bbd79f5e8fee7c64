"""Folders of models with weights that are nowhere: the shape of a known model, a small tokenizer, no weight file.

vLLM fills them at random when it is started with `--load-format dummy`; what a step costs does not depend on them.
"""

from __future__ import annotations

from pathlib import Path

from costmodel.arch import Attention, DenseMlp, ModelArch
from costmodel.models import model
from hwprofiles.errors import InputError
from validate.small_models import Shape, write_folder


def shape_of(arch: ModelArch) -> Shape:
    """The shape of a dense Qwen3 model.

    Raises
    ------
    InputError
        The model is of another family, quantised, or its layers differ.
    """
    layer = arch.layers[0]
    a, mlp = layer.attention, layer.mlp
    plain = arch.family == "qwen3" and arch.quantisation is None and len(set(arch.layers)) == 1
    if not plain or not isinstance(a, Attention) or not isinstance(mlp, DenseMlp) or a.window is not None:
        raise InputError(
            f"{arch.name} is no dense Qwen3 model in 16 bit, the only shape that is made with random weights here"
        )
    return Shape(
        layers=len(arch.layers),
        hidden=arch.hidden,
        heads=a.n_heads,
        kv_heads=a.n_kv_heads,
        head_dim=a.d_head,
        intermediate=mlp.width,
        vocabulary=min(1024, arch.vocab),
        tied=arch.tied_embeddings,
    )


def write_dummy(out: Path, name_or_path: str) -> Path:
    """Writes the folder of a bundled model, or of one whose `config.json` is given, without weights.

    The tokenizer knows a thousand tokens, all bytes among them; ids above those have rows in the embedding and no text.
    """
    arch = model(name_or_path)
    write_folder(out, shape_of(arch), longest=arch.max_context_tokens or 32_768, rows=arch.vocab)
    return out
