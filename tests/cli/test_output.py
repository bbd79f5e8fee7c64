"""`emit`: one JSON document, or one rendering."""

from __future__ import annotations

import json

import numpy as np
import pytest

from costmodel.trajectory import Effect
from specroof.output import PIPED_WIDTH, SCHEMA_VERSION, emit, say, warn


def no_rendering(console):
    raise AssertionError("nothing may be rendered beside a JSON document")


def test_json_is_one_document_in_the_order_given(capsys):
    emit({"b": 1, "a": [np.float64(0.5), np.int64(3)], "c": np.array([1, 2]), "d": None}, True, no_rendering)
    out = capsys.readouterr().out
    document = json.loads(out)
    assert list(document) == ["schema_version", "b", "a", "c", "d"]
    assert document == {"schema_version": SCHEMA_VERSION, "b": 1, "a": [0.5, 3], "c": [1, 2], "d": None}
    assert out.endswith("}\n")
    assert out.isascii()


def test_effects_are_written_as_their_names(capsys):
    emit({"effects": {Effect.READ: 3}, "first": Effect.WRITE}, True, no_rendering)
    document = json.loads(capsys.readouterr().out)
    assert document["effects"] == {"read": 3}
    assert document["first"] == "write"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float64("nan")])
def test_json_has_no_nan(value, capsys):
    with pytest.raises(ValueError, match="JSON compliant"):
        emit({"value": value}, True, no_rendering)
    assert capsys.readouterr().out == ""


def test_what_json_cannot_hold_is_a_bug(capsys):
    with pytest.raises(TypeError, match="object cannot be written"):
        emit({"value": object()}, True, no_rendering)


def test_a_rendering_is_as_wide_as_a_pipe_everywhere(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    widths = []
    emit({}, False, lambda console: widths.append(console.width))
    assert widths == [PIPED_WIDTH]


def test_renderings_have_no_colours_in_a_pipe(capsys):
    emit({}, False, lambda console: console.print("[red]12[/red] :warning:"))
    assert capsys.readouterr().out == "12 :warning:\n"


def test_messages_are_one_line_on_stderr(capsys):
    warn("first\n second")
    say("note", "third")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "specroof: warning: first second\nspecroof: note: third\n"
