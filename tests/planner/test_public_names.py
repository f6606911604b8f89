"""Names of the planner that other rooms import are those that it lists, no more and no fewer."""

import ast

from tests.source import SOURCE, nodes

from gangline.planner import PUBLIC

ROOM = "gangline.planner."


def test_other_rooms_import_the_listed_names():
    used: dict[str, set[str]] = {}
    for path, found in nodes().items():
        if path.relative_to(SOURCE).parts[0] == "planner":
            continue
        for node in found:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(ROOM):
                used.setdefault(node.module.removeprefix(ROOM), set()).update(each.name for each in node.names)
    assert used == {module: set(names) for module, names in PUBLIC.items()}
