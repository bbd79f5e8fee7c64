"""`specroof hardware`, as a user meets it."""

from __future__ import annotations

import json

import pytest

from hwprofiles import hardware, hardware_names
from specroof.cli import main

GOOD = """
name = "my-board"
title = "My [bold]board"
vendor = "Me"
device_class = "npu"
bandwidth_bytes_per_s = { value = 50e9, tier = "measured", source = "a copy loop of mine" }
[peak_flops_per_s]
int8 = { value = 10e12, tier = "datasheet", source = "its leaflet" }
"""


def document(capsys, *arguments):
    assert main(["hardware", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def failure(capsys, *arguments):
    assert main(["hardware", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_show_holds_the_keys_of_the_contract(capsys):
    shown = document(capsys, "show", "H100")
    assert shown["schema_version"] == 1
    assert shown["name"] == "h100"
    assert shown["peak_flops_per_s"]["bf16"] == 989.4e12
    assert shown["memory_bytes"] == 80 * 2**30
    assert shown["bandwidth_bytes_per_s"] == 3350e9
    assert shown["ridge_flops_per_byte"]["bf16"] == pytest.approx(989.4 / 3.35)
    assert shown["sources"]["peak_flops_per_s.bf16"]["tier"] == "datasheet"
    assert set(shown["sources"]) >= {f"peak_flops_per_s.{dtype}" for dtype in shown["peak_flops_per_s"]}
    assert shown["efficiency"]["gemm_memory"]["low"] <= shown["efficiency"]["gemm_memory"]["value"]


@pytest.mark.parametrize("name", hardware_names())
def test_show_of_every_device(capsys, name):
    shown = document(capsys, "show", name)
    assert set(shown["ridge_flops_per_byte"]) in (set(), set(shown["peak_flops_per_s"]))
    assert main(["hardware", "show", name]) == 0
    assert hardware(name).title.split("(")[0].strip() in capsys.readouterr().out


def test_list_and_bare_command_are_the_same(capsys):
    listed = document(capsys, "list")
    assert listed == document(capsys)
    assert [entry["name"] for entry in listed["hardware"]] == hardware_names()
    assert main(["hardware"]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in hardware_names())


def test_what_nobody_publishes_is_null(capsys):
    shown = document(capsys, "show", "hailo-10h")
    assert shown["bandwidth_bytes_per_s"] is None
    assert shown["ridge_flops_per_byte"] == {}
    assert "bandwidth_bytes_per_s" not in shown["sources"]


def test_check_reads_a_file(capsys, tmp_path):
    path = tmp_path / "my-board.toml"
    path.write_text(GOOD)
    checked = document(capsys, "check", str(path))
    assert checked["path"] == str(path)
    assert checked["ridge_flops_per_byte"] == {"int8": 200.0}
    assert main(["hardware", "check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "no fault found" in out
    assert "My [bold]board" in out  # the user's text is not markup


def test_faults_are_one_line_and_exit_2(capsys, tmp_path):
    path = tmp_path / "my-board.toml"
    path.write_text(GOOD.replace("10e12", "10.0"))
    assert "peak_flops_per_s.int8.value must be a finite number >= 1e+06" in failure(capsys, "check", str(path))
    assert "did you mean 'rtx-4090'?" in failure(capsys, "show", "rtx-4900")
    assert "no such file" in failure(capsys, "check", str(tmp_path / "absent.toml"))
    assert "--json goes after the command" in failure(capsys, "--json", "show", "h100")
