"""Hardware files of the user: what is read, and that every broken one is refused in one plain line."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwprofiles import InputError, ProfileError, check_hardware_file, hardware, hardware_names
from hwprofiles.tables import MAX_FILE_BYTES


def fact(value):
    return {"value": value, "tier": "assumed", "source": "a guess of the test"}


BOARD = {
    "name": "my-board",
    "title": "My board",
    "vendor": "Me",
    "device_class": "edge_soc",
    "aliases": ["board"],
    "note": "Made up.",
    "memory_bytes": fact(16 * 2**30),
    "bandwidth_bytes_per_s": fact(100e9),
    "cache_bytes": fact(4e6),
    "tdp_w": fact(30),
    "usd_per_h": fact(0.02),
    "peak_flops_per_s": {"bf16": fact(20e12), "int8": fact(40e12)},
    "link": {"name": "Ethernet", "bandwidth_bytes_per_s": fact(1.25e9)},
}
PLACES = [
    *((key,) for key in BOARD),
    *((key, inner) for key in ("memory_bytes", "tdp_w") for inner in ("value", "tier", "source")),
    *(("peak_flops_per_s", "bf16", inner) for inner in ("value", "tier", "source")),
    ("link", "name"),
    ("link", "bandwidth_bytes_per_s"),
]


def changed(place, value):
    board = copy.deepcopy(BOARD)
    table = board
    for key in place[:-1]:
        table = table[key]
    table[place[-1]] = value
    return board


def refused(path):
    """The message of a file that is refused; one line that names the file."""
    with pytest.raises(InputError) as caught:
        hardware(str(path))
    message = str(caught.value)
    assert isinstance(caught.value, ProfileError)
    assert "\n" not in message
    assert path.name in message
    return message


def fault(path):
    """The message of a refused file, empty for one that is read; any other exception is a failure."""
    try:
        check_hardware_file(path)
    except InputError as error:
        return str(error)
    return ""


@pytest.fixture
def write(tmp_path):
    def write_it(content, name="my-board.toml"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else tomli_w.dumps(content).encode())
        return path

    return write_it


def test_a_whole_file_is_read(write):
    device = check_hardware_file(write(BOARD))
    assert device == hardware(str(write(BOARD)))
    assert device.ridge_flops_per_byte("bf16") == 200  # 20e12 / 100e9
    assert device.link.name == "Ethernet"
    assert device.memory_bytes.value == 16 * 2**30
    assert device.aliases == ("board",)


def test_only_the_identity_is_required(write):
    needed = {key: BOARD[key] for key in ("name", "title", "vendor", "device_class")}
    device = check_hardware_file(write(needed))
    assert device.peak_flops_per_s == {}
    assert device.memory_bytes is device.bandwidth_bytes_per_s is device.link is device.usd_per_h is None
    for key in needed:
        assert f"{key} is missing" in refused(write({k: v for k, v in needed.items() if k != key}))


def test_unknown_keys_give_the_nearest_one(write):
    assert "unknown key 'memory_byte'; did you mean 'memory_bytes'?" in refused(write({**BOARD, "memory_byte": 1}))
    message = refused(write(changed(("peak_flops_per_s", "bf61"), fact(1e12))))
    assert "unknown key 'bf61' in peak_flops_per_s; did you mean 'bf16'?" in message
    assert "in tdp_w; did you mean 'source'?" in refused(write(changed(("tdp_w", "sauce"), "x")))


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), -1.0, 0, 0.0, True, "989e12", [1], 10**400]
)
def test_values_that_are_no_finite_positive_number(write, value):
    message = refused(write(changed(("peak_flops_per_s", "bf16", "value"), value)))
    assert "peak_flops_per_s.bf16.value must be a finite number" in message


@pytest.mark.parametrize(
    ("place", "slip", "unit"),
    [
        (("peak_flops_per_s", "bf16", "value"), 989.4, "FLOP/s, not TFLOP/s"),
        (("memory_bytes", "value"), 80, "bytes, not GB"),
        (("bandwidth_bytes_per_s", "value"), 3350, "bytes/s, not GB/s"),
    ],
)
def test_a_slip_of_the_unit_is_named(write, place, slip, unit):
    message = refused(write(changed(place, slip)))
    assert ".".join(place) in message
    assert unit in message
    assert f"got {slip}" in message


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("tdp_w", "tier"), "datasheets", "did you mean 'datasheet'?"),
        (("tdp_w", "tier"), 3, "one of datasheet, measured, fitted, assumed"),
        (("tdp_w", "source"), "  ", "tdp_w.source must be a string of one line, not empty"),
        (("tdp_w", "source"), "two\nlines", "tdp_w.source"),
        (("device_class",), "edge", "device_class must be one of"),
        (("name",), "My Board", "name must be lower-case letters"),
        (("aliases",), "board", "aliases must be a list"),
        (("aliases",), ["my-board"], "leaves out the name itself"),
        (("aliases",), ["b", "b"], "without repeats"),
        (("link",), "NVLink", "link must be a table"),
        (("memory_bytes",), 8e9, "memory_bytes must be a table"),
    ],
)
def test_wrong_values_are_named_with_their_place(write, place, value, said):
    assert said in refused(write(changed(place, value)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\xff\xfe\x00", "not UTF-8 (byte 0)"),
        (b"name = ", "not TOML"),
        (b'name = "a"\nname = "b"', "not TOML"),
        (b"x = " + b"[" * 5000, "not TOML"),
        (b"x = " + b"9" * 6000, "not TOML"),
        (b"#" * (MAX_FILE_BYTES + 1), "larger than 1,000,000 bytes"),
    ],
    ids=["empty", "blank", "not utf-8", "cut", "twice", "deep", "digits", "large"],
)
def test_files_that_are_no_toml(write, content, said):
    assert said in refused(write(content))


def test_paths_that_are_no_file(tmp_path):
    assert "no such file" in refused(tmp_path / "absent.toml")
    (tmp_path / "folder.toml").mkdir()
    assert "not a file" in refused(tmp_path / "folder.toml")
    with pytest.raises(ProfileError):
        hardware("nul\0.toml")
    with pytest.raises(ProfileError):
        hardware("x" * 5000 + ".toml")


VALUES = st.recursive(
    st.none().map(lambda _: "")
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats()
    | st.text(max_size=12)
    | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
QUIET = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUIET
@given(place=st.sampled_from(PLACES), value=VALUES)
def test_fuzzed_values_are_read_or_refused(write, place, value):
    try:
        path = write(changed(place, value))
    except UnicodeEncodeError:  # a lone surrogate, which no file can hold
        return
    assert "\n" not in fault(path)


@QUIET
@given(data=st.data())
def test_fuzzed_bytes_are_read_or_refused(write, data):
    """A good file with a stretch cut out and random bytes put in."""
    raw = tomli_w.dumps(BOARD).encode()
    start = data.draw(st.integers(0, len(raw)))
    stop = data.draw(st.integers(start, min(len(raw), start + 40)))
    path = write(raw[:start] + data.draw(st.binary(max_size=12)) + raw[stop:])
    assert "\n" not in fault(path)


@QUIET
@given(place=st.sampled_from(PLACES))
def test_a_missing_key_is_optional_or_named(write, place):
    board = copy.deepcopy(BOARD)
    table = board
    for key in place[:-1]:
        table = table[key]
    del table[place[-1]]
    message = fault(write(board))
    required = place[-1] in {"name", "title", "vendor", "device_class", "value", "tier", "source"} or len(place) == 2
    assert (f"{'.'.join(place)} is missing" in message) if required else message == ""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECROOF_HARDWARE", str(tmp_path))
    return tmp_path


def test_the_users_folder_adds_devices(folder, write):
    assert "my-board" not in hardware_names()
    write(BOARD)
    assert "my-board" in hardware_names()
    assert hardware("My Board") == hardware("board") == hardware(str(folder / "my-board.toml"))
    assert hardware("h100").name == "h100"
    with pytest.raises(InputError, match="did you mean 'my-board'"):
        hardware("my-boart")


def test_the_users_folder_never_replaces_a_device(folder, write):
    write({**BOARD, "name": "h100"}, "h100.toml")
    with pytest.raises(ProfileError, match=r"h100\.toml.*'h100' is taken by 'NVIDIA H100 SXM 80 GB'"):
        hardware("h100")


def test_an_alias_in_the_users_folder_never_replaces_a_device(folder, write):
    write({**BOARD, "aliases": ["gb10"]})
    with pytest.raises(ProfileError, match="'gb10' is taken by 'NVIDIA DGX Spark"):
        hardware_names()


def test_two_files_of_the_users_folder_may_not_share_a_name(folder, write):
    write(BOARD)
    write({**BOARD, "name": "other"}, "other.toml")
    with pytest.raises(ProfileError, match=r"other\.toml.*'board' is taken by 'My board'"):
        hardware("my-board")


def test_a_file_of_the_users_folder_is_named_as_its_device(folder, write):
    write(BOARD, "other.toml")
    with pytest.raises(ProfileError, match="name must be the file's stem 'other', got 'my-board'"):
        hardware_names()


def test_the_users_folder_must_be_a_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECROOF_HARDWARE", str(tmp_path / "absent"))
    with pytest.raises(ProfileError, match="SPECROOF_HARDWARE must name a folder"):
        hardware("h100")


def test_the_example_of_the_docs_is_read(write):
    page = (Path(__file__).parents[2] / "docs" / "hardware.md").read_text(encoding="utf-8")
    device = check_hardware_file(write(page.split("```toml\n")[1].split("```")[0].encode()))
    assert device.ridge_flops_per_byte("bf16") == 200
    assert None not in (device.memory_bytes, device.cache_bytes, device.tdp_w, device.usd_per_h, device.link)
