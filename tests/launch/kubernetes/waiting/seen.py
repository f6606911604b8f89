"""Snapshots from their files."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from gangline.launch.kubernetes.waiting import Snapshot

SNAPSHOTS = Path(__file__).parent / "snapshots"


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def snapshot(kept: dict[str, Any]) -> Snapshot:
    """What a follower would have seen."""
    root = kept["root"]
    return Snapshot(
        now=datetime.fromisoformat(kept["now"]),
        num_nodes=kept.get("num_nodes") or root["spec"].get("completions", 1),
        root=root,
        pods=kept["pods"],
        events=kept["events"],
        others=kept["others"],
        nodes=kept["nodes"],
        workload=kept["workload"],
        cluster_queue=kept.get("cluster_queue"),
        topology_nodes=kept.get("topology_nodes"),
        pending=kept.get("pending", []),
        pod_group=kept.get("pod_group"),
        volcano_queue=kept.get("volcano_queue"),
        denied=tuple(kept.get("denied", ())),
    )
