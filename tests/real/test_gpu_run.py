"""The run on one GPU, whole, on this machine's CPU with small shapes: servers of real vLLM, and torch alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.models import model
from hwprofiles.calibration import measured_factors

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

DEVICE = """
name = "two-cores"
title = "two cores of a server"
vendor = "unknown"
device_class = "cpu"
memory_bytes = { value = 24e9, tier = "assumed", source = "a test" }
bandwidth_bytes_per_s = { value = 30e9, tier = "assumed", source = "a test" }
[peak_flops_per_s]
bf16 = { value = 200e9, tier = "assumed", source = "a test" }
"""
REPLAY = ("trace=", "law=autonomous", "steps=2", "output_tokens=4", "observation_tokens=20", "context_tokens=200")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A device and the shapes of two models, which are written as config.json alone."""
    pytest.importorskip("vllm", reason="vLLM is not installed here; `make validate` makes an environment with it")
    from validate.small_models import SHAPES, Shape, write_folder

    out = tmp_path_factory.mktemp("gpu")
    (out / "cpu.toml").write_text(DEVICE)
    smaller = Shape(layers=1, hidden=64, heads=2, kv_heads=1, head_dim=32, intermediate=128, tied=False)
    write_folder(out / "strong", SHAPES["tiny"], longest=640, rows=32_000)
    write_folder(out / "weak", smaller, longest=640, rows=32_000)
    return out


def words(folder: Path, out: Path, *more: str) -> list[str]:
    models = ("--strong", str(folder / "strong"), "--weak", str(folder / "weak" / "config.json"))
    return [
        *(sys.executable, "-m", "validate.gpu_run", "-o", str(out), "--hardware", str(folder / "cpu.toml")),
        *models,
        *more,
    ]


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def run(folder: Path, out: Path, *more: str) -> dict:
    done = subprocess.run(
        words(folder, out, *more), env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(out / "result.json"))
    return json.loads((out / "result.json").read_text())


def stages(document: dict) -> dict[str, dict]:
    return {entry["stage"]: entry for entry in document["stages"]}


def test_with_vllm_both_models_are_calibrated_and_played(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = [word for text in REPLAY for word in ("--set", f"workload.{text}")]
    document = run(folder, out, "--with", "vllm", "--budget", "6min", *settings)
    found = stages(document)
    assert [found[s]["status"] for s in ("strong start", "strong points", "weak start", "weak points", "both")] == [
        "done"
    ] * 5, document["stages"]
    assert found["replay"]["status"] == "done", found["replay"]
    assert set(found["replay"]["measured"]) == {"strong_only", "spec_agent"}
    for role in ("strong", "weak"):
        entry = found[f"{role} points"]
        rows = (out / entry["points_file"]).read_text().splitlines()[1:]
        assert entry["points"] == len(rows) >= 5
        assert entry["outside_the_fit"]["n"] >= 2
        assert not list((out / "models" / role).glob("*.safetensors"))
        made, named = model(str(out / "models" / role)), model(str(folder / role))
        assert replace(made, name="", source="") == replace(named, name="", source="")
        assert measured_factors(out / f"{role}.toml")["two-cores"]
        assert "engines.vllm-v1" in (out / f"{role}.toml").read_text()
        assert "Application startup complete" in (out / f"{role}.log").read_text()
    assert found["both"]["points"] == sum(found[f"{role} points"]["points"] for role in ("strong", "weak"))
    assert (out / "replay.html").stat().st_size > 10_000
    assert json.loads((out / "replay.json").read_text())["mode"] == "replay"
    assert {p.name for p in (out / "runs").iterdir()} == {"strong_only", "spec_agent"}


def test_with_torch_alone_there_are_device_factors_and_no_host_times(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    document = run(folder, out, "--with", "torch", "--budget", "60s")
    found = stages(document)
    assert document["engine"] == "torch"
    assert found["replay"]["status"] == "skipped"
    for role in ("strong", "weak"):
        entry = found[f"{role} steps"]
        assert entry["status"] == "done", entry
        assert entry["points"] == entry["kernel_by_kernel"] >= 5
        assert entry["as_graphs"] == 0
        text = (out / f"{role}.toml").read_text()
        assert "alone, no engine" in text
        assert "engines" not in text
        assert "request_s" not in text
    assert found["both"]["points"] == sum(found[f"{role} steps"]["points"] for role in ("strong", "weak"))


def test_a_terminated_run_stops_its_server_and_keeps_what_it_has(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with subprocess.Popen(
        words(folder, out, "--with", "vllm", "--budget", "5min"),
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as child:
        line = child.stderr.readline()
        while b"strong start" not in line:
            line = child.stderr.readline()
        while not (out / "strong.log").exists():
            pass
        child.send_signal(signal.SIGTERM)
        child.stderr.read()
        assert child.wait(60) == 130
    document = json.loads((out / "result.json").read_text())
    assert document["status"] == "interrupted"
    assert stages(document)["strong start"]["status"] == "cut"
    port = stages(document)["strong start"]["command"].split("--port ")[1].split()[0]
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if f"--port\0{port}".encode() in _read(p)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_the_decoder_computes_what_qwen3_computes() -> None:
    """Logits' most likely token, keys and values equal those of the reference implementation, however it is fed."""
    torch = pytest.importorskip("torch")
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from validate.small_models import Shape
    from validate.torch_model import Batch, Decoder

    shape = Shape(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, intermediate=96, tied=False)
    ours = Decoder(shape, 300, 128, "cpu", dtype=torch.float32, seed=1)
    config = Qwen3Config(
        vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-6, tie_word_embeddings=False, max_position_embeddings=128,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )  # fmt: skip
    theirs = Qwen3ForCausalLM(config).eval()
    weights = {"model.embed_tokens.weight": ours.embedding, "lm_head.weight": ours.head, "model.norm.weight": ours.norm}
    for i, layer in enumerate(ours.layers):
        q, k, v = layer.qkv.split([64, 32, 32])
        gate, up = layer.gate_up.chunk(2)
        parts = {
            "self_attn.q_proj": q, "self_attn.k_proj": k, "self_attn.v_proj": v, "self_attn.o_proj": layer.out,
            "mlp.gate_proj": gate, "mlp.up_proj": up, "mlp.down_proj": layer.down, "input_layernorm": layer.norms[0],
            "self_attn.q_norm": layer.norms[1], "self_attn.k_norm": layer.norms[2],
            "post_attention_layernorm": layer.norms[3],
        }  # fmt: skip
        weights |= {f"model.layers.{i}.{name}.weight": weight for name, weight in parts.items()}
    theirs.load_state_dict(weights)
    with torch.inference_mode():
        ours.reserve(48)
        whole = ours.prepare(1, 48, 0)
        token = ours.step(whole)
        cache = whole.views.clone()
        said = theirs(whole.ids, use_cache=True)
        assert said.logits[0, -1].argmax() == token[0]
        for i, layer in enumerate(said.past_key_values.layers):
            torch.testing.assert_close(layer.keys, cache[i, 0])
            torch.testing.assert_close(layer.values, cache[i, 1])
        for cuts in ((40, 48), (1, 47, 48), tuple(range(1, 49))):
            ours.cache.zero_()
            begun = 0
            for end in cuts:
                new = whole.ids[:, begun:end]
                seen = whole.views[:, :, :, :, :end]
                token_again = ours.step(Batch(new, seen, begun, ours._mask(end - begun, end)))
                begun = end
            torch.testing.assert_close(whole.views, cache)
            assert token_again == token


def test_a_point_without_memory_is_left_out_and_the_others_are_timed() -> None:
    torch = pytest.importorskip("torch")
    from validate.calibrate_model import Point
    from validate.small_models import SHAPES
    from validate.torch_model import Decoder
    from validate.torch_timing import Timer

    class Small(Decoder):
        def reserve(self, tokens: int) -> None:
            if tokens > 1000:
                raise torch.OutOfMemoryError(f"tried to allocate {tokens}")
            super().reserve(tokens)

        def step(self, batch):
            if batch.ids.shape == (1, 24):
                raise RuntimeError("no kernel image is available")
            return super().step(batch)

    def decode(batch: int, context: int) -> Point:
        return Point(kind="decode", batch=batch, new_tokens=1, context_tokens=context)

    prefills = [Point(kind="prefill", batch=1, new_tokens=n, context_tokens=0) for n in (16, 24, 32)]
    points = [decode(2, 900), *prefills, decode(2, 100)]
    found = Timer(Small(SHAPES["tiny"], 300, 1024, "cpu")).measure(points, 60.0)
    assert [s.point for s in found.samples] == [prefills[0], prefills[2], points[-1]]
    assert found.notes == [
        "decode of 2 at 900: left out, no memory for a cache of 1802 tokens",
        "prefill of 24: left out, no kernel image is available",
    ]
    assert all(s.seconds > 0 for s in found.samples)
    assert found.launched == 3
