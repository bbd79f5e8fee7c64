"""The desk's tables, its connection, and its state as plain values."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hwprofiles.errors import InputError

TODAY = "2031-05-20"
"""The desk's day: nothing here reads a clock."""

DATABASE_VERSION = 1

_TABLES = """
CREATE TABLE customers (id TEXT PRIMARY KEY, name TEXT, email TEXT, street TEXT, city TEXT, postcode TEXT);
CREATE TABLE products (id TEXT PRIMARY KEY, family TEXT, option TEXT, price_cents INTEGER, stock INTEGER,
    clearance INTEGER);
CREATE TABLE orders (id TEXT PRIMARY KEY, customer_id TEXT, status TEXT, placed_on TEXT, shipped_on TEXT,
    delivered_on TEXT, payment TEXT, street TEXT, city TEXT, postcode TEXT, cancel_reason TEXT);
CREATE TABLE order_items (order_id TEXT, line INTEGER, product_id TEXT, quantity INTEGER, price_cents INTEGER,
    state TEXT, PRIMARY KEY (order_id, line));
CREATE TABLE refunds (id INTEGER PRIMARY KEY, order_id TEXT, line INTEGER, amount_cents INTEGER, reason TEXT);
CREATE TABLE tickets (id INTEGER PRIMARY KEY, customer_id TEXT, order_id TEXT, category TEXT, summary TEXT);
CREATE TABLE calls (sequence INTEGER PRIMARY KEY, tool TEXT NOT NULL, arguments TEXT NOT NULL, idempotency_key TEXT,
    changed_state INTEGER NOT NULL, replay INTEGER NOT NULL, error TEXT, result_hash TEXT NOT NULL);
CREATE TABLE answers (idempotency_key TEXT PRIMARY KEY, tool TEXT NOT NULL, arguments TEXT NOT NULL,
    text TEXT NOT NULL, is_error INTEGER NOT NULL);
CREATE TABLE arrivals (n INTEGER NOT NULL);
INSERT INTO arrivals VALUES (0);
"""

_STATE = {
    "customers": ("id",),
    "products": ("id",),
    "orders": ("id",),
    "order_items": ("order_id", "line"),
    "refunds": ("id",),
    "tickets": ("id",),
}
"""The tables that are the world, with their keys; the rest is the desk's memory of calls."""

Row = dict[str, object]
State = dict[str, list[Row]]


def connect(database: Path | str, *, max_pages: int | None = None) -> sqlite3.Connection:
    """Open a desk's database, made and filled with the seeded data where there is none yet.

    Parameters
    ----------
    database : Path or str
        A file, or ":memory:".
    max_pages : int, optional
        Most pages the file may have: a full disk for tests. Never below what the file already has.

    Raises
    ------
    InputError
        If the file cannot be opened or is no desk's database.
    """
    try:
        db = sqlite3.connect(database, isolation_level=None)
    except sqlite3.Error as error:
        raise InputError(f"{database}: cannot be opened as a database: {error}") from None
    db.row_factory = sqlite3.Row
    try:
        db.execute("PRAGMA synchronous = FULL")
        _make(db, database)
        if max_pages is not None:
            db.execute(f"PRAGMA max_page_count = {int(max_pages)}")
    except sqlite3.Error as error:
        db.close()
        raise InputError(f"{database}: cannot be used as an order desk's database: {error}") from None
    except InputError:
        db.close()
        raise
    return db


def _make(db: sqlite3.Connection, database: Path | str) -> None:
    from validate.order_desk.seed import fill

    db.execute("BEGIN IMMEDIATE")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version == 0 and tables == 0:
        for statement in _TABLES.split(";"):
            db.execute(statement)
        fill(db)
        db.execute(f"PRAGMA user_version = {DATABASE_VERSION}")
    elif version != DATABASE_VERSION:
        db.execute("ROLLBACK")
        raise InputError(f"{database}: not an order desk's database of version {DATABASE_VERSION}")
    db.execute("COMMIT")


def state(db: sqlite3.Connection) -> State:
    """The world as the tables hold it, rows in key order; the journal of calls is no part of it."""
    return {
        table: [dict(row) for row in db.execute(f"SELECT * FROM {table} ORDER BY {', '.join(keys)}")]
        for table, keys in _STATE.items()
    }
