"""`validate` as one call: play the tasks, prove the hold, put measured beside predicted, save the runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from costmodel.pricing import Pricing
from costmodel.protocol import Role
from costmodel.strategies import OVERLAPPING, STRATEGY_NAMES
from hwprofiles.errors import InputError, unknown_name
from simulator.case import Case
from simulator.effects import effect_map
from simulator.playing import playing
from simulator.scenario_file import to_document
from validate.compare import Comparison, compare, paths
from validate.engine import ChatEngine
from validate.fake import VirtualClock
from validate.journal import Journal
from validate.link import split_command
from validate.measure import measured
from validate.order_desk.tasks import check
from validate.phases import beside, measured_phases, predicted_phases
from validate.proof import Proof
from validate.report_engines import FAKE, VLLM, Asking, engines_of
from validate.round import MAX_WINDOW
from validate.session import (
    Job,
    Played,
    RealClock,
    Session,
    changed_twice,
    desk_jobs,
    desk_tools,
    meta_of,
)
from validate.shadow import shadow
from validate.tools import ToolBox
from validate.verdicts import verdicts

JOURNAL, _DESK = "journal.db", ".desk.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """One strategy's real run: what was played, the journal's proof, the comparison (None where nothing finished).

    `phases` are seconds by family, measured and predicted; `verdicts` how reviews went beside the assumed acceptance;
    `shadow` what drafts beside a strong-only run would have been.
    """

    strategy: str
    played: tuple[Played, ...]
    proof: Proof
    changed_twice: int
    comparison: Comparison | None
    phases: dict[str, dict[str, float]]
    verdicts: dict[str, float]
    shadow: dict[str, Any]


def validate(
    case: Case,
    weak: str,
    strong: str,
    *,
    strategies: Sequence[str] | None = None,
    tools: str | None = None,
    jobs: Sequence[Job] | None = None,
    out: Path | None = None,
    faults: int | None = None,
    resume: bool = False,
    shadow_tasks: int = 0,
    asking: Asking | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Validation]:
    """Run a scenario's strategies for real and compare with the prediction.

    Parameters
    ----------
    weak, strong : str
        URL of an OpenAI-compatible server, or `fake:`; both real or both fake.
    strategies : sequence of str or None
        None: those of the scenario.
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
    shadow_tasks : int
        After strong-only, drafts and reviews beside so many of its tasks (`validate.shadow`).
    asking : Asking or None
        How real engines are asked; None: each kind its own way.

    Raises
    ------
    InputError
        Arguments that do not go together.
    """
    fake = weak == FAKE
    names = tuple(dict.fromkeys(map(str, strategies or case.scenario.strategies)))
    _must_fit(case, names, weak, strong, tools, jobs, faults)
    if shadow_tasks and "strong_only" not in names:
        raise InputError(f"--shadow runs beside strong_only, which is not among {', '.join(names)}")
    chosen = tuple(jobs) if jobs is not None else desk_jobs(20)
    if twice := [n for n, count in Counter(j.name for j in chosen).items() if count > 1]:
        raise InputError(f"task {twice[0]!r} is there twice; every task needs a name of its own")
    with TemporaryDirectory() as scratch:
        folders = {name: (out or Path(scratch)) / name for name in names}
        for folder in folders.values():
            _must_be_fresh(folder, resume=resume)
        found = {}
        for name, folder in folders.items():
            keep = out is not None or not fake
            beside_it = shadow_tasks if name == "strong_only" else 0
            play = _Play(
                case,
                name,
                (weak, strong),
                tools,
                folder,
                faults,
                keep_desks=keep,
                resume=resume,
                shadow=beside_it,
                asking=asking or Asking(),
            )
            found[name] = asyncio.run(play.run(chosen, progress))
        return found


def _must_fit(
    case: Case,
    names: Sequence[str],
    weak: str,
    strong: str,
    tools: str | None,
    jobs: Sequence[Job] | None,
    faults: int | None,
) -> None:
    """Arguments that go together, before anything is begun."""
    for name in names:
        if name not in STRATEGY_NAMES:
            raise unknown_name("strategy", name, STRATEGY_NAMES)
    together = [n for n in names if n in OVERLAPPING]
    if together and weak == FAKE:
        raise InputError(f"{together[0]} works with both models at once; the fake engines share one virtual clock")
    if (weak == FAKE) != (strong == FAKE):
        raise InputError("--weak and --strong are both URLs or both 'fake:'; one clock cannot be real and virtual")
    if faults is not None and not all(u.startswith((FAKE, VLLM)) for u in (weak, strong)):
        raise InputError(
            "--faults needs engines in this process (fake: or vllm:FOLDER); a server is not ours to restart"
        )
    if tools is not None and weak == FAKE:
        raise InputError("the fake engines know the bundled order desk only; --tools needs real endpoints")
    if tools is not None and jobs is None:
        raise InputError("--tools needs --tasks: what to do with them")
    window = case.scenario.protocol.window
    if "spec_agent" in names and window > MAX_WINDOW:
        raise InputError(f"protocol.window must be <= {MAX_WINDOW} in a real run, got {window}: a verdict is one digit")


def _must_be_fresh(folder: Path, *, resume: bool) -> None:
    """Without `resume` nothing of an earlier run may be there; with it, a desk's database needs its journal."""
    path = folder / JOURNAL
    if path.exists() and not resume:
        raise InputError(f"{path} is the journal of an earlier run; --resume goes on with it, or choose another folder")
    desks = sorted(folder.glob(f"*{_DESK}"))
    if desks and not path.exists():
        raise InputError(f"{desks[0]} is the desk of an earlier run whose journal is gone; choose another folder")


@dataclass(frozen=True, slots=True)
class _Play:
    """One strategy's run: which engines and tools, where to; `keep_desks` keeps each task's desk in a file."""

    case: Case
    name: str
    urls: tuple[str, str]
    tools: str | None
    folder: Path
    faults: int | None
    keep_desks: bool
    resume: bool
    shadow: int
    asking: Asking

    async def run(self, jobs: Sequence[Job], progress: Callable[[str], None]) -> Validation:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / JOURNAL
        with Journal(path, meta_of(self.case, self.name)) as journal:
            start_s = journal.last_s()
        fake = self.urls[0] == FAKE
        clock = VirtualClock(start_s) if fake else RealClock(start_s)
        played, twice = [], 0
        async with AsyncExitStack() as stack:
            engines = await engines_of(self.case, self.urls, jobs, clock, stack, self.asking)
            session = Session(self.case, self.name, engines, clock, path, faults=self.faults)
            for job in jobs:
                done, again = await self._job(session, job)
                played.append(done)
                twice += again
                progress(f"{self.name}: {job.name}: {done.status}")
            drafts = await self._shadow(path, jobs, engines) if self.shadow else {}
        return self._result(path, played, twice, drafts)

    async def _shadow(self, path: Path, jobs: Sequence[Job], engines: Mapping[Role, ChatEngine]) -> dict[str, Any]:
        """Drafts and reviews beside what has been played; tools are only looked at."""
        effects = effect_map(dict(self.case.scenario.effects.map))
        with Journal(path) as journal:
            if self.tools is not None:
                async with ToolBox.stdio(split_command(self.tools), effects=effects) as box:
                    return await shadow(journal, jobs, engines, box, self.shadow)
            async with desk_tools(None, own_process=False) as (box, _):
                return await shadow(journal, jobs, engines, box, self.shadow)

    async def _job(self, session: Session, job: Job) -> tuple[Played, int]:
        """Play one task with a tool server of its own; also says how many keys changed the desk twice."""
        ended = session.ended(job) if self.resume else None
        if self.tools is not None and ended is not None:
            return ended, 0
        if self.tools is not None:
            effects = effect_map(dict(self.case.scenario.effects.map))
            async with ToolBox.stdio(split_command(self.tools), effects=effects) as box:
                return await session.play(job, box, None), 0
        file = self.folder / f"{quote(job.name, safe='')}{_DESK}" if self.keep_desks else None
        if ended is not None and file is not None and job.desk is not None:
            return replace(ended, solved=check(file, job.desk)), changed_twice(file)
        async with desk_tools(file, own_process=self.urls[0] != FAKE) as (box, database):
            return await session.play(job, box, lambda task: check(database, task)), changed_twice(database)

    def _result(self, path: Path, played: Sequence[Played], twice: int, drafts: dict[str, Any]) -> Validation:
        scenario = self.case.scenario
        with Journal(path) as journal:
            found = paths(journal, scenario.protocol.repair_mode)
            meta = {"strategy": self.name, "scenario": to_document(scenario), "seed": scenario.run.seed}
            run = measured(journal, meta)
            run.save(self.folder)
            central = predicted_phases(found, playing(scenario, self.name), Pricing(self.case.sites)) if found else {}
            return Validation(
                strategy=self.name,
                played=tuple(played),
                proof=journal.proof(),
                changed_twice=twice,
                comparison=compare(self.case, self.name, found) if found else None,
                phases=beside(measured_phases(run), central) if found else {},
                verdicts=verdicts(journal, self.case.acceptance.value),
                shadow=drafts,
            )
