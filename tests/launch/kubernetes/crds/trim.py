"""Schemas of Trainer, JobSet, Volcano, cut to what we send: `python -m tests.launch.kubernetes.crds.trim` writes them.

They come from the Go module of each release. Kept are the fields that our objects use, and the plain values beside
them; so a field that some release does not know is missing here, and an object that uses it is refused.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import yaml
from tests.launch.kubernetes.gangs import cases, setting, shared_setting

from gangline.launch.kubernetes.objects.manifest import in_order
from gangline.launch.kubernetes.objects.render import render_as
from gangline.launch.kubernetes.objects.root_objects import overriding_trainjob, shared_runtime

FOLDER = Path(__file__).parent / "schemas"
SPELLINGS = {
    "trainer-2.0.0": "podSpecOverrides",
    "trainer-2.1.0": "podTemplateOverrides",
    "trainer-2.2.0": "runtimePatches",
    "trainer-2.3.0": "runtimePatches",
}
"""Release of Trainer to how its TrainJobs say wishes for pods."""
JOBSETS = ("jobset-0.8.2", "jobset-0.10.1", "jobset-0.11.1", "jobset-0.12.0")
"""Those that the releases of Trainer were built with."""
VOLCANOS = ("volcano-1.15.1",)
RELEASES = (*SPELLINGS, *JOBSETS, *VOLCANOS)
_MODULES = {
    "trainer": ("github.com/kubeflow/trainer/v2", "manifests/base/crds"),
    "jobset": ("sigs.k8s.io/jobset", "config/components/crd/bases"),
    "volcano": ("volcano.sh/volcano", "config/crd/volcano/bases"),
}
"""Name of the Go module, and where in it the definitions stand."""
_DROPPED = frozenset({"description", "default", "format", "x-kubernetes-map-type", "x-kubernetes-list-type"})


def sent(release):
    """Objects that a cluster with this release would get, of the kinds that it defines."""
    if release in JOBSETS:
        return [render_as(kind, given).root for kind, given in cases().values() if kind == "jobset"]
    if release in VOLCANOS:
        whole = [each for kind, given in cases().values() for each in in_order(render_as(kind, given))]
        return [each for each in whole if each["kind"] == "PodGroup"]
    found = [shared_runtime(setting(), "gangline")]
    for kind, given in cases().values():
        if kind == "trainjob":
            found += [each for each in in_order(render_as(kind, given)) if "trainer" in each["apiVersion"]]
    if SPELLINGS[release] != "podSpecOverrides":
        found.append(overriding_trainjob(shared_setting(None), "gangline", SPELLINGS[release]))
    return found


def trimmed(release):
    """Kind to schema, cut."""
    schemas = {}
    for path in sorted(_definitions(release).glob("*_*.yaml")):
        crd = yaml.safe_load(path.read_text("utf-8"))
        kind = crd["spec"]["names"]["kind"]
        used = [each for each in sent(release) if each["kind"] == kind]
        if used:
            (version,) = crd["spec"]["versions"]
            schemas[kind] = _cut(version["schema"]["openAPIV3Schema"], used)
    return schemas


def _definitions(release):
    project, version = release.split("-")
    module, below = _MODULES[project]
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            ["go", "mod", "download", "-json", f"{module}@v{version}"],
            cwd=elsewhere, capture_output=True, text=True, check=True,
        )  # fmt: skip
    return Path(json.loads(done.stdout)["Dir"]) / below


def _cut(schema, values):
    """`schema` without the branches that none of `values` takes."""
    found = {name: value for name, value in schema.items() if name not in _DROPPED}
    if "properties" in schema:
        found["properties"] = {
            name: _cut(below, [each[name] for each in values if name in each])
            for name, below in schema["properties"].items()
            if _is_plain(below) or any(name in each for each in values)
        }
    if "items" in schema:
        found["items"] = _cut(schema["items"], [item for each in values for item in each])
    return found


def _is_plain(schema):
    return schema.get("type") not in ("object", "array")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in RELEASES:
        text = json.dumps(trimmed(name), sort_keys=True, separators=(",", ":"))
        (FOLDER / f"{name}.json").write_text(text + "\n", "utf-8")
