"""Scores, groups, the command and the page; and the gate: no median may get worse than the committed files say."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from hwprofiles.errors import InputError
from specroof.cli import main
from validate.accuracy import calibration, page
from validate.accuracy.parity import CELLS_PER_DECADE, drawing
from validate.accuracy.predict import Predicted
from validate.accuracy.report import bundled_rows, evaluate
from validate.accuracy.score import columns, score
from validate.accuracy.tables import COLUMNS, PREDICTED, Row, load_rows

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "measurements"
RESULTS = ROOT / "docs" / "accuracy"
WORSE_BY = 1.0
KEYS = {"n", "covered", "median_ape", "mean_ape", "p90_ape", "bias", "in_band"}


def measured(value: float) -> Row:
    nothing = dict.fromkeys(("batch", "input_tokens", "context_tokens", "output_tokens"))
    words = dict.fromkeys(
        ("source", "hardware", "model", "weight_dtype", "kv_dtype", "engine", "phase", "metric", "unit", "kind"), ""
    )
    return Row(table="t", line=2, n_devices=1, value=value, note={}, text={}, **nothing, **words)


def predicted(value: float, low: float, high: float) -> Predicted:
    return Predicted(
        value=value, low=low, high=high, status="ok", subject=None, kv_share=math.nan, floor_share=math.nan
    )


def skipped(reason: str) -> Predicted:
    nan = math.nan
    return Predicted(value=nan, low=nan, high=nan, status=reason, subject=None, kv_share=nan, floor_share=nan)


def test_a_score_by_hand():
    # Errors 10, 20 and 50 %; two of three inside their bands; the fourth row is counted and not covered.
    rows = [measured(v) for v in (10.0, 10.0, 10.0, 10.0)]
    found = score(
        rows, [predicted(11, 9, 12), predicted(8, 7, 9), predicted(15, 5, 45), skipped("no reason")]
    ).document()
    assert found["n"] == 4
    assert found["covered"] == 3
    assert found["median_ape"] == pytest.approx(20.0)
    assert found["mean_ape"] == pytest.approx(80 / 3)
    assert found["p90_ape"] == pytest.approx(44.0)
    assert found["bias"] == pytest.approx(100 * math.log(1.1))
    assert found["in_band"] == pytest.approx(2 / 3)


def test_nothing_covered_is_no_figure_and_not_zero():
    found = score([measured(1.0)], [skipped("no reason")]).document()
    assert found["covered"] == 0
    assert found["median_ape"] is None


def test_a_wrong_column_gets_the_nearest():
    assert columns(["table", " row_kind ", ""]) == ["table", "row_kind"]
    with pytest.raises(InputError, match="did you mean 'hardware'"):
        columns(["hardwar"])


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_scores_the_bundled_table(capsys, tmp_path):
    out = tmp_path / "out.csv"
    assert main(["accuracy", "--by", "source,dtype", "--predictions", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["overall"]) >= KEYS
    assert all(set(group) >= KEYS for group in document["groups"])
    assert sum(group["n"] for group in document["groups"]) == document["overall"]["n"] == document["rows"]
    assert sum(document["skipped"].values()) == document["overall"]["n"] - document["overall"]["covered"]
    with out.open(encoding="utf-8", newline="") as stream:
        written = list(csv.DictReader(stream))
    assert list(written[0]) == [*COLUMNS, *PREDICTED]
    assert [w["value"] for w in written] == [row.text["value"] for row in bundled_rows()]
    assert all(float(w["low"]) <= float(w["predicted"]) <= float(w["high"]) for w in written if w["status"] == "ok")


def test_the_command_draws_for_people(capsys):
    assert main(["accuracy"]) == 0
    text = capsys.readouterr().out
    assert "Always shown" in text
    assert "median %" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv"], "cannot be read"),
        (["--by", "colour"], "unknown column 'colour'"),
        (["--calibration", "none.toml"], "no such file"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(capsys, arguments, message):
    assert main(["accuracy", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_same_input_gives_the_same_bytes(capsys):
    main(["accuracy", "--json"])
    first = capsys.readouterr().out
    main(["accuracy", "--json"])
    assert capsys.readouterr().out == first


def test_an_empty_table_is_no_error(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    found = evaluate([path])
    assert found["overall"]["n"] == 0
    assert found["groups"] == []


# --- calibration files -----------------------------------------------------------------------------------------------


def test_a_calibration_changes_what_it_names(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[factors."h100/bf16"]\ngemm_memory = { value = 0.5, low = 0.4, high = 0.6 }\n'
        '[generations."vllm-2023/h100"]\nhost_step_s = 0.5\n[provenance]\nanything = 1\n',
        encoding="utf-8",
    )
    factors, generations = calibration.read(path)
    assert factors == {"h100/bf16": {"gemm_memory": 0.5}}
    assert generations["vllm-2023/h100"]["host_step_s"] == 0.5
    assert "vllm-2024" in generations


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[factors."h1000"]\ngemm_memory = 0.5\n', "unknown hardware 'h1000'"),
        ('[factors."h100"]\ngemm_memori = 0.5\n', "did you mean 'gemm_memory'"),
        ('[factors."h100"]\ngemm_memory = "half"\n', "must be a finite number"),
        ('[factors."h100"]\ngemm_memory = -1\n', "must be a finite number"),
        ("factors = 3\n", "factors must be a table"),
        ("[factors]\nh100 = 3\n", "factors.h100 must be a table"),
        ('[generations."vllm-2023"]\nhost = 1\n', "unknown factor"),
    ],
)
def test_a_wrong_calibration_is_named(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"."):
        calibration.read(path)
    with pytest.raises(InputError) as error:
        calibration.read(path)
    assert message in str(error.value)


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_is_what_the_result_file_says():
    results = json.loads((RESULTS / "results.json").read_text(encoding="utf-8"))
    plots = {table: f"accuracy/{table}.svg" for table in results["parity"]}
    targets = json.loads((RESULTS / "targets.json").read_text(encoding="utf-8"))
    assert page.page(results, plots, targets) == (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    for table, cells in results["parity"].items():
        assert drawing(table, cells) == (RESULTS / f"{table}.svg").read_text(encoding="utf-8")


def test_a_plot_puts_equal_values_on_its_line():
    cells = [[0, 0, 5], [CELLS_PER_DECADE, CELLS_PER_DECADE, 1]]
    text = drawing("a & b", cells)
    assert "a &amp; b" in text
    assert text.count('fill="#1f5fa8"') == 2


# --- the gate --------------------------------------------------------------------------------------------------------


def worse(before: list[dict], after: list[dict]) -> list[str]:
    """Groups whose median error is more than a point above the committed one, or that lost rows."""
    now = {json.dumps(line["group"]): line for line in after}
    found = []
    for line in before:
        other = now.get(json.dumps(line["group"]))
        if other is None or other["covered"] < line["covered"]:
            found.append(f"{line['group']}: fewer rows predicted")
        elif line["median_ape"] is not None and other["median_ape"] > line["median_ape"] + WORSE_BY:
            found.append(f"{line['group']}: median {line['median_ape']:.1f} -> {other['median_ape']:.1f}")
    return found


def test_the_gate_can_fail():
    line = {"group": {"table": "t"}, "covered": 5, "median_ape": 4.0}
    assert worse([line], [line]) == []
    assert worse([line], [{**line, "median_ape": 5.5}]) == ["{'table': 't'}: median 4.0 -> 5.5"]
    assert worse([line], [{**line, "covered": 4}]) == ["{'table': 't'}: fewer rows predicted"]
    assert worse([line], []) == ["{'table': 't'}: fewer rows predicted"]


def test_no_median_of_the_bundled_table_is_worse_than_committed():
    before = json.loads((RESULTS / "published.json").read_text(encoding="utf-8"))
    after = evaluate(None, ("source", "row_kind"))
    assert worse(before["groups"], after["groups"]) == []


@pytest.mark.skipif(not SHARED.is_dir(), reason="the measurement tables are not beside the repository")
def test_no_median_of_all_tables_is_worse_than_committed():
    before = json.loads((RESULTS / "results.json").read_text(encoding="utf-8"))
    after = page.measure(sorted(SHARED.glob("*.csv")))
    assert worse(before["summary"], after["summary"]) == []
    assert after["overall"]["covered"] >= 0.9 * after["overall"]["n"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the measurement tables are not beside the repository")
def test_the_sources_impossible_rows_are_the_known_ones():
    # 184 warm-prefix rows of the silicon database are faster than their memory traffic; no other row of it is.
    rows = load_rows([SHARED / "aic_silicon_db_steps.csv"])
    found = evaluate([SHARED / "aic_silicon_db_steps.csv"], ("odd", "row_kind"))
    impossible = [g for g in found["groups"] if g["group"]["odd"] == "faster than its memory traffic"]
    assert sum(g["n"] for g in impossible) == 184
    assert all(g["group"]["row_kind"].startswith("warm") for g in impossible)
    assert found["overall"]["n"] == len(rows)
