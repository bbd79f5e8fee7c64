"""Reading measurement tables: strict, one plain message per fault, and nothing lost on the way out."""

from __future__ import annotations

import csv

import pytest

from hwprofiles.errors import InputError
from validate.accuracy.tables import COLUMNS, MORE_THAN_LIMIT, PREDICTED, load_rows, parse_note, write_predictions

HEADER = ",".join(COLUMNS)
LINE = "me,H100-SXM-80GB,1,Qwen/Qwen3-8B,bf16,bf16,vllm,decode,4,1,512,1,step_ms,9.5,ms,measured,a=1;plain words"


def table(tmp_path, *lines, header=HEADER, name="mine.csv"):
    path = tmp_path / name
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def test_a_row_keeps_its_cells_and_its_note(tmp_path):
    (row,) = load_rows([table(tmp_path, LINE)])
    assert (row.table, row.line, row.n_devices, row.batch, row.value) == ("mine", 2, 1, 4.0, 9.5)
    assert row.note == {"a": "1", "plain words": ""}
    assert list(row.text) == list(COLUMNS)


def test_empty_counts_are_unknown_and_max_is_no_batch(tmp_path):
    line = LINE.replace("decode,4,1,512,1", "e2e,max,128,,128")
    (row,) = load_rows([table(tmp_path, line)])
    assert row.batch is None
    assert row.context_tokens is None
    assert row.input_tokens == 128


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("9.5", "nan"), "line 2: value must be a finite number"),
        (("9.5", ""), "line 2: value is empty"),
        (("9.5", "fast"), "value must be a finite number >= 0 or empty, got 'fast'"),
        (("H100-SXM-80GB,1,", "H100-SXM-80GB,0,"), "n_devices must be a whole number >= 1"),
        (("H100-SXM-80GB,1,", "H100-SXM-80GB,1.5,"), "n_devices must be a whole number >= 1"),
        (("decode,4", "decode,-4"), "batch must be a finite number"),
        ((",a=1", ",a=1,more"), "18 cells, the header has 17"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(tmp_path, change, message):
    with pytest.raises(InputError, match=r"mine\.csv") as error:
        load_rows([table(tmp_path, LINE.replace(*change))])
    assert message in str(error.value)


def test_a_missing_column_is_named_with_the_nearest(tmp_path):
    with pytest.raises(InputError, match="column 'weight_dtype' is missing; is it 'weights_dtype'"):
        load_rows([table(tmp_path, LINE, header=HEADER.replace("weight_dtype", "weights_dtype"))])


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "the file is empty"), (b"\xff\xfe\x00", "not UTF-8"), (b'source,"hardware\n', "CSV")],
)
def test_what_is_no_table_is_one_message(tmp_path, content, message):
    path = tmp_path / "broken.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_rows([path])


def test_an_absent_file_is_one_message(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_rows([tmp_path / "none.csv"])


def test_predictions_keep_every_row_in_order(tmp_path):
    first = table(tmp_path, LINE, LINE.replace("9.5", "8.5"))
    other = table(tmp_path, LINE.replace("9.5", "7.5") + ",x", header=HEADER + ",extra", name="other.csv")
    rows = load_rows([first, other])
    out = tmp_path / "out.csv"
    write_predictions(out, rows, [("1", "0", "2", "ok")] * 3)
    with out.open(encoding="utf-8", newline="") as stream:
        written = list(csv.DictReader(stream))
    assert list(written[0]) == [*COLUMNS, "extra", *PREDICTED]
    assert [w["value"] for w in written] == ["9.5", "8.5", "7.5"]
    assert [w["extra"] for w in written] == ["", "", "x"]
    assert {w["status"] for w in written} == {"ok"}


def test_notes_with_equal_signs_and_gaps():
    assert parse_note(" a=1 ;; b=x=y; ;last") == {"a": "1", "b": "x=y", "last": ""}


@pytest.mark.parametrize(("e2e_ms", "odd"), [(33_000, True), (31_000, False)])
def test_a_run_that_kept_more_sequences_running_than_its_limit_is_marked(tmp_path, e2e_ms, odd):
    """(e2e - 1 s) * 800 tokens/s / 200 tokens a request = 128 or 120 running, of 125 that the engine was allowed."""
    line = "me,H100-SXM-80GB,1,Qwen/Qwen3-8B,bf16,bf16,vllm,e2e,,100,0,200,{},ms,measured,max_num_seqs=125"
    figures = {"e2e_mean_ms": e2e_ms, "ttft_mean_ms": 1000, "output_tok_s": 800}
    lines = [line.format(f"{name},{value}") for name, value in figures.items()]
    other = line.replace("Qwen3-8B", "Qwen3-4B").format("e2e_mean_ms,90000")
    *run, alone = load_rows([table(tmp_path, *lines, other)])
    assert [MORE_THAN_LIMIT in row.note for row in run] == [odd] * 3
    assert MORE_THAN_LIMIT not in alone.note
