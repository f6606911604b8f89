"""Choice for a federation: who its members are, and the ranks on which simulated ones train one after another.

A member trains on one rank with the whole `train.global_batch`, so memory and seconds of a step are those of a plan of
one rank. Real members train elsewhere: the gang is one rank that asks them, and how long they take is not known.
"""

from collections.abc import Callable
from dataclasses import replace

from gangline.errors import ConfigError
from gangline.planner.choice import PlanChoice
from gangline.planner.pool import Pool, check_world, is_whole, num_nodes, open_pool, ranks_per_node
from gangline.planner.settings import WEIGHT_BYTES, Fit
from gangline.spec.config.line import Line, MemoryTable
from gangline.spec.config.rules_federated import LEAST_SUM
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.federated import FederatedTable, FederationPlan
from gangline.spec.forecast import Forecast
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate
from gangline.spec.strategies import strategy_of
from gangline.units import format_bytes


def choose_federated(
    line: Line, site: Site, inventory: Inventory, *, choose: Callable[[Line, Inventory], PlanChoice]
) -> PlanChoice:
    """The plan of a federation; `choose` plans a line without one.

    Raises:
        ConfigError: One rank does not hold a member's training, or the roster cannot do what the line asks.
    """
    table, kind = line.federated, inventory.kinds[0]
    assert table is not None, "a line with a federation"
    federation = federation_of(line, table, site)
    pool, members = open_pool(site, kind), len(federation.roster)
    ranks = 1
    memory = MemoryTable(activation_checkpointing="none", loss_chunks=1, offload="none")
    alone = replace(line, federated=None, train=replace(line.train, strategy="none", ranks=1, memory=memory))
    choice = choose(alone, kind)
    if choice.precision == "fp16":
        alone = replace(alone, train=replace(alone.train, precision="fp32"))
        choice = choose(alone, kind)
    if federation.simulated:
        ranks = _ranks(line, pool, members, choice.forecast.memory_bytes)
        turns = -(-members // ranks)
        choice = choose(replace(alone, train=replace(alone.train, steps=line.train.steps * turns)), kind)
    mesh, forecast = Mesh(dp_replicate=ranks), _forecast(choice.forecast, ranks, simulated=federation.simulated)
    name = f"fed{'adam' if table.server == 'adam' else 'avg'}-{members}"
    reason = _reason(federation, choice.forecast.parameters)
    chosen = Candidate(
        name=name, strategy=strategy_of(mesh), mesh=mesh, verdict="chosen", reason=reason, forecast=forecast
    )
    return replace(
        choice, name=name, strategy=chosen.strategy, mesh=mesh, num_nodes=num_nodes(pool, ranks), reason=reason,
        candidates=(chosen,), forecast=forecast, sizes=(), finalists=(), save_costs=None, federation=federation,
    )  # fmt: skip


def federation_of(line: Line, table: FederatedTable, site: Site) -> FederationPlan:
    """Members of the run: those of the site, or simulated ones.

    Raises:
        ConfigError: They are too few for the quorum or a secure sum, or the line trains more seeds than one with them.
    """
    simulated, count = site.federation.kit is None, table.simulate.members
    names = [f"member-{number:0{len(str(count))}d}" for number in range(1, count + 1)]
    roster = tuple(names if simulated else sorted(site.federation.members))
    where = "federated.simulate.members" if simulated else "federation.members of site.toml"
    if table.quorum > len(roster):
        raise ConfigError(
            f"federated.quorum: wanted at most the {len(roster)} of {where}, found {table.quorum}; "
            f"{len(roster)} waits for all of them"
        )
    if table.secure_sum and (len(roster) < LEAST_SUM or 2 * table.quorum <= len(roster)):
        raise ConfigError(
            f"federated.quorum: wanted more than half of the {len(roster)} of {where} with secure_sum, so that no two "
            f"sums are of different members, found {table.quorum}; {max(len(roster) // 2 + 1, LEAST_SUM)} works"
        )
    if not simulated and line.evaluate.seeds > 1:
        raise ConfigError(
            f"evaluate.seeds: wanted 1 with real members, who would train and spend privacy for each seed, found "
            f"{line.evaluate.seeds}; gates take a limit or a tolerance_percent instead of a band"
        )
    return FederationPlan(table=table, roster=roster, simulated=simulated)


def _ranks(line: Line, pool: Pool, members: int, need_bytes: int | None) -> int:
    """Ranks that simulated members are dealt to: as many as there are if each holds a training, one a member."""
    if isinstance(line.train.ranks, int):
        ranks = min(line.train.ranks, members)
        check_world(line, pool, ranks, shares=1)
        return ranks
    return next(
        ranks
        for ranks in range(min(pool.num_nodes * pool.preferred, members), 0, -1)
        if ranks == 1
        or (is_whole(pool, ranks) and Fit(need_bytes, pool.usable_bytes(ranks_per_node(pool, ranks))).holds)
    )


def _forecast(one: Forecast, ranks: int, *, simulated: bool) -> Forecast:
    if not simulated:
        return Forecast(
            parameters=one.parameters, memory_bytes=one.memory_bytes, memory_origin=one.memory_origin,
            memory_causes=one.memory_causes,
        )  # fmt: skip
    return one.paid(ranks)


def _reason(federation: FederationPlan, parameters: int | None) -> str:
    """`5 simulated members, dirichlet:0.3 · 4.2 MB up and down a member and round · no privacy asked`."""
    table, count = federation.table, len(federation.roster)
    if federation.simulated:
        parts = [f"{count} simulated members, {table.simulate.split}"]
    else:
        parts = [f"{count} members on the roster, quorum {table.quorum}"]
    if parameters is not None:
        parts.append(f"{format_bytes(parameters * WEIGHT_BYTES)} up and down a member and round")
    if table.secure_sum:
        parts.append(f"secure sum of {max(table.quorum, LEAST_SUM)} or more")
    privacy = f"epsilon {table.epsilon:g} for each member's records" if table.epsilon else "no privacy asked"
    return " · ".join([*parts, privacy])
