"""A sweep killed with SIGKILL and started again is the sweep that nobody killed, byte for byte apart from times."""

from __future__ import annotations

import numpy as np
import pytest

OUT = ("rows.csv", "rows.parquet")


def finish(swept, contents, folder, *engine):
    """Run to the end with both exports; the study's contents and the exports' bytes."""
    study = folder / "study.sqlite"
    assert not swept(study, *engine, *(x for name in OUT for x in ("-o", folder / name)))
    return contents(study), *((folder / name).read_bytes() for name in OUT)


@pytest.fixture(scope="module")
def uninterrupted(swept, contents, tmp_path_factory):
    return finish(swept, contents, tmp_path_factory.mktemp("whole"))


def kill_and_resume(swept, contents, folder, moments_s, *engine):
    kills = sum(swept(folder / "study.sqlite", *engine, kill_after_s=float(s)) for s in moments_s)
    assert kills, "every run ended before it could be killed"
    return finish(swept, contents, folder, *engine)


def test_killed_twice(swept, contents, uninterrupted, tmp_path):
    assert kill_and_resume(swept, contents, tmp_path, [1.0, 1.7]) == uninterrupted


@pytest.mark.slow
def test_killed_at_ten_random_moments(swept, contents, uninterrupted, tmp_path):
    for i, moment in enumerate(np.random.default_rng(1).uniform(0.2, 3.0, 10)):
        folder = tmp_path / str(i)
        folder.mkdir()
        swept(folder / "study.sqlite", kill_after_s=float(moment))
        assert finish(swept, contents, folder) == uninterrupted


@pytest.mark.slow
def test_killed_ten_times_in_a_row(swept, contents, uninterrupted, tmp_path):
    moments = np.random.default_rng(2).uniform(0.5, 2.0, 10)
    assert kill_and_resume(swept, contents, tmp_path, moments) == uninterrupted


@pytest.fixture(scope="module")
def scheduler():
    import distributed

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


@pytest.mark.dask
def test_a_dask_cluster_gives_the_same_study(swept, contents, uninterrupted, tmp_path, scheduler):
    assert finish(swept, contents, tmp_path, "--engine", "dask", "--scheduler", scheduler) == uninterrupted


@pytest.mark.dask
def test_a_dask_client_killed_at_ten_random_moments(swept, contents, uninterrupted, tmp_path, scheduler):
    for i, moment in enumerate(np.random.default_rng(3).uniform(0.5, 3.0, 10)):
        folder = tmp_path / str(i)
        folder.mkdir()
        swept(folder / "study.sqlite", "--engine", "dask", "--scheduler", scheduler, kill_after_s=float(moment))
        assert finish(swept, contents, folder, "--engine", "dask", "--scheduler", scheduler) == uninterrupted


@pytest.mark.dask
def test_a_study_begun_locally_goes_on_under_dask(swept, contents, uninterrupted, tmp_path, scheduler):
    swept(tmp_path / "study.sqlite", kill_after_s=1.5)
    assert finish(swept, contents, tmp_path, "--engine", "dask", "--scheduler", scheduler) == uninterrupted
