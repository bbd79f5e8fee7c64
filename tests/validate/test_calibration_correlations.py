"""Correlations of a calibration: written, read strictly, and drawn; without them factors stay independent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from costmodel.deployment import deploy, factor_values
from hwprofiles.calibration import correlations
from hwprofiles.errors import ProfileError
from simulator.sampling import deployment_inputs, draw_samples
from validate import calibrate_file
from validate.calibrate_model import Point, Pricer
from validate.calibrate_run import calibrate_target
from validate.calibrate_targets import VirtualTarget
from validate.serve_fake import FakeService

MODEL = "Qwen/Qwen3-8B"


@pytest.fixture(scope="module")
def found():
    dep = deploy(MODEL, "h200")
    return asyncio.run(calibrate_target(dep, VirtualTarget(FakeService(dep, factor_values(dep)), 0.02, 1), 120.0))


@pytest.fixture
def path(found, tmp_path: Path) -> Path:
    content = calibrate_file.document(
        found.deployment, found.fitted, command="test", date="2026-11-30", facts=found.facts
    )
    calibrate_file.write(tmp_path / "c.toml", content)
    return tmp_path / "c.toml"


def drawn(path: Path) -> tuple[dict[str, np.ndarray], int]:
    samples = draw_samples(tuple(deployment_inputs(deploy(MODEL, "h200", calibration=path))), 2048, 0)
    return {name.partition(".")[2]: values for name, values in samples.items()}, 2048


def test_draws_hang_together_as_the_posterior_does(found, path):
    """Spearman's correlations of draws: a copula keeps them whatever the marginals."""
    from scipy.stats import spearmanr

    samples, _ = drawn(path)
    names = found.fitted.prior.names
    wanted = np.corrcoef(found.fitted.draws.T)
    i, j = np.unravel_index(np.argmin(wanted), wanted.shape)
    assert wanted[i, j] < -0.4
    rank = 6.0 / np.pi * np.arcsin(wanted[i, j] / 2.0)
    assert spearmanr(samples[names[i]], samples[names[j]]).statistic == pytest.approx(rank, abs=0.08)


def test_steps_are_drawn_narrower_than_from_independent_factors(found, path):
    """What was measured is known better than its parts: the step's own band is what the file must keep."""
    own = "[correlations.h200]"
    text = path.read_text()
    assert own in text
    alone = path.with_name("alone.toml")
    content = calibrate_file.document(
        found.deployment, found.fitted, command="test", date="2026-11-30", facts=found.facts
    )
    alone.write_text(tomli_w.dumps({k: v for k, v in content.items() if k != "correlations"}))
    pricer = Pricer(found.deployment, [Point(kind="decode", batch=1, new_tokens=1, context_tokens=1000)])
    widths = {}
    for file in (path, alone):
        samples, n = drawn(file)
        factors = {name: values[:, None] for name, values in samples.items() if name in factor_values(found.deployment)}
        seconds = np.asarray(pricer.seconds(factors)).reshape(n)
        widths[file] = float(np.diff(np.log(np.quantile(seconds, [0.05, 0.95])))[0])
    assert widths[path] < 0.7 * widths[alone]


@pytest.mark.parametrize(
    ("names", "lower", "word"),
    [
        (["gemm_s", "gemm_s"], [[1.0], [0.0, 1.0]], "different factors"),
        (["gemm_z"], [[1.0]], "different factors"),
        ("gemm_s", [[1.0]], "different factors"),
        (["gemm_s"], [[1.0], [0.0, 1.0]], "rows of 1"),
        (["gemm_s", "gemm_fill_k"], [[1.0], [2.0, 1.0]], "from -1 to 1"),
        (["gemm_s", "gemm_fill_k"], [[1.0], [float("nan"), 1.0]], "from -1 to 1"),
        (["gemm_s"], [[0.5]], "ending with 1"),
    ],
)
def test_what_are_no_correlations_is_refused(tmp_path: Path, names, lower, word):
    file = tmp_path / "bad.toml"
    file.write_text(
        tomli_w.dumps(
            {
                "extends": "bundled",
                "factors": {"h200": {"gemm_s": 1e-6}},
                "correlations": {"h200": {"names": names, "lower": lower}},
            }
        )
    )
    with pytest.raises(ProfileError, match=word):
        correlations(file, "h200")


def test_a_file_written_anew_is_read_anew(tmp_path: Path):
    """A process that calibrates writes the file it has read before."""
    file = tmp_path / "c.toml"
    for value in (1e-6, 2e-6):
        file.write_text(tomli_w.dumps({"extends": "bundled", "factors": {"h200": {"gemm_s": value}}}))
        assert deploy(MODEL, "h200", calibration=file).efficiency.factors["gemm_s"].value == value


def test_roles_in_either_order_keep_the_correlations_and_devices_stay_apart(tmp_path: Path):
    """A device measured alone shares its engine's times with an unmeasured one; two measured ones share nothing."""
    from simulator.case import prepare
    from simulator.sampling import inputs
    from simulator.scenario_file import load_scenario

    both = {"names": ["gemm_s", "host_step_s"], "lower": [[1.0], [-0.9, 1.0]]}
    bands = {"gemm_s": {"value": 3e-6, "low": 1e-6, "high": 9e-6}}
    times = {"host_step_s": {"value": 2e-3, "low": 1e-3, "high": 4e-3}}
    one = {
        "extends": "bundled",
        "factors": {"h200": bands},
        "engines": {"vllm-v1": times},
        "correlations": {"h200": both},
    }
    two = {
        "extends": "bundled",
        "factors": {"h200": bands, "b200": bands},
        "engines": {"vllm-v1": {**times, "on": {"h200": times, "b200": times}}},
        "correlations": {"h200": both, "b200": both},
    }

    def rho(content, weak, strong, a, b):
        file = tmp_path / f"{weak}-{strong}-{len(content['factors'])}.toml"
        file.write_text(tomli_w.dumps(content))
        case = prepare(load_scenario("llama-a100", (f"weak.hardware={weak}", f"strong.hardware={strong}"), file))
        samples = draw_samples(inputs(case), 1024, 0)
        return np.corrcoef(np.log(samples[a]), np.log(samples[b]))[0, 1]

    for weak, strong in (("h200", "b200"), ("b200", "h200"), ("h200", "h200")):
        assert rho(one, weak, strong, "h200.gemm_s", "vllm-v1.host_step_s") < -0.85
    assert abs(rho(two, "h200", "b200", "h200.gemm_s", "b200.gemm_s")) < 0.1
    assert rho(two, "h200", "b200", "b200.gemm_s", "vllm-v1@b200.host_step_s") < -0.85


def test_an_impossible_matrix_and_correlations_of_no_device_are_refused(tmp_path: Path):
    names = ["gemm_s", "gemm_fill_k", "gemm_fill_n"]
    lower = [[1.0], [0.99, 1.0], [0.99, -0.99, 1.0]]
    head = {"extends": "bundled", "factors": {"h200": {"gemm_s": 1e-6}}}
    file = tmp_path / "c.toml"
    file.write_text(tomli_w.dumps({**head, "correlations": {"h200": {"names": names, "lower": lower}}}))
    with pytest.raises(ProfileError, match="that some factors can have"):
        correlations(file, "h200")
    file.write_text(tomli_w.dumps({**head, "correlations": {"h20O": {"names": ["gemm_s"], "lower": [[1.0]]}}}))
    with pytest.raises(ProfileError, match="h20O"):
        correlations(file, "h200")
