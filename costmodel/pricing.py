"""Prices rows: seconds, FLOPs, bytes, joules and API dollars of each kind of work on given deployments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.api import Api
from costmodel.cost import COLUMNS
from costmodel.deployment import Deployment, factor_values
from costmodel.ledger import Row, Shape
from costmodel.protocol import Role
from costmodel.request import CacheRule, RequestPlan, plan_request
from costmodel.session import EngineRequest
from costmodel.spans import Num
from costmodel.step import StepModel
from costmodel.step_parts import BUSY
from hwprofiles.errors import InputError

Array = np.ndarray[Any, np.dtype[np.float64]]
USD, WALL = COLUMNS.index("api_usd"), COLUMNS.index("wall_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLink:
    """The link a role's requests cross: a round trip each, and every token of prompt and answer over the bandwidth."""

    rtt_s: float
    bytes_per_s: float
    token_bytes: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where one role runs: a deployment or an API, and the link before it, if any."""

    server: Deployment | Api
    link: NetworkLink | None = None


Sites = Mapping[Role, Site]


def central_factors(sites: Sites) -> dict[str, Num]:
    """Central values of every uncertain factor of the sites, by qualified name.

    Names: `HARDWARE.factor` and `ENGINE.factor` (shared by roles on the same kind of device), `ROLE.request_s`,
    `ROLE.output_token_s` and `ROLE.input_token_s` for an API, `link.rtt_s`, `link.bytes_per_s`.

    Raises
    ------
    InputError
        Two roles share a name but not its value.
    """
    out: dict[str, Num] = {}
    for role, site in sites.items():
        for name, value in _site_factors(role, site).items():
            if out.setdefault(name, value) != value:
                raise InputError(f"{name} is shared by both roles but differs: {out[name]:g} and {value:g}")
    return out


def _site_factors(role: Role, site: Site) -> dict[str, float]:
    out: dict[str, float] = {}
    if isinstance(site.server, Api):
        out[f"{role}.request_s"] = site.server.request_s.value
        out[f"{role}.output_token_s"] = site.server.output_token_s.value
        if site.server.input_token_s is not None:
            out[f"{role}.input_token_s"] = site.server.input_token_s.value
    else:
        dep = site.server
        out |= {f"{dep.hardware.name}.{k}": v for k, v in dep.efficiency.values().items()}
        out |= {f"{dep.engine.label}.{k}": f.value for k, f in dep.engine.factors.items()}
    if site.link:
        out["link.rtt_s"] = site.link.rtt_s
        out["link.bytes_per_s"] = site.link.bytes_per_s
    return out


class Pricing:
    """Row prices of both roles under one set of factors (numbers, or arrays (n_samples, 1) for all samples at once)."""

    def __init__(self, sites: Sites, factors: Mapping[str, Num] | None = None) -> None:
        self.sites = sites
        self.factors = dict(central_factors(sites))
        if factors:
            self.factors |= factors
        self.models: dict[Role, StepModel] = {}
        for role, site in sites.items():
            if isinstance(site.server, Deployment):
                self.models[role] = StepModel(site.server, self._own_factors(site.server))
        self.shapes = {role: self._shape(role) for role in sites}
        self.rules: dict[Role, CacheRule] = {
            role: self.models[role].rule if role in self.models else site.server.rule  # type: ignore[union-attr]  # no model: an Api
            for role, site in sites.items()
        }
        self._scalar: dict[Row, Array] = {}
        self._plans: dict[tuple[Role, int, int, int], RequestPlan] = {}
        self._last: list[tuple[Sequence[Row], Array]] = []

    def _own_factors(self, dep: Deployment) -> dict[str, Num]:
        device, engine = dep.hardware.name, dep.engine.label
        return {k: self.factors.get(f"{device}.{k}", self.factors.get(f"{engine}.{k}")) for k in factor_values(dep)}

    def _shape(self, role: Role) -> Shape:
        site = self.sites[role]
        if isinstance(site.server, Api):
            return Shape((), True, site.link is not None, site.server.min_cacheable_tokens)
        windows = tuple(dict.fromkeys([*self.models[role].windows, None]))
        rule = self.models[role].rule
        return Shape(windows, False, site.link is not None, 0, rule.pass_tokens, rule.tokens_per_pass)

    def plan(self, request: EngineRequest) -> RequestPlan:
        """The passes of a request on an idle engine."""
        sizes = (request.role, request.prompt_tokens, request.reusable_tokens, request.output_tokens)
        found = self._plans.get(sizes)
        if found is None:
            found = self._plans[sizes] = plan_request(self.rules[request.role], *sizes[1:])
        return found

    def row(self, row: Row) -> Array:
        """Cost of one unit of a row: array (len(COLUMNS),). Only for scalar factors; cached."""
        found = self._scalar.get(row)
        if found is None:
            found = self._scalar[row] = self.rows([row])[:, 0]
        return found

    def rows(self, rows: Sequence[Row]) -> Array:
        """Cost of one unit of each row: (len(COLUMNS), [n_samples,] n_rows); the last two sets are kept."""
        for known, cost in self._last:
            if known is rows:
                return cost
        cost = self._price(rows)
        self._last = [*self._last[-1:], (rows, cost)]
        return cost

    def _price(self, rows: Sequence[Row]) -> Array:
        samples = {np.shape(v)[0] for v in self.factors.values() if np.ndim(v)}
        out = np.zeros((len(COLUMNS), *sorted(samples)[-1:], len(rows)))
        groups: dict[tuple[str, Role | None], list[int]] = {}
        for i, row in enumerate(rows):
            groups.setdefault((row.kind, row.role), []).append(i)
        for (kind, role), members in groups.items():
            block = self._block(kind, role, [rows[i] for i in members])
            out[..., members] = block[:, None, :] if block.ndim < out.ndim else block
        return out

    def _block(self, kind: str, role: Role | None, rows: list[Row]) -> Array:
        f = self.factors
        n = len(rows)
        if kind == "tool_second":
            return _wall(np.ones(n))
        assert role is not None
        if kind == "prefill":
            new, context, emits = (np.array([float(r[i] or 0) for r in rows]) for i in (2, 3, 4))
            return _engine(self.models[role].prefill(new, context, emits))
        if kind in ("decode_step", "decode_context"):
            fixed, slopes = self.models[role].decode_coefficients(1)
            columns = [fixed if kind == "decode_step" else slopes[r.a] for r in rows]
            stacked = [np.stack(np.broadcast_arrays(*[np.asarray(x, dtype=float) for x in c])) for c in columns]
            stacked = [s[..., 0] if s.ndim > 1 else s for s in stacked]
            return _engine(np.stack(stacked, axis=-1))
        if kind == "host_request":
            return _wall(_spread(self.models[role].factors["request_s"], n))
        if kind == "host_token":
            return _wall(_spread(self.models[role].factors["request_token_s"], n))
        if kind == "link_round_trip":
            return _wall(_spread(f["link.rtt_s"], n))
        if kind == "link_token":
            link = self.sites[role].link
            assert link is not None
            return _wall(_spread(link.token_bytes / f["link.bytes_per_s"], n))
        return self._api_block(kind, role, n)

    def _api_block(self, kind: str, role: Role, n: int) -> Array:
        server = self.sites[role].server
        assert isinstance(server, Api)
        if kind == "api_request":
            return _wall(_spread(self.factors[f"{role}.request_s"], n))
        usd = {
            "api_input_token": server.input_usd,
            "api_cached_token": server.cached_usd,
            "api_write_token": server.cache_write_usd,
            "api_output_token": server.output_usd,
        }[kind]
        paced = {"api_output_token": "output_token_s", "api_input_token": "input_token_s"}
        paced["api_write_token"] = "input_token_s"
        seconds = self.factors.get(f"{role}.{paced[kind]}", 0.0) if kind in paced else 0.0
        block = _wall(_spread(seconds, n))
        block[USD] = usd
        return block


def _spread(value: Num, n: int) -> Array:
    """A number or samples (n_samples, 1) as an array with a trailing axis of n rows."""
    value = np.asarray(value, dtype=float)
    return np.broadcast_to(value if value.ndim else value[None], (*value.shape[:-1], n)) * 1.0


def _wall(seconds: Array) -> Array:
    block = np.zeros((len(COLUMNS), *seconds.shape))
    block[WALL] = seconds
    return block


def _engine(cost: Array) -> Array:
    """Engine cost columns, plus an API bill of zero and wall time equal to busy time."""
    return np.concatenate([cost, np.zeros_like(cost[:1]), cost[BUSY : BUSY + 1]])
