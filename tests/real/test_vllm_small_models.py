"""Model folders that `validate.small_models` writes."""

from __future__ import annotations

import json

import pytest

from validate.small_models import SHAPES, main

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


def test_digits_are_tokens_of_their_own_and_marks_survive(tiny_model) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    assert all(len(tokenizer.encode(digit).ids) == 1 for digit in "0123456789")
    text = '<|im_start|>user\nGrüße, 42 Stück für 日本 \x00 {"a": [1]}<|im_end|>\n'
    encoded = tokenizer.encode(text)
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == text
    assert encoded.tokens.count("<|im_start|>") == 1


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tiny_model, tmp_path, capsys) -> None:
    for name, seed in (("same", 1), ("other", 2)):
        assert main([str(tmp_path / name), "--shape", "tiny", "--seed", str(seed)]) == 0
    for file in sorted(path.name for path in tiny_model.iterdir()):
        assert (tmp_path / "same" / file).read_bytes() == (tiny_model / file).read_bytes(), file
    weights = "model.safetensors"
    assert (tmp_path / "other" / weights).read_bytes() != (tiny_model / weights).read_bytes()
    assert capsys.readouterr().out.split() == [str(tmp_path / "same"), str(tmp_path / "other")]


def test_the_cost_model_reads_the_folder_and_counts_the_weights_that_are_there(tiny_model) -> None:
    from safetensors import safe_open

    from costmodel.counts import n_params
    from costmodel.models import model

    with safe_open(str(tiny_model / "model.safetensors"), framework="pt") as weights:
        n = sum(weights.get_tensor(key).numel() for key in weights.keys())  # noqa: SIM118
    assert n == n_params(model(str(tiny_model / "config.json")))
    assert len(json.loads((tiny_model / "config.json").read_text())["architectures"]) == 1
    assert SHAPES["tiny"].layers == 2
