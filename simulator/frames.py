"""Rows of a run as columns: in memory, or streamed to one parquet file per frame; pandas frames only when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwprofiles.errors import ProfileError
from simulator.result_schema import SCHEMA

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[Any, ...]
Columns = dict[str, Any]
"""A numpy array per column; a list of str where the column is of strings."""

GROUP_ROWS = 1 << 15
"""Rows of a parquet row group, and the most rows held as Python objects."""

_NUMPY = {"int64": np.int64, "float64": np.float64, "bool": np.bool_}


class Sheet:
    """The rows of one frame, in the order in which they come.

    Parameters
    ----------
    name : str
        Key of `SCHEMA`.
    path : Path or None
        Parquet file that full groups of rows go to; None keeps them as columns.
    """

    def __init__(self, name: str, path: Path | None = None) -> None:
        self.name = name
        self.path = path
        self._rows: list[Row] = []
        self._groups: list[Columns] = []
        self._writer = None if path is None else Writer(name, path)

    def append(self, row: Row) -> None:
        """Add a row, a tuple in the schema's order."""
        self._rows.append(row)
        if len(self._rows) >= GROUP_ROWS:
            self._close_group()

    def close(self) -> None:
        """No more rows will come."""
        self._close_group()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def columns(self) -> Columns:
        """All rows so far as columns; of a file only after `close`."""
        if self.path is not None:
            return read_columns(self.path, self.name)
        self._close_group()
        if len(self._groups) != 1:
            self._groups = [_joined(self.name, self._groups)]
        return self._groups[0]

    def _close_group(self) -> None:
        if self._rows:
            group = columns_of(self.name, self._rows)
            self._rows = []
            if self._writer is None:
                self._groups.append(group)
            else:
                self._writer.write(group)


class Writer:
    """A parquet file of one frame, written in groups of rows; the same rows give the same bytes."""

    def __init__(self, name: str, path: Path) -> None:
        import pyarrow.parquet as pq

        self.name = name
        self._schema = arrow_schema(name)
        self._file = pq.ParquetWriter(path, self._schema)

    def write(self, columns: Columns) -> None:
        """Append rows, in groups of `GROUP_ROWS`."""
        import pyarrow as pa

        if not len(columns[self._schema.names[0]]):
            return
        arrays = [pa.array(columns[f.name], type=f.type) for f in self._schema]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._file.write_table(table, row_group_size=GROUP_ROWS)

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


class Frames(Mapping[str, "pd.DataFrame"]):
    """Frames by name, made from their sheets when first asked for."""

    def __init__(self, sheets: Mapping[str, Sheet]) -> None:
        self._sheets = sheets
        self._made: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._made:
            self._made[name] = frame_of(name, self._sheets[name].columns())
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sheets)

    def __len__(self) -> int:
        return len(self._sheets)

    def columns(self, name: str) -> Columns:
        """The columns of a frame, without pandas."""
        return self._sheets[name].columns()

    def path(self, name: str) -> Path | None:
        """The file that a frame has been streamed to."""
        return self._sheets[name].path


def columns_of(name: str, rows: Sequence[Row]) -> Columns:
    """Columns of rows in the schema's order."""
    schema = SCHEMA[name]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    if len(columns) != len(schema):
        raise ValueError(f"a row of {name} has {len(schema)} values, got {len(columns)}")
    return {
        key: list(values) if spec.dtype == "string" else np.array(values, dtype=_NUMPY[spec.dtype])
        for (key, spec), values in zip(schema.items(), columns, strict=True)
    }


def _joined(name: str, groups: Sequence[Columns]) -> Columns:
    if not groups:
        return columns_of(name, ())
    return {
        key: [x for group in groups for x in group[key]]
        if spec.dtype == "string"
        else np.concatenate([group[key] for group in groups])
        for key, spec in SCHEMA[name].items()
    }


def frame_of(name: str, columns: Columns) -> pd.DataFrame:
    """A pandas frame of columns."""
    import pandas as pd

    return pd.DataFrame({key: pd.Series(columns[key], dtype=spec.dtype) for key, spec in SCHEMA[name].items()})


def columns_in(name: str, frame: pd.DataFrame) -> Columns:
    """The columns of a pandas frame."""
    return {
        key: frame[key].tolist() if spec.dtype == "string" else frame[key].to_numpy()
        for key, spec in SCHEMA[name].items()
    }


def read_columns(path: Path, name: str) -> Columns:
    """Read a file of a `Writer`.

    Raises
    ------
    ProfileError
        It is missing, broken or of other columns.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ProfileError(f"{path}: cannot be read as parquet: {str(error).splitlines()[0]}") from None
    if not table.schema.equals(arrow_schema(name)):
        raise ProfileError(f"{path}: columns must be {', '.join(SCHEMA[name])} of the schema's types")
    return {
        key: table.column(key).to_pylist() if spec.dtype == "string" else table.column(key).to_numpy()
        for key, spec in SCHEMA[name].items()
    }


def arrow_schema(name: str) -> Any:
    """The parquet schema of a frame."""
    import pyarrow as pa

    types = {"int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_(), "string": pa.string()}
    return pa.schema([pa.field(column, types[spec.dtype]) for column, spec in SCHEMA[name].items()])
