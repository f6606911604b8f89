"""Gangs in a queue of Kueue, as a follower reads them.

Assignments, conditions and messages have the form that Kueue 0.19.2 wrote, and its kinds keep each field of them
(`tests/cluster/placement/test_kueue_kinds.py`). Where a file says `recorded: false`, the objects around them were put
together by hand; `python -m tests.cluster.placement.record_kueue` writes all files again from a real cluster.
"""

import json
from pathlib import Path
from typing import Any

from tests.cluster.fake.api import FakeApi

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.state.roots import JOB, Root

RECORDS = Path(__file__).parent / "kueue"
FACTS = ClusterFacts(served=("kueue.x-k8s.io/v1beta2/workloads",), queues={"gangs": "gpus"})


class RecordedGang:
    """One of the files: the root of a gang, its pods and its Workload, and what its Workload names."""

    def __init__(self, name: str) -> None:
        self._kept: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text())
        self.workload: Object = self._kept["workload"]
        self.pods: list[Object] = self._kept["pods"]
        self.root = Root(JOB.path("gangs", "g"), self._kept["root"])
        self.nodes: list[Object] = self._kept["nodes"]
        self.flavors: list[Object] = self._kept["flavors"]
        self.topologies: list[Object] = self._kept["topologies"]

    def write_to(self, api: FakeApi) -> None:
        """Put its objects into the server of `api`, in place of those of the same names."""
        kinds = {
            "workloads.kueue.x-k8s.io": [self.workload], "pods": self.pods, "nodes": self.nodes,
            "resourceflavors.kueue.x-k8s.io": self.flavors, "topologies.kueue.x-k8s.io": self.topologies,
        }  # fmt: skip
        for kind, things in kinds.items():
            for each in things:
                metadata, known = each["metadata"], api.server.kind(kind)
                body = {"apiVersion": known.api_version, "kind": known.kind, **each}  # lists leave them out
                api.server.write((kind, metadata.get("namespace", ""), metadata["name"]), body)

    def served(self) -> FakeApi:
        """Client of a server that has these objects."""
        api = FakeApi(serve=("kueue",))
        self.write_to(api)
        return api
