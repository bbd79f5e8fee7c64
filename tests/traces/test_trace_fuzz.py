"""Mutated traces give a result or one InputError, never anything else."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwprofiles.errors import InputError
from simulator.traces import neutral, read_trace
from simulator.traces.stats import statistics, summary


def _neutral():
    tool = {"name": "t", "effect": "read", "latency_s": 0.1}
    step = {"index": 0, "effect": "read", "prompt_tokens": 10, "output_tokens": 3, "visible_tokens": 3, "tools": [tool]}
    head = {"schema": neutral.SCHEMA, "name": "n", "kind": "trace", "source": "", "notes": []}
    return {**head, "trajectories": [{"id": "a", "source_format": "x", "missing": [], "steps": [step]}]}


DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
OURS = sorted(p.name for p in DATA.iterdir() if p.suffix != ".md")

WEIRD = (None, True, False, 0, -1, 10**30, 10**400, 1.5, 1e308, -1e308, math.inf, math.nan, "", "x", "-5", "9" * 40,
         "\ud800", "\x1b[31m", "a" * 5000, "2026-01-01T00:00:00", "2026-01-01T00:00:00+02:00", "0001-01-01", [], {},
         [[]], {"": 0}, [None], [{}], {"a": {"b": [1]}}, "{", "[]", '{"role": "assistant"}')  # fmt: skip


def places(value, path=()):
    """Paths of all values inside a document."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from places(item, (*path, key))


def changed(document, path, value, *, drop):
    found = json.loads(json.dumps(document))
    if not path:
        return value
    at = found
    for key in path[:-1]:
        at = at[key]
    if drop:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return found


def survive(path, **options):
    try:
        found = read_trace(path, **options)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
        str(error).encode("utf-8")
        return
    assert found.workload.trajectories
    text = neutral.json_text(found.workload)
    text.encode("utf-8")
    again = neutral.from_document(json.loads(text), "again")
    assert again == found.workload  # whatever an importer lets through, the strict neutral reader accepts
    json.dumps({**summary(again), **statistics(again)}, allow_nan=False)
    for trajectory in found.workload.trajectories:
        assert all((s.observation_tokens or 0) >= 0 and (s.visible_tokens or 0) >= 0 for s in trajectory.steps)


def documents(path):
    """What a file holds, as one value that can be mutated; None for files that are no JSON."""
    if path.suffix == ".csv":
        return None
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


def written(document, path):
    lines = path.suffix == ".jsonl" and isinstance(document, list)
    path.write_text("\n".join(json.dumps(d) for d in document) if lines else json.dumps(document), encoding="utf-8")


def mutated(rng, document, path):
    """One or two values of a document replaced or dropped; now and then an entry doubled or moved."""
    for _ in range(rng.randint(1, 2)):
        at = rng.choice(list(places(document)))
        document = changed(document, at, rng.choice(WEIRD), drop=rng.random() < 0.3)
    if isinstance(document, list) and document and rng.random() < 0.2:
        document.insert(rng.randrange(len(document) + 1), rng.choice(document))
        rng.shuffle(document)
    written(document, path)


def broken(rng, raw, path):
    """Bytes changed, or the file cut."""
    found = bytearray(raw)
    for _ in range(rng.randint(0, 4)):
        found[rng.randrange(len(found))] = rng.randrange(256)
    path.write_bytes(bytes(found[: rng.randint(1, len(found))] if rng.random() < 0.5 else found))


def fuzz(files, rng, n, folder):
    held = {file: documents(file) for file in files}
    for i in range(n):
        file = rng.choice(files)
        path = folder / f"w{file.suffix}"
        if held[file] is None or i % 5 == 0:
            broken(rng, file.read_bytes(), path)
        else:
            mutated(rng, json.loads(json.dumps(held[file])), path)
        survive(path)


@pytest.mark.parametrize("name", OURS)
def test_mutations_of_every_format(name, tmp_path):
    fuzz([DATA / name], random.Random(name), 12, tmp_path)


def test_mutations_of_the_neutral_format(tmp_path):
    file = tmp_path / "neutral.json"
    file.write_text(json.dumps(_neutral()))
    (tmp_path / "out").mkdir()
    fuzz([file], random.Random(1), 60, tmp_path / "out")


@pytest.mark.slow
def test_ten_thousand_mutations_of_the_samples_stay_under_a_gigabyte(tmp_path):
    """Our own files, and recorded ones up to 150 kB where they are at hand."""
    import resource

    files = [DATA / name for name in OURS]
    if SHARED.is_dir():
        files += sorted(
            p for p in SHARED.rglob("*") if p.suffix in (".json", ".jsonl") and 0 < p.stat().st_size < 150_000
            and "claude_code" not in p.parts
        )  # fmt: skip
        files += sorted((SHARED / "claude_code").rglob("task_00*.jsonl"))
    fuzz(files, random.Random(2), 10_000, tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2**20


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    raw=st.binary(max_size=60), suffix=st.sampled_from([".json", ".jsonl", ".csv", ".eval", ".parquet", ".gz", ".traj"])
)
def test_bytes_of_nothing_are_one_clear_error(raw, suffix, tmp_path):
    path = tmp_path / f"w{suffix}"
    path.write_bytes(raw)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
