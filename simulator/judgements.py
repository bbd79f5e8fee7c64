"""Acceptance from judged drafts: a CSV that says, step by step, whether a verifier (or a person) would keep it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError, unknown_name
from simulator.agreement import Agreement
from simulator.rates import METHOD, Trial, by_effect, by_position, rate
from simulator.verifier import Judged, verifier_curves

JUDGEMENT_COLUMNS = ("task", "step", "position", "effect", "accepted")
TRUTH_COLUMNS = ("valid", "length")
"""May be there too: whether the step really was right, and how many steps the drafted segment had."""
_KNOWN = (*JUDGEMENT_COLUMNS, *TRUTH_COLUMNS)


def from_judgements(path: Path | str) -> Agreement:
    """Acceptance from a CSV of judged drafts.

    Columns: `task` (any text), `step` (number of the step in the task, from 0), `position` (its offset in the drafted
    segment, from 0), `effect` (read, pure, write, reply, unknown), `accepted` (1/0, true/false or yes/no).
    With `valid` (1/0 ...: whether the step really was right; empty where nobody knows) and perhaps `length` (steps of
    the segment) it also gives the verifier's curves.

    Raises
    ------
    InputError
        If the file cannot be read, a column is missing or unknown, or a value is wrong; the message names the line.
    """
    path = Path(path)
    try:
        rows = list(csv.reader(io.StringIO(_text(path), newline=""), strict=True))
    except csv.Error as error:
        raise InputError(f"{path.name}: not valid CSV: {error}") from None
    if not rows:
        raise InputError(f"{path.name}: the file is empty")
    header = [h.strip() for h in rows[0]]
    for column in header:
        if column not in _KNOWN:
            raise InputError(f"{path.name}: {unknown_name('column', column, _KNOWN)}")
        if header.count(column) > 1:
            raise InputError(f"{path.name}: column {column!r} is given twice")
    lacking = [c for c in JUDGEMENT_COLUMNS if c not in header]
    if "length" in header and "valid" not in header:
        raise InputError(f"{path.name}: column 'length' has no effect without 'valid'")
    if lacking:
        raise InputError(f"{path.name}: column {lacking[0]!r} is missing; expected {', '.join(JUDGEMENT_COLUMNS)}")
    tasks: dict[str, int] = {}
    trials: list[Trial] = []
    judged: list[Judged] = []
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise InputError(f"{path.name}:{number}: {len(row)} values for {len(header)} columns")
        values, where = dict(zip(header, row, strict=True)), f"{path.name}:{number}"
        trials.append(_judgement(values, tasks, where))
        judged.extend(_truth(values, trials[-1], where))
    if not trials:
        raise InputError(f"{path.name}: holds no judgement")
    return Agreement(
        kind="judgements",
        source=path.name,
        tasks=len(tasks),
        mean=rate(trials),
        by_position=by_position(trials),
        by_effect=by_effect(trials),
        any_order=None,
        leading_share=None,
        verifier=verifier_curves(judged, path.name) if judged else None,
        method=METHOD,
    )


def _judgement(row: Mapping[str, str], tasks: dict[str, int], where: str) -> Trial:
    task = row["task"].strip()
    if not task:
        raise InputError(f"{where}: task is empty")
    numbers = {key: _number(row[key], key, where) for key in ("step", "position")}
    effect = row["effect"].strip()
    if effect not in list(Effect):
        raise InputError(f"{where}: {unknown_name('effect', effect, [e.value for e in Effect])}")
    accepted = _flag(row["accepted"], "accepted", where)
    return Trial(tasks.setdefault(task, len(tasks)), numbers["position"], effect, accepted)


def _truth(row: Mapping[str, str], trial: Trial, where: str) -> Iterator[Judged]:
    """The judgement beside the truth, where the row has it."""
    if not row.get("valid", "").strip():
        return
    length = row.get("length", "").strip()
    n = _number(length, "length", where) if length else None
    if n is not None and n <= trial.position:
        raise InputError(f"{where}: length: a segment with position {trial.position} has more than {n} steps")
    yield Judged(trial.task, trial.position, n, not trial.accepted, _flag(row["valid"], "valid", where))


def _number(value: str, key: str, where: str) -> int:
    digits = value.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 4):
        raise InputError(f"{where}: {key}: expected a whole number from 0 to 9999, found {ascii(digits)[:40]}")
    return int(digits)


def _flag(value: str, key: str, where: str) -> bool:
    said = value.strip().casefold()
    if said not in ("1", "0", "true", "false", "yes", "no"):
        raise InputError(f"{where}: {key}: expected 1/0, true/false or yes/no, found {ascii(said)[:40]}")
    return said in ("1", "true", "yes")


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > 256 * 2**20:
            raise InputError(f"{path.name}: larger than 256 MiB")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path.name}: not UTF-8 text") from None
