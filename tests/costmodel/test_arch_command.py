"""`specroof models`: the keys of the contract, one line per error."""

from __future__ import annotations

import json

import pytest

from costmodel.models import model_names
from specroof.cli import main


def test_show_has_the_contract_keys_and_exact_figures(capsys):
    assert main(["models", "show", "qwen3.5-397b-a17b", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] >= 1
    assert document["n_params"] == 396_346_350_336
    assert document["n_active_params"] == 17_349_040_896
    assert document["kv_bytes_per_token"] == 30_720
    assert document["state_bytes_per_sequence"] == 192_061_440
    assert document["n_layers"] == 60
    assert [(g["count"], g["attention"]["kind"], g["mlp"]["kind"]) for g in document["layers"]] == [
        (45, "gated_delta", "moe"),
        (15, "full", "moe"),
    ]


def test_show_takes_a_kv_dtype(capsys):
    assert main(["models", "show", "Llama-3.1-8B", "--kv-dtype", "fp8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kv_bytes_per_token"] == 65_536


@pytest.mark.parametrize("arguments", [["models", "--json"], ["models", "list", "--json"]])
def test_list_names_every_bundled_model(arguments, capsys):
    assert main(arguments) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["models"]] == list(model_names())


def test_tables_for_people(capsys):
    assert main(["models"]) == 0
    assert "Qwen/Qwen3.5-4B" in capsys.readouterr().out
    assert main(["models", "show", "DeepSeek-V3.2"]) == 0
    shown = capsys.readouterr().out
    assert "671,877,944,064" in shown
    assert "58 x sparse_latent" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Qwen3.5-5B"], "unknown model 'Qwen3.5-5B'; did you mean"),
        (["absent.json"], "absent.json: no such file"),
        (["Llama-3.1-8B", "--kv-dtype", "fp9"], "unknown kv dtype 'fp9'; did you mean 'fp8'?"),
    ],
)
def test_bad_input_is_exit_2_with_one_plain_line(arguments, message, capsys):
    assert main(["models", "show", *arguments, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
