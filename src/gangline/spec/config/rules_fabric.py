"""Rules of `fabric.toml` beyond the types of its values."""

from collections.abc import Iterator
from dataclasses import fields

from gangline.spec.config.fabric import FabricFile, FabricTable, FailureRates, GroupTable
from gangline.spec.config.problems import (
    ConfigProblem,
    show,
)
from gangline.spec.config.server_ranges import MOST_SERVERS, expand_servers


def fabric_rules(file: FabricFile) -> Iterator[ConfigProblem]:
    """Problems of a whole `fabric.toml`."""
    table = file.fabric
    yield from failure_rules("fabric.failures", table.failures)
    yield from _group_rules(table)


def failure_rules(key: str, rates: str | FailureRates) -> Iterator[ConfigProblem]:
    """Problems of rates that are given by number; a preset has none."""
    if isinstance(rates, str):
        return
    if all(getattr(rates, field.name) is None for field in fields(rates)):
        yield ConfigProblem(key, "hours to a failure of one part or more", "none", '"llama3" works')


def _group_rules(table: FabricTable) -> Iterator[ConfigProblem]:
    names: dict[str, int] = {}
    claimed: dict[str, str] = {}
    for index, group in enumerate(table.groups):
        key = f"fabric.groups[{index}]"
        if not group.name or group.name in names:
            found = f"{show(group.name)}, as groups[{names[group.name]}]" if group.name in names else "an empty one"
            yield ConfigProblem(f"{key}.name", "a name of its own", found)
        names.setdefault(group.name, index)
        try:
            servers = expand_servers(group.servers)
        except ValueError as error:
            yield ConfigProblem(f"{key}.servers", *str(error).split(", found ", 1))
            continue
        if len(claimed) + len(servers) > MOST_SERVERS:
            yield ConfigProblem(f"{key}.servers", f"at most {MOST_SERVERS:,} servers in all groups", "more")
            return
        yield from _server_rules(key, servers, claimed)
        claimed.update(dict.fromkeys(servers, f"groups[{index}] {show(group.name)}"))
        yield from _claim_rules(key, table, group, len(servers))


def _server_rules(key: str, servers: tuple[str, ...], claimed: dict[str, str]) -> Iterator[ConfigProblem]:
    if both := [server for server in servers if server in claimed]:
        more = f" and {len(both) - 1} more" if len(both) > 1 else ""
        found = f"{show(both[0])}{more}, in {claimed[both[0]]}, too"
        yield ConfigProblem(f"{key}.servers", "servers of no other group", found)
    if len(set(servers)) < len(servers):
        twice = next(server for at, server in enumerate(servers) if server in servers[:at])
        yield ConfigProblem(f"{key}.servers", "each server once", f"{show(twice)} twice")


def _claim_rules(key: str, table: FabricTable, group: GroupTable, servers: int) -> Iterator[ConfigProblem]:
    """What the table says of every group holds for this one."""
    if table.group_size is not None and servers != table.group_size:
        works = "leave group_size out where groups differ"
        yield ConfigProblem(f"{key}.servers", f"{table.group_size} servers as group_size says", str(servers), works)
    leaves = table.rails * (2 if table.dual_homed else 1)
    if group.leaves is not None and group.leaves != leaves:
        each = "two leaves a rail, dual-homed" if table.dual_homed else "one leaf a rail"
        yield ConfigProblem(f"{key}.leaves", f"{leaves}: {each}, rails = {table.rails}", str(group.leaves))
    if table.oversubscription and table.leaf_uplinks and servers > table.oversubscription * table.leaf_uplinks:
        wanted = f"at most {table.oversubscription:g} ports down for one up"
        found = f"{servers} servers on leaves of {table.leaf_uplinks} uplinks"
        yield ConfigProblem(f"{key}.servers", wanted, found, "correct oversubscription or leaf_uplinks")
