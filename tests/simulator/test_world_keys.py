"""Keys of tools, users, links, limits and load: what has no effect or contradicts another key is refused."""

from __future__ import annotations

import pytest

from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.plan import plan
from simulator.scenario_file import load_scenario, to_document

REFUSED = {
    "tools.sigma=1": r"tools.sigma has no effect on tools.law = 'trace'",
    "tools.law=lognormal": r"tools.law = 'lognormal' needs sigma",
    "tools.law=pareto|tools.shape=1.5": r"needs spread",
    "tools.law=constant": r"needs latency_s",
    "tools.law=constant|tools.latency_s=1|tools.latency_file=x": r"tools.latency_file has no effect",
    "tools.failure_s=1": r"failure_s has no effect without failure",
    "tools.retries=2": r"retries has no effect without failure, hang or timeout_s",
    "tools.failure=0.1|tools.backoff_s=1": r"backoff_s has no effect without retries",
    "tools.failure=0.6|tools.hang=0.6": r"at most 1",
    "tools.by_effect.write={}": r"tools.by_effect.write has no effect: it holds no key",
    "tools.by_effect.write={latency_s=1}": r"tools.by_effect.write.latency_s needs a law",
    "tools.by_effect.writes={failure=0.1}": r"tools.by_effect",
    "tools.by_tool.nothing_like_it={failure=0.1}": r"unknown tools.by_tool 'nothing_like_it'",
    "tools.timeout_s=0": r"tools.timeout_s: ",
    "users.law=trace|users.gap_s=3": r"users.gap_s has no effect on users.law = 'trace'",
    "users.law=constant": r"users.law = 'constant' needs gap_s",
    "link.rtt_s=0.1|link.jitter_s=0.1": r"link.jitter_s and link.jitter_law need each other",
    "link.rtt_s=0.1|link.jitter_s=0.1|link.jitter_law=lognormal": r"needs jitter_sigma",
    "link.rtt_s=0.1|link.jitter_sigma=1": r"link.jitter_sigma has no effect",
    "link.rtt_s=0.1|link.outage_s=1": r"need each other",
    "link.rtt_s=0.1|link.timeout_s=1": r"link.timeout_s has no effect without outages",
    "link.rtt_s=0.1|link.outage_s=1|link.outage_every_s=9|link.retries=1": r"no effect without timeout_s",
    "strong.limits.requests_per_min=3": r"strong.limits has no effect without strong.api",
    "strong.cache_ttl_s=3": r"strong.cache_ttl_s has no effect without strong.api",
    "strong.router=round_robin": r"strong.router has no effect on one replica",
    "strong.replicas=2|strong.router=prefix_affinity|strong.route_per=trajectory": r"a new trajectory has no prefix",
    "load.sessions=true": r"load.sessions has no effect without load.arrivals",
    "load.arrivals=x.csv|concurrency=2": r"two sources for the load",
    "load.arrivals=x.csv": r"x.csv: cannot be read",
    "run.seeds_max=9": r"run.seeds_max has no effect without run.precision",
    "run.precision=0.1|run.seeds=1": r"needs run.seeds >= 2",
    "run.precision=0.1|run.seeds=9|run.seeds_max=5": r"at least run.seeds = 9",
}  # fmt: skip


@pytest.mark.parametrize("settings", REFUSED)
def test_a_key_without_effect_is_refused(settings):
    with pytest.raises(InputError, match=REFUSED[settings]):
        prepare(load_scenario("llama-a100", ["workload.n=2", *settings.split("|")]))


def test_tables_of_tools_survive_the_round_trip():
    lines = ["workload.n=2", "tools.failure=0.1", 'tools.by_tool={"get_*"={law="constant", latency_s=2}}']
    scenario = load_scenario("llama-a100", lines)
    again = to_document(scenario)
    assert again["tools"] == {"failure": 0.1, "by_tool": {"get_*": {"latency_s": 2.0, "law": "constant"}}}
    assert scenario.with_(**{"tools.failure": 0.2}).tools.by_tool["get_*"].latency_s == 2.0
    assert "by_tool" in scenario.to_toml()


def test_a_tool_goes_before_its_effect_and_the_slowest_call_counts():
    tables = [
        'tools.by_effect.read={law="constant", latency_s=1}',
        'tools.by_tool={"get_user*"={law="constant", latency_s=7}}',
    ]
    case = prepare(load_scenario("retail-h200", ["workload.n=6", *tables]))
    seen = set()
    for trajectory, task in zip(case.workload.trajectories, case.tasks, strict=True):
        for step, timed in zip(trajectory.steps, task.steps, strict=True):
            names = {call.name for call in step.tools}
            if any(n.startswith("get_user") for n in names):
                assert timed.tool_s == 7.0
                seen.add("tool")
            elif names and all(call.effect == "read" for call in step.tools):
                assert timed.tool_s == 1.0
                seen.add("effect")
    assert seen == {"tool", "effect"}


def test_an_empirical_file_stands_beside_the_scenario(tmp_path):
    (tmp_path / "times.txt").write_text("1\n3\n")
    text = load_scenario("llama-a100", ["workload.n=2"]).to_toml()
    (tmp_path / "own.toml").write_text(text + '\n[tools]\nlaw = "empirical"\nlatency_file = "times.txt"\n')
    case = prepare(load_scenario(tmp_path / "own.toml"))
    assert {round(s.tool_s, 9) for t in case.tasks for s in t.steps} == {0.0, 2.0}


def test_a_plan_says_what_only_a_simulation_shows():
    lines = ["run.samples=16", "workload.n=2", 'strategies=["strong_only", "spec_agent"]', "tools.concurrency=2"]
    warnings = plan(load_scenario("llama-a100", lines)).warnings
    assert any("only a simulation shows waiting for tool slots" in w and "leaves it out" in w for w in warnings)
    lines += ["link.rtt_s=0.01", "link.outage_s=30", "link.outage_every_s=60", "run.seeds=2", "load.n_trajectories=4"]
    found = plan(load_scenario("llama-a100", lines))
    document = found.document()
    assert document["load"] == {"kind": "closed", "concurrency": 1, "arrival_rate_per_s": None}
    strong = document["strategies"][0]
    assert strong["method"] == "simulated"
    assert strong["time_s"]["value"] > strong["time_alone_s"]["value"] + 1
    assert any("link outages: it is in time_s, not in time_alone_s" in w for w in document["warnings"])


def test_jitter_widens_nothing_and_shifts_the_round_trip():
    lines = ["workload.n=2", "link.rtt_s=0.1"]
    plain = prepare(load_scenario("llama-a100", lines))
    more = prepare(
        load_scenario(
            "llama-a100",
            [*lines, "link.jitter_s=0.3", "link.jitter_law=pareto", "link.jitter_shape=2", "link.jitter_spread=50"],
        )
    )
    links = [next(s.link for s in c.sites.values() if s.link) for c in (plain, more)]
    assert links[1].rtt_s == pytest.approx(links[0].rtt_s + 0.3)


@pytest.mark.parametrize(
    ("before", "roles"), [("strong", {"strong"}), ("weak", {"weak"}), ("both", {"weak", "strong"})]
)
def test_a_link_stands_before_either_model(before, roles):
    case = prepare(load_scenario("llama-a100", ["workload.n=2", "link.rtt_s=0.1", f"link.before={before}"]))
    assert {role.value for role, site in case.sites.items() if site.link is not None} == roles
