"""What a figure asks of the frame it is given."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pandas as pd

from dashboards.template import plain
from hwprofiles.errors import InputError


def require(frame: pd.DataFrame, columns: Sequence[str], figure: str) -> None:
    """Raise `InputError` naming the columns that `figure` needs and `frame` lacks."""
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise InputError(
            f"figure {figure!r} needs the columns {', '.join(columns)}; "
            f"missing: {', '.join(missing)}; given: {', '.join(map(str, frame.columns)) or 'none'}"
        )


def axis_title(text: str, note: str = "") -> str:
    """An axis title with, in smaller type below it, what the figure had to leave out."""
    lines = [plain(line) for line in textwrap.wrap(note, 48)]
    return text + "".join(f"<br><span style='font-size:11px'>{line}</span>" for line in lines)
