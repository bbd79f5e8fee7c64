"""`python -m validate.order_desk --database FILE`: the desk over stdin and stdout, with faults on demand."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import anyio

from hwprofiles.errors import InputError
from validate.order_desk.desk import Desk
from validate.order_desk.faults import Fault, Faults
from validate.order_desk.server import serve_stdio


def main() -> int:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m validate.order_desk", description=__doc__)
    parser.add_argument("--database", type=Path, required=True, help="SQLite file; made and filled if absent")
    parser.add_argument("--max-pages", type=int, metavar="N", help="a full disk: the file may have N pages")
    for fault in Fault:
        text = f"fault {fault.value!r} at the N-th call (repeatable)"
        option = f"--{fault.value.replace('_', '-')}"
        parser.add_argument(option, type=int, action="append", default=[], metavar="N", help=text)
    given = parser.parse_args()
    at = {number: fault for fault in Fault for number in getattr(given, fault.value)}
    try:
        desk = Desk(given.database, max_pages=given.max_pages)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    try:
        anyio.run(serve_stdio, desk, Faults(at=at))
    finally:
        desk.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
