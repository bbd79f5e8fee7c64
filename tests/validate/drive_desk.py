"""To be killed: `python drive_desk.py FOLDER N` plays desk tasks, fake engines here and the desk in its own process."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from simulator.case import prepare
from simulator.scenario_file import load_scenario
from validate.fake import VirtualClock
from validate.journal import Journal
from validate.session import Session, desk_jobs, desk_tools, fake_engines


async def main(folder: Path, n: int) -> None:
    """Play the last `n` of the twenty tasks, which change the most."""
    case = prepare(load_scenario("llama-a100", ["quality.weak_hazard=0.3"]))
    path = folder / "journal.db"
    with Journal(path) as journal:
        clock = VirtualClock(journal.last_s())
    jobs = desk_jobs(20)[-n:]
    session = Session(case, "spec_agent", fake_engines(case, jobs, clock), clock, path)
    for job in jobs:
        async with desk_tools(folder / f"{job.name}.db", own_process=True) as (box, _):
            print(job.name, (await session.play(job, box, None)).status, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
