"""The run on one GPU, as far as it needs neither a GPU nor torch: names, budget, memory, servers, files."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from costmodel.deployment import deploy, kv_capacity_tokens
from costmodel.models import model
from hwprofiles.errors import InputError
from hwprofiles.load import hardware
from validate import gpu_run
from validate.accuracy.tables import load_rows
from validate.budget import Budget, Share, seconds_of
from validate.calibrate_model import Point, Pricer
from validate.calibrate_probe import Sample, ServerFacts
from validate.calibrate_run import calibrate_samples, calibrate_target
from validate.calibrate_targets import VirtualTarget
from validate.design import Limits
from validate.dummy_model import shape_of
from validate.engine import EngineError
from validate.gpu_device import PROFILES, Machine, profile_of
from validate.gpu_plan import TORCH_SHARES, VLLM_SHARES, Job, longest_request, side_by_side
from validate.gpu_record import OutOfTime, PointsFile, Record
from validate.gpu_server import Server, command, free_port, last_words
from validate.gpu_vllm import VllmRun, scenario_text, trajectory_s
from validate.serve_fake import FakeService
from validate.small_models import Shape
from validate.torch_timing import Timer, chosen_points, held_tokens, is_memory, launch_bound, room_of, without_engine

H200 = Machine(device="NVIDIA H200", cuda=True, memory_bytes=150_000_000_000, details={"vllm": "0.32.0"})
CPU = Machine(device="AMD EPYC", cuda=False, memory_bytes=None, details={"torch": "2.13.0+cpu"})
MODELS = {"strong": "Qwen/Qwen3-8B", "weak": "Qwen/Qwen3-0.6B"}


class Clock:
    """Seconds that only a test moves."""

    def __init__(self):
        self.at_s = 0.0

    def __call__(self):
        return self.at_s


def job(tmp_path, machine=H200, device="h200", **changes):
    settings = {
        "out": tmp_path,
        "machine": machine,
        "device": hardware(device),
        "hardware": device,
        "models": MODELS,
        "eager": False,
        "settings": (),
        "seed": 0,
        "progress": lambda _: None,
    }
    return Job(**{**settings, **changes})


def record(tmp_path, total_s=720.0, clock=None):
    said = []
    budget = Budget(total_s, VLLM_SHARES | TORCH_SHARES, kept_s=20.0, now_s=clock or Clock())
    return Record(tmp_path, {"date": "2026-11-30"}, budget, said.append), said


# -- which device ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "profile"), PROFILES.items())
def test_every_name_leads_to_a_bundled_device_with_memory_and_a_16_bit_peak(name, profile):
    device = hardware(profile)
    machine = Machine(device=name, cuda=True, memory_bytes=int(device.memory_bytes.value * 0.97), details={})
    assert profile_of(machine, None) == device
    assert {"bf16", "fp16"} & set(device.peak_flops_per_s)


@pytest.mark.parametrize(
    ("machine", "named", "word"),
    [
        (replace(H200, device="NVIDIA H200 MIG 1g.18gb"), None, "no bundled device is called 'NVIDIA H200 MIG"),
        (replace(H200, device="NVIDIA H2000"), None, "--hardware"),
        (replace(H200, memory_bytes=18_000_000_000), None, "another board"),
        (CPU, None, "sees no GPU"),
        (CPU, "h200", "sees no GPU"),
        (H200, "xeon-8592", "class cpu"),
        (H200, "h2000", "unknown hardware"),
    ],
)
def test_a_device_that_is_not_surely_known_is_refused(machine, named, word):
    with pytest.raises(InputError, match=word):
        profile_of(machine, named)


def test_a_named_device_is_taken_where_the_kind_agrees():
    assert profile_of(replace(H200, device="new"), "b200").name == "b200"
    assert profile_of(CPU, "xeon-8592").device_class == "cpu"


# -- minutes --------------------------------------------------------------------------------------------------------


def test_times_are_read_with_their_unit():
    assert [seconds_of(t) for t in ("90s", "12min", "1.5h")] == [90.0, 720.0, 5400.0]
    for text in ("12", "0s", "-3min", "12 minutes", "1e3s"):
        with pytest.raises(InputError, match="--budget"):
            seconds_of(text)


def test_a_stage_gets_its_share_of_what_is_left_or_nothing():
    clock = Clock()
    budget = Budget(100.0, {"a": Share(most=0.5, least=0.2), "b": Share(most=1.0, least=0.2)}, kept_s=10.0, now_s=clock)
    assert budget.grant_s("a") == 45.0
    clock.at_s = 60.0
    assert budget.grant_s("a") == 0.0
    assert "30 s were left of 100 s" in budget.refusal("a")
    assert budget.grant_s("b") == 30.0
    clock.at_s = 500.0
    assert budget.left_s == 0.0


def test_twelve_minutes_leave_time_for_every_stage_at_the_times_the_document_assumes():
    clock = Clock()
    budget = Budget(720.0, VLLM_SHARES, kept_s=20.0, now_s=clock)
    for stage, takes_s in {"strong start": 90, "strong points": 120, "weak start": 60, "weak points": 90}.items():
        assert budget.grant_s(stage) >= takes_s, stage
        clock.at_s += takes_s
    assert budget.grant_s("replay") > 300.0


# -- memory ---------------------------------------------------------------------------------------------------------


def test_both_engines_fit_a_large_device_and_not_a_small_one(tmp_path):
    shares = side_by_side(job(tmp_path))
    assert shares == {"weak": 0.12, "strong": 0.8}
    small = job(tmp_path, device="l4")
    assert "does not fit" in side_by_side(small)
    assert longest_request(small.deployment("weak")) == 40_960
    assert longest_request(small.deployment("strong")) < kv_capacity_tokens(small.deployment("strong"))


def test_only_dense_qwen3_shapes_in_16_bit_can_be_made():
    assert shape_of(model(MODELS["strong"])) == Shape(
        layers=36, hidden=4096, heads=32, kv_heads=8, head_dim=128, intermediate=12288, tied=False
    )
    for name in ("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-32B-FP8", "meta-llama/Llama-3.1-70B", "Qwen/Qwen3.5-4B"):
        with pytest.raises(InputError, match="no dense Qwen3"):
            shape_of(model(name))


# -- steps of torch alone -------------------------------------------------------------------------------------------


def test_torch_alone_feels_no_host_and_its_fit_has_device_factors_only():
    dep = without_engine(deploy("Qwen/Qwen3-8B", "h200"))
    points = chosen_points(dep, 40_960, 100.0)
    assert len(points) > 20
    assert max(map(held_tokens, points)) <= 0.7 * kv_capacity_tokens(dep)
    truth = dict(dep.efficiency.values(), gemm_memory=0.7, attention_decode_memory=0.5)
    seconds = Pricer(dep, points).seconds(truth)
    samples = [Sample(point=p, seconds=float(s), sigma=0.04) for p, s in zip(points, seconds, strict=True)]
    facts = ServerFacts(model="m", version=None, block_tokens=None, kv_blocks=None, max_model_tokens=40_960)
    found = calibrate_samples([(dep, samples)], facts)
    estimates = found.fitted.estimates()
    assert not {"host_step_s", "host_seq_s", "request_s", "request_token_s"} & set(estimates)
    assert estimates["gemm_memory"].low <= 0.7 <= estimates["gemm_memory"].high
    assert found.fitted.misfit == 1.0


def test_two_models_on_one_device_are_fitted_together():
    parts = []
    for name in MODELS.values():
        dep = without_engine(deploy(name, "h200"))
        points = chosen_points(dep, 40_960, 20.0)
        seconds = Pricer(dep, points).seconds({})
        parts.append(
            (dep, [Sample(point=p, seconds=float(s), sigma=0.04) for p, s in zip(points, seconds, strict=True)])
        )
    facts = ServerFacts(model="m", version=None, block_tokens=None, kv_blocks=None, max_model_tokens=40_960)
    found = calibrate_samples(parts, facts)
    assert found.fitted.n == sum(len(samples) for _, samples in parts)
    assert {r["point"].partition(":")[0] for r in found.fitted.residuals()} == {"Qwen3-8B", "Qwen3-0.6B"}


def test_launching_and_memory_are_told_apart():
    assert launch_bound([(1.0, 0.8)] * 3)
    assert not launch_bound([(1.0, 0.5), (1.0, 0.6), (1.0, 9.0)])
    torch = SimpleNamespace(OutOfMemoryError=type("OutOfMemoryError", (RuntimeError,), {}))
    assert is_memory(torch.OutOfMemoryError("CUDA"), torch)
    assert is_memory(RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate"), torch)
    assert not is_memory(RuntimeError("no kernel image is available"), torch)


class Cuda:
    """What the timer asks of `torch.cuda`: a clock that steps move, slower to launch where nothing is captured."""

    def __init__(self, refuses=(), launch_s=0.0):
        self.at_s, self.host_s, self.launch_s = 0.0, 0.0, launch_s
        self.refuses, self.capturing = set(refuses), False
        self.Stream = self.current_stream = lambda: SimpleNamespace(wait_stream=lambda _: None)
        self.stream = lambda _: nullcontext()
        self.synchronize = self.empty_cache = lambda: None

    def Event(self, *, enable_timing):
        event = SimpleNamespace(at_s=None)
        event.record = lambda: setattr(event, "at_s", self.at_s)
        event.elapsed_time = lambda last: 1e3 * (last.at_s - event.at_s)
        return event

    def CUDAGraph(self):
        graph = SimpleNamespace(step_s=None, reset=lambda: None)
        graph.replay = lambda: setattr(self, "at_s", self.at_s + graph.step_s)
        return graph

    @contextmanager
    def graph(self, graph):
        self.capturing, before_s = True, self.at_s
        try:
            yield
            graph.step_s, self.at_s = self.at_s - before_s, before_s
        finally:
            self.capturing = False


class CudaDecoder:
    """Steps of one millisecond per sequence, on a device that is not there."""

    device = "cuda"

    def __init__(self, cuda):
        self.cuda = cuda
        memory = type("OutOfMemoryError", (RuntimeError,), {})
        self.torch = SimpleNamespace(cuda=cuda, OutOfMemoryError=memory, inference_mode=nullcontext)

    def reserve(self, tokens):
        pass

    def prepare(self, batch, new_tokens, context_tokens):
        return batch

    def step(self, batch):
        if self.cuda.capturing and batch in self.cuda.refuses:
            raise RuntimeError("operation not permitted when stream is capturing")
        if batch == 64:
            raise self.torch.OutOfMemoryError("CUDA out of memory")
        self.cuda.at_s += 1e-3 * batch
        if not self.cuda.capturing:
            self.cuda.host_s += self.cuda.launch_s


def test_on_a_gpu_steps_are_replayed_graphs_and_launched_only_where_they_cannot_be():
    cuda = Cuda(refuses=(2, 8), launch_s=3e-3)
    timer = Timer(CudaDecoder(cuda), now_s=lambda: cuda.host_s)
    points = [Point(kind="decode", batch=b, new_tokens=1, context_tokens=64) for b in (1, 2, 8, 64, 4)]
    found = timer.measure(points, 60.0)
    assert {s.point.batch: round(s.seconds, 9) for s in found.samples} == {1: 1e-3, 8: 8e-3, 4: 4e-3}
    assert (found.captured, found.launched) == (2, 2)
    assert found.notes == [
        "decode of 2 at 64: left out, launching its kernels takes longer than running them",
        "decode of 64 at 64: left out, out of memory",
    ]


def test_a_device_that_fails_again_and_again_is_given_up():
    decoder = CudaDecoder(Cuda())

    def broken(batch):
        raise RuntimeError("an illegal memory access was encountered")

    decoder.step = broken
    points = [Point(kind="decode", batch=b, new_tokens=1, context_tokens=64) for b in (1, 2, 4, 8, 16)]
    found = Timer(decoder, now_s=lambda: 0.0).measure(points, 60.0)
    assert not found.samples
    assert len(found.notes) == 4
    assert found.notes[-1] == "3 points in a row failed, so the rest was not tried"


# -- servers --------------------------------------------------------------------------------------------------------

PAGE = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
print("ready", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


def test_a_server_is_waited_for_and_stopped(tmp_path):
    port = free_port()
    with Server([sys.executable, "-c", PAGE, str(port)], port, tmp_path / "log", {}) as server:
        assert 0.0 < server.start(30.0) < 30.0
        child = server._child
        assert child.poll() is None
    assert child.poll() == -signal.SIGTERM
    server.stop()


def test_a_server_that_dies_says_why(tmp_path):
    words = "import sys; sys.stderr.write('a\\nValueError: no such model\\n INFO bye\\n'); sys.exit(3)"
    port = free_port()
    with (
        Server([sys.executable, "-c", words], port, tmp_path / "log", {}) as server,
        pytest.raises(EngineError, match="status 3: ValueError: no such model"),
    ):
        server.start(30.0)


def test_a_server_that_never_answers_is_given_up_and_killed_with_its_children(tmp_path):
    words = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('hm', flush=True); time.sleep(99)"
    )
    port = free_port()
    server = Server([sys.executable, "-c", words], port, tmp_path / "log", {})
    with pytest.raises(EngineError, match="not ready within"):
        server.start(0.6)
    child = server._child
    server.stop(grace_s=0.1)
    assert child.returncode in (-signal.SIGKILL, -signal.SIGTERM)


def test_the_command_line_keeps_to_this_machine_and_writes_no_weights(tmp_path):
    words = command(tmp_path, "strong", 1234, ["--enforce-eager"])
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert words[words.index("--load-format") + 1] == "dummy"
    assert last_words(tmp_path / "none").startswith("no log")


# -- files ----------------------------------------------------------------------------------------------------------


def test_a_failed_stage_is_written_down_and_the_run_goes_on(tmp_path):
    clock = Clock()
    kept, said = record(tmp_path, clock=clock)
    with kept.stage("strong start", 100.0) as entry:
        entry["log"] = "strong.log"
        clock.at_s = 12.0
        raise EngineError("the server ended")
    with kept.stage("both", 5.0):
        raise ZeroDivisionError
    kept.skip("replay", "no time")
    document = json.loads((tmp_path / "result.json").read_text())
    first, second, third = document["stages"]
    assert first == {
        "stage": "strong start", "status": "failed", "began_s": 0.0, "log": "strong.log", "why": "the server ended",
        "took_s": 12.0,
    }  # fmt: skip
    assert second["why"] == "ZeroDivisionError"
    assert "traceback" in second
    assert third == {"stage": "replay", "status": "skipped", "why": "no time"}
    assert not kept.done("strong start")
    assert len(said) == 5


def test_the_end_of_the_budget_and_interrupts_go_through_but_are_written_down(tmp_path):
    kept, _ = record(tmp_path)
    with pytest.raises(OutOfTime), kept.stage("replay", 10.0):
        raise OutOfTime
    (entry,) = json.loads((tmp_path / "result.json").read_text())["stages"]
    assert entry["status"] == "cut"
    assert "budget" in entry["why"]


def test_another_run_in_the_folder_is_not_written_over(tmp_path):
    record(tmp_path)
    with pytest.raises(InputError, match="another run"):
        record(tmp_path)


def test_points_are_on_disk_one_by_one_in_the_columns_that_calibrate_reads(tmp_path):
    dep = deploy("Qwen/Qwen3-8B", "h200")
    file = PointsFile(tmp_path / "points.csv", dep, "vllm-0.32.0", served=True)
    for kind, batch, new, context in (("prefill", 1, 512, 0), ("warm", 1, 64, 2048), ("decode", 8, 1, 1024.5)):
        point = Point(kind=kind, batch=batch, new_tokens=new, context_tokens=context)
        file.add(Sample(point=point, seconds=0.0123456, sigma=0.05))
        assert file.path.read_text().count("\n") == len(file.samples) + 1
    rows = load_rows([file.path])
    assert [(r.phase, r.metric, r.batch, r.input_tokens, r.context_tokens) for r in rows] == [
        ("prefill", "ttft_ms", 1.0, 512.0, 0.0),
        ("prefill", "ttft_ms", 1.0, 64.0, 2048.0),
        ("decode", "step_ms", 8.0, 1.0, 1024.5),
    ]
    assert {r.value for r in rows} == {12.3456}


def test_the_replay_is_of_both_models_in_turns_on_the_one_device(tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_text(scenario_text(job(tmp_path), {"weak": 0.12, "strong": 0.8}))
    calibration = tmp_path / "calibration.toml"
    calibration.write_text('extends = "bundled"\n[factors.h200]\ngemm_memory = 0.8\n')
    each_s = trajectory_s(path, ("workload.n=6",), calibration)
    assert 5.0 < each_s < 200.0


# -- the whole run, servers being fake ones on a virtual clock ------------------------------------------------------


class FakeVllm(VllmRun):
    """Servers that are there at once; the weak one can fail after some requests."""

    breaks_after = None

    def _start(self, role, share, stack):
        with self.record.stage(f"{role} start", self.record.budget.grant_s(f"{role} start")):
            if role == "weak" and self.breaks_after == 0:
                raise EngineError("the server ended with status 1: out of memory")
            self.servers[role] = role

    async def _measure(self, role, dep, points, budget_s):
        target = VirtualTarget(FakeService(dep), 0.01)
        self.facts = self.facts or target.facts
        return await calibrate_target(dep, target, 3.0, each=points.add)

    def _played(self, scenario, calibration, runs, within_s):
        return {"ranking": {"pairs_apart": 1, "ranked_right": 1}}


def test_a_run_leaves_a_calibration_of_each_model_and_of_both(tmp_path):
    kept, _ = record(tmp_path)
    assert FakeVllm(job(tmp_path, settings=("workload.n=6",)), kept).run()
    stages = {e["stage"]: e for e in kept.document["stages"]}
    assert [e["status"] for e in stages.values()] == ["done"] * 6
    assert stages["replay"]["runs"] >= 1
    points = [stages[f"{role} points"]["points"] for role in ("strong", "weak")]
    assert stages["both"]["points"] == sum(points)
    for name in ("strong", "weak", "calibration"):
        dep = deploy("Qwen/Qwen3-8B", "h200", calibration=tmp_path / f"{name}.toml")
        assert dep.engine.factors["request_s"].tier == "fitted"
        assert "points" in (tmp_path / f"{name}.toml").read_text()


def test_without_the_small_model_the_rest_is_kept_and_the_replay_is_named(tmp_path):
    kept, _ = record(tmp_path)
    run = FakeVllm(job(tmp_path), kept)
    run.breaks_after = 0
    assert run.run()
    stages = {e["stage"]: e for e in kept.document["stages"]}
    assert stages["weak start"]["why"].endswith("out of memory")
    assert stages["weak points"]["status"] == stages["replay"]["status"] == "skipped"
    assert (tmp_path / "calibration.toml").exists()


def test_with_a_minute_left_stages_are_skipped_and_named(tmp_path):
    clock = Clock()
    kept, _ = record(tmp_path, clock=clock)
    clock.at_s = 650.0
    run = VllmRun(job(tmp_path), kept)
    assert not run.run()
    assert {e["stage"]: e["status"] for e in kept.document["stages"]} == dict.fromkeys(
        ("strong start", "strong points", "weak start", "weak points"), "skipped"
    )
    assert "were left of 720 s" in kept.document["stages"][0]["why"]


# -- the command line -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--budget", "5s"], "at least 20s"),
        (["--budget", "soon"], "must be a time"),
        (["--with", "vlm"], "did you mean 'vllm'"),
        (["--hardware", "h200"], "sees no GPU"),
        (["--hardware", "xeon-8592", "--strong", "Qwen/Qwen3-30B-A3B"], "no dense Qwen3"),
        (["--hardware", "xeon-8592", "--weak", "nobody"], "unknown model"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, words, told):
    monkeypatch.setattr(gpu_run, "find_machine", lambda: CPU)
    assert gpu_run.main(["-o", str(tmp_path / "out"), *words]) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_what_is_missing_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_run, "find_machine", lambda: CPU)
    assert gpu_run.main(["-o", str(tmp_path / "out"), "--with", "vllm", "--hardware", "xeon-8592"]) == 3
    assert "No module named 'vllm'" in capsys.readouterr().err


def test_where_no_server_comes_up_torch_gets_the_rest_unless_vllm_was_asked_for(tmp_path, monkeypatch):
    kept, _ = record(tmp_path)
    began = []
    monkeypatch.setattr(gpu_run, "VllmRun", lambda *_: SimpleNamespace(run=lambda: False))
    monkeypatch.setattr(gpu_run, "TorchRun", lambda *_: SimpleNamespace(run=lambda: began.append(True)))
    gpu_run.run(job(tmp_path), kept, "vllm", fall_back=False)
    assert not began
    gpu_run.run(job(tmp_path), kept, "vllm", fall_back=True)
    assert began
    assert "torch alone" in kept.document["fell_back"]


def test_room_of_a_decoder_is_what_its_cache_and_positions_hold():
    dep = without_engine(deploy("Qwen/Qwen3-0.6B", "l4"))
    assert room_of(dep, 2048) == Limits(max_model_tokens=2048, kv_tokens=kv_capacity_tokens(dep), max_seqs=64)
