"""A fabric from the tables of `fabric.toml`, and the text of such a file from a fabric. Pure."""

from dataclasses import MISSING, fields
from typing import Any

from gangline.fabric.topology.inventory import Fabric, Group
from gangline.spec.config.fabric import FabricTable, FailureRates
from gangline.spec.config.server_ranges import compress_servers, expand_servers


def fabric_of(table: FabricTable) -> Fabric:
    """The fabric of a table whose rules were judged."""
    return Fabric(
        groups=tuple(
            Group(name=group.name, servers=expand_servers(group.servers), block=group.block) for group in table.groups
        ),
        **{name: getattr(table, name) for name in _plain_names()},
    )


def fabric_text(fabric: Fabric) -> str:
    """A `fabric.toml` that reads as this fabric; what has its default is left out."""
    defaults = {field.name: field.default for field in fields(Fabric) if field.default is not MISSING}
    given = {name: getattr(fabric, name) for name in _plain_names()}
    lines = [f"{name} = {_value(value)}" for name, value in given.items() if value not in (None, defaults[name])]
    groups = [f"    {_table(_group(group))},\n" for group in fabric.groups]
    return "\n".join(["[fabric]", *lines, f"groups = [\n{''.join(groups)}]"]) + "\n"


def _plain_names() -> list[str]:
    """Fields that a table and a fabric have alike."""
    ours = {field.name for field in fields(Fabric)} - {"groups"}
    return [field.name for field in fields(FabricTable) if field.name in ours]


def _group(group: Group) -> dict[str, Any]:
    block = {"block": group.block} if group.block else {}
    return {"name": group.name, "servers": compress_servers(group.servers), **block}


def _value(value: Any) -> str:
    if isinstance(value, FailureRates):
        return _table({field.name: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value >= 1e9 and float(f"{value / 1e9:.12g}e9") == value:
        return f"{value / 1e9:.12g}e9"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _table(values: dict[str, Any]) -> str:
    return f"{{ {', '.join(f'{name} = {_value(value)}' for name, value in values.items() if value is not None)} }}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in escaped) + '"'
