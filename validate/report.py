"""`validate` as one call: play the tasks, prove the hold, put measured beside predicted, save the runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from costmodel.protocol import Role
from hwprofiles.errors import InputError
from simulator.case import Case
from simulator.effects import effect_map
from simulator.scenario_file import to_document
from validate.compare import Comparison, compare, paths
from validate.engine import ChatEngine
from validate.fake import VirtualClock
from validate.journal import Journal, Proof
from validate.link import split_command
from validate.measure import measured
from validate.session import Job, Played, RealClock, Session, changed_twice, desk_jobs, desk_tools, fake_engines
from validate.tools import ToolBox

FAKE = "fake:"
"""Stands for the in-process fake engine in place of a URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """One strategy's real run: what was played, the journal's proof, the comparison (None where nothing finished)."""

    strategy: str
    played: tuple[Played, ...]
    proof: Proof
    changed_twice: int
    comparison: Comparison | None


def validate(
    case: Case,
    weak: str,
    strong: str,
    *,
    tools: str | None = None,
    jobs: Sequence[Job] | None = None,
    out: Path | None = None,
    faults: int | None = None,
    resume: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Validation]:
    """Run a scenario's strategies for real and compare with the prediction.

    Parameters
    ----------
    weak, strong : str
        URL of an OpenAI-compatible server, or `fake:`; both real or both fake.
    tools : str or None
        Command of an MCP server; None: the bundled order desk.
    jobs : sequence of Job or None
        None: the desk's twenty tasks.
    out : Path or None
        Where journals and runs are kept; needed to resume.
    faults : int or None
        Seed of injected faults, for the fake engines.
    resume : bool
        Go on with the journals in `out`; without it, journals that are there are an error.

    Raises
    ------
    InputError
        Arguments that do not go together.
    """
    fake = weak == FAKE
    if (weak == FAKE) != (strong == FAKE):
        raise InputError("--weak and --strong are both URLs or both 'fake:'; one clock cannot be real and virtual")
    if faults is not None and not fake:
        raise InputError("--faults needs the fake engines (--weak fake: --strong fake:)")
    if tools is not None and fake:
        raise InputError("the fake engines know the bundled order desk only; --tools needs real endpoints")
    if tools is not None and jobs is None:
        raise InputError("--tools needs --tasks: what to do with them")
    chosen = tuple(jobs) if jobs is not None else desk_jobs(20)
    with TemporaryDirectory() as scratch:
        folder = out or Path(scratch)
        return {
            name: asyncio.run(
                _play(
                    case, name, (weak, strong), tools, chosen, folder / name, faults, resume=resume, progress=progress
                )
            )
            for name in case.scenario.strategies
        }


async def _play(
    case: Case,
    name: str,
    urls: tuple[str, str],
    tools: str | None,
    jobs: Sequence[Job],
    folder: Path,
    faults: int | None,
    *,
    resume: bool,
    progress: Callable[[str], None],
) -> Validation:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "journal.db"
    if path.exists() and not resume:
        raise InputError(f"{path} is the journal of an earlier run; --resume goes on with it, or choose another folder")
    fake = urls[0] == FAKE
    clock = VirtualClock() if fake else RealClock()
    engines = _engines(case, urls, jobs, clock)
    session = Session(case, name, engines, clock, path, faults=faults)
    played, twice = [], 0
    for job in jobs:
        async with AsyncExitStack() as stack:
            if tools is not None:
                box = await stack.enter_async_context(
                    ToolBox.stdio(split_command(tools), effects=effect_map(dict(case.scenario.effects.map)))
                )
                done = await session.play(job, box, None)
            else:
                database = None if fake else folder / f"{job.name.replace('~', '-')}.desk.db"
                box, solved, desk = await stack.enter_async_context(desk_tools(database))
                done = await session.play(job, box, solved)
                twice += changed_twice(desk) if desk is not None else 0
        played.append(done)
        progress(f"{name}: {job.name}: {done.status}")
    with Journal(path) as journal:
        found = paths(journal, case.scenario.protocol.repair_mode)
        meta = {"strategy": name, "scenario": to_document(case.scenario), "seed": case.scenario.run.seed}
        measured(journal, meta).save(folder)
        comparison = compare(case, name, found) if found else None
        return Validation(
            strategy=name,
            played=tuple(played),
            proof=journal.proof(),
            changed_twice=twice,
            comparison=comparison,
        )


def _engines(case: Case, urls: tuple[str, str], jobs: Sequence[Job], clock: Any) -> Mapping[Role, ChatEngine]:
    if urls[0] == FAKE:
        return fake_engines(case, jobs, clock)
    from validate.openai_server import OpenAIServer

    out: dict[Role, ChatEngine] = {}
    for role, url in zip((Role.WEAK, Role.STRONG), urls, strict=True):
        out[role] = OpenAIServer(url, model=case.side(role).model, clock=clock)
    return out


def document(case: Case, found: Mapping[str, Validation]) -> dict[str, Any]:
    """Everything as plain values, in the layout of the command line's JSON."""
    compared = {n: v.comparison for n, v in found.items() if v.comparison is not None}
    held = [v.proof for v in found.values()]
    return {
        "scenario": to_document(case.scenario),
        "measured": {n: dict(c.measured) for n, c in compared.items()},
        "predicted": {n: {m: p.to_dict() for m, p in c.predicted.items()} for n, c in compared.items()},
        "errors": {n: {m: dict(e) for m, e in c.errors.items()} for n, c in compared.items()},
        "in_band": {n: dict(c.in_band) for n, c in compared.items()},
        "held": {
            "held": sum(p.held for p in held),
            "accepted": sum(p.accepted for p in held),
            "executed_before_verdict": sum(p.executed_before_verdict for p in held),
            "lost": sum(p.lost for p in held),
            "run_twice": sum(p.run_twice for p in held) + sum(v.changed_twice for v in found.values()),
            "unresolved": sum(p.unresolved for p in held),
        },
        "tasks": {
            n: {
                "played": len(v.played),
                "solved": sum(bool(p.solved) for p in v.played),
                "resumed": sum(p.resumed for p in v.played),
                "status": {s: sum(p.status == s for p in v.played) for s in sorted({p.status for p in v.played})},
            }
            for n, v in found.items()
        },
        "proofs": {n: asdict(v.proof) for n, v in found.items()},
    }
