"""Task files: what is read, and one clear line for each way to get them wrong."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprofiles.errors import InputError
from validate.taskfile import read_jobs


def file(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_lines_become_jobs_in_order(tmp_path: Path) -> None:
    first = '{"id": "a", "request": "do it"}'
    second = '{"id": "b/ü:1", "request": "line\u2028end", "system": "Be kind."}'
    text = f"{first}\n\n{second}\r\n"
    one, two = read_jobs(file(tmp_path, text))
    assert (one.name, [(m.role, m.text) for m in one.messages], one.desk) == ("a", [("user", "do it")], None)
    assert (two.name, [m.role for m in two.messages]) == ("b/ü:1", ["system", "user"])
    assert two.messages[1].text == "line\u2028end"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no task"),
        ("\n \n", "holds no task"),
        (b"\xff\xfe{}", "not UTF-8 at byte 0"),
        ("{", "line 1: not a JSON object"),
        ("[1]", "line 1: not a JSON object"),
        ("[" * 100_000, "line 1: not a JSON object"),
        ('{"id": "a", "request": "x"}\n"text"', "line 2: not a JSON object"),
        ('{"id": "a", "requst": "x"}', "line 1: unknown key 'requst'; did you mean 'request'?"),
        ('{"id": "a"}', "line 1: 'request' must be a text, got None"),
        ('{"id": "", "request": "x"}', "line 1: 'id' must be a text"),
        ('{"id": 7, "request": "x"}', "line 1: 'id' must be a text, got 7"),
        ('{"id": "a", "request": ["x"]}', "line 1: 'request' must be a text"),
        ('{"id": "a", "request": "x", "system": 1}', "line 1: 'system' must be a text, got 1"),
        ('{"id": "a", "request": "x"}\n{"id": "a", "request": "y"}', "task id 'a' occurs twice"),
        (json.dumps({"id": "a" * 121, "request": "x"}), "line 1: 'id' must be at most 120 printable characters"),
        (json.dumps({"id": "a\nb", "request": "x"}), "line 1: 'id' must be at most 120 printable characters"),
        (json.dumps({"id": "a\x00", "request": "x"}), "line 1: 'id' must be at most 120 printable characters"),
        (json.dumps({"id": "a", "request": "\ud800"}), "line 1: 'request' holds half of a surrogate pair"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = file(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_jobs(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_jobs(path)


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    line = json.dumps({"id": "a", "request": "x" * 10_000_000})
    with pytest.raises(InputError, match="a task file has at most"):
        read_jobs(file(tmp_path, line))


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_anything_else_is_an_input_error_or_jobs(tmp_path: Path, content: bytes) -> None:
    with suppress(InputError):
        assert read_jobs(file(tmp_path, content))
