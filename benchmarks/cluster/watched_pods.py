"""Memory of a process that lists and watches 10,000 pods: bound 300 MB, against a bare start of the same client.

A small server of this file sends pods as an API server does, about 9 kB each, in pages of 500; then it changes every
one of them once through the watch. The watching process measures itself: resident now, and at most. `--typed` lists
once with `CoreV1Api` of the package kubernetes instead (docs/adr/0053).
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.cluster.fake.front import kubeconfig

NUM_PODS = 10_000
PATH = "/api/v1/namespaces/gangs/pods"
BOUND_BYTES = 300_000_000
PATIENCE_SECONDS = 300.0


def pod(number: int, version: int) -> dict[str, Any]:
    name = f"bytegpt-9f31c2a0-{number // 256:04}-{number % 256}"
    labels = {"gangline/run": name[:21], "gangline/gang": name[:21], "batch.kubernetes.io/job-name": name[:21]}
    variables = [{"name": f"GANGLINE_VARIABLE_{each}", "value": f"{name}-{each}"} for each in range(40)]
    fields = {f"f:field-{each}": {".": {}, "f:name": {}} for each in range(60)}
    times = {"lastProbeTime": None, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "metadata": {
            "name": name,
            "namespace": "gangs",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(version),
            "labels": labels,
            "annotations": {"batch.kubernetes.io/job-completion-index": str(number % 256)},
            "managedFields": [{"manager": "kubelet", "fieldsV1": fields}, {"manager": "kube", "fieldsV1": fields}],
        },
        "spec": {
            "nodeName": f"server-{number // 8:04}",
            "containers": [
                {
                    "name": "node",
                    "image": f"registry.example.com/gangline@sha256:{'0' * 64}",
                    "env": variables,
                    "resources": {"limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}},
                    "volumeMounts": [{"name": f"v{each}", "mountPath": f"/v{each}"} for each in range(5)],
                }
            ],
            "volumes": [{"name": f"v{each}", "emptyDir": {"sizeLimit": "1Gi"}} for each in range(5)],
            "tolerations": [{"key": f"node.kubernetes.io/{each}", "effect": "NoExecute"} for each in "ab"],
        },
        "status": {
            "phase": "Running",
            "podIP": f"10.{number // 65536}.{number // 256 % 256}.{number % 256}",
            "conditions": [{"type": each, "status": "True", **times} for each in kinds],
            "containerStatuses": [
                {
                    "name": "node",
                    "ready": True,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                    "image": "gangline",
                    "imageID": "gangline",
                    "restartCount": 0,
                }
            ],
        },
    }


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if query.get("watch") == "true":
            self._watch()
            return
        start, limit = int(query.get("continue", "0")), int(query.get("limit", str(NUM_PODS)))
        about = {"resourceVersion": str(NUM_PODS)}
        if start + limit < NUM_PODS:
            about["continue"] = str(start + limit)
        items = [pod(number, number) for number in range(start, min(start + limit, NUM_PODS))]
        data = json.dumps({"kind": "PodList", "metadata": about, "items": items}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _watch(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(NUM_PODS):
            line = json.dumps({"type": "MODIFIED", "object": pod(number, NUM_PODS + 1 + number)}).encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()
        time.sleep(PATIENCE_SECONDS)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  name of the library
        """The table is what is printed."""


def watch(config: str) -> None:
    """The watching process: prints what it measured, as JSON."""
    from gangline.launch.kubernetes.client.client import connect
    from gangline.launch.kubernetes.client.informer import Informer, trim_pod

    client = connect({"KUBECONFIG": config})
    start, began = resident(), time.perf_counter()
    with Informer(client, PATH, keep=trim_pod) as informer:
        assert informer.is_listed.wait(PATIENCE_SECONDS)
        listed, listed_seconds = resident(), time.perf_counter() - began
        while min(int(each["metadata"]["resourceVersion"]) for each in informer.objects()) <= NUM_PODS:
            assert time.perf_counter() - began < PATIENCE_SECONDS
            time.sleep(0.2)
        result = {
            "pods": len(informer.objects()),
            "start_bytes": start,
            "listed_bytes": listed,
            "watched_bytes": resident(),
            "most_bytes": resident("VmHWM"),
            "list_seconds": round(listed_seconds, 2),
            "watch_seconds": round(time.perf_counter() - began - listed_seconds, 2),
        }
    print(json.dumps(result))


def list_typed(config: str) -> None:
    """The same list as the package's own objects, page by page, all of them kept."""
    from kubernetes import client
    from kubernetes.config import new_client_from_config

    api = client.CoreV1Api(new_client_from_config(config))
    start, began, pods, token = resident(), time.perf_counter(), [], None
    while True:
        page = api.list_namespaced_pod("gangs", limit=500, _continue=token)
        pods += page.items
        token = page.metadata._continue  # noqa: SLF001  name of the library
        if not token:
            break
    result = {
        "pods": len(pods),
        "start_bytes": start,
        "listed_bytes": resident(),
        "most_bytes": resident("VmHWM"),
        "list_seconds": round(time.perf_counter() - began, 2),
    }
    print(json.dumps(result))


def resident(field: str = "VmRSS") -> int:
    found = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(found.split()[1]) * 1024


def main() -> int:
    front = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    front.daemon_threads = True
    threading.Thread(target=front.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        config = kubeconfig(Path(folder) / "config", f"http://127.0.0.1:{front.server_port}")
        command = [sys.executable, __file__, *sys.argv[1:], str(config)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS)
    result = json.loads(done.stdout)
    result["sent_bytes_per_pod"] = len(json.dumps(pod(1, 1)))
    result["most_to_start_ratio"] = round(result["most_bytes"] / result["start_bytes"], 2)
    print(json.dumps(result, indent=1))
    folder_of_results = Path(".gangline/benchmarks")
    folder_of_results.mkdir(parents=True, exist_ok=True)
    (folder_of_results / "watched_pods.json").write_text(json.dumps(result) + "\n")
    return 0 if result["most_bytes"] <= BOUND_BYTES else 1


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[-1] != "--typed":
        (list_typed if "--typed" in sys.argv else watch)(sys.argv[-1])
    else:
        sys.exit(main())
