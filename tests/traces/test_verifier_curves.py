"""Judgements with the truth beside them: detection d(m, n) and false rejection f(m, n), as [quality] takes them."""

from __future__ import annotations

import tomllib

import pytest

from hwprofiles.errors import InputError
from simulator.judgements import from_judgements
from simulator.rates import wilson

HEADER = "task,step,position,length,effect,accepted,valid\n"


def table(tmp_path, rows, header=HEADER):
    path = tmp_path / "j.csv"
    path.write_text(header + "".join(",".join(str(v) for v in row) + "\n" for row in rows))
    return path


def drafts():
    """40 tasks of two steps: of the first steps 10 are wrong, 8 of these found; of the second 4 wrong, all found."""
    for task in range(40):
        wrong = task < 10
        yield task, 0, 0, 2, "read", int(task == 0 or task == 1 or not wrong), int(not wrong)
        yield task, 1, 1, 2, "write", int(task >= 4), int(task >= 4)


def test_curves_by_hand(tmp_path):
    found = from_judgements(table(tmp_path, drafts())).verifier
    first, second = found.cells
    assert (first.position, first.length) == (0, 2)
    assert (first.detection.value, first.detection.n) == (0.8, 10)
    assert (first.false_reject.value, first.false_reject.n) == (0.0, 30)
    assert (second.detection.value, second.detection.n) == (1.0, 4)
    assert (found.detection.value, found.detection.n) == (pytest.approx(12 / 14), 14)
    assert (found.false_reject.value, found.false_reject.n) == (0.0, 66)
    assert (found.weak_hazard.value, found.weak_hazard.n) == (pytest.approx(14 / 80), 80)
    low, high = wilson(8, 10)
    assert first.detection.low <= low
    assert first.detection.high >= high


def test_lines_for_quality_only_of_what_was_seen_often_enough(tmp_path):
    found = from_judgements(table(tmp_path, drafts())).verifier
    lines = tomllib.loads(found.toml())
    assert set(lines) == {"weak_hazard", "false_reject"}  # 14 wrong steps tell too little about detection
    from simulator.scenario_file import from_document, load_scenario, to_document

    document = to_document(load_scenario("retail-h200"))
    document.setdefault("quality", {}).update(lines)
    assert from_document(document, "here").quality.false_reject.high == lines["false_reject"]["high"]


def test_without_the_truth_there_are_no_curves(tmp_path):
    rows = [(t, 0, 0, "read", 1) for t in range(3)]
    assert from_judgements(table(tmp_path, rows, "task,step,position,effect,accepted\n")).verifier is None
    rows = [(t, 0, 0, "", "read", 1, "") for t in range(3)]
    assert from_judgements(table(tmp_path, rows)).verifier is None


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        (HEADER, (1, 0, 2, 2, "read", 1, 1), "j.csv:2: length: a segment with position 2 has more than 2 steps"),
        (HEADER, (1, 0, 0, 1, "read", 1, "maybe"), "j.csv:2: valid: expected 1/0"),
        ("task,step,position,length,effect,accepted\n", (1, 0, 0, 1, "read", 1), "'length' has no effect without"),
        ("task,step,position,effect,accepted,valid,valid\n", (1, 0, 0, "read", 1, 1, 1), "given twice"),
        ("task,step,position,effect,accepted,vaild\n", (1, 0, 0, "read", 1, 1), "did you mean 'valid'"),
    ],
)
def test_wrong_tables_are_one_message(tmp_path, header, row, message):
    with pytest.raises(InputError) as caught:
        from_judgements(table(tmp_path, [row], header))
    assert message in str(caught.value)


def test_the_command_gives_curves_and_lines(tmp_path, run_cli):
    import json

    done = run_cli("acceptance", "--judgements", table(tmp_path, drafts()), "--json")
    document = json.loads(done.out)
    assert len(document["verifier"]["cells"]) == 2
    assert "false_reject" in document["verifier"]["toml"]
    told = run_cli("acceptance", "--judgements", table(tmp_path, drafts())).out
    assert "under [quality]" in told
    assert "d at 0 of 2" in told
