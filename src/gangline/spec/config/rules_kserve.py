"""Rules of `[kserve]` in `site.toml`."""

import re
from collections.abc import Iterator

from gangline.spec.config import grammar
from gangline.spec.config.infer_table import KserveTable
from gangline.spec.config.problems import ConfigProblem, at_least, show

_RESOURCE = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?([munkMGTPE]|[KMGTPE]i)?")


def kserve_rules(kserve: KserveTable, *, gangs: str | None) -> Iterator[ConfigProblem]:
    """Problems of `[kserve]`; `gangs` is the namespace of gangs."""
    for key, value in (("namespace", kserve.namespace), ("secret", kserve.secret)):
        if value is not None and not grammar.LABEL.fullmatch(value):
            yield ConfigProblem(f"kserve.{key}", "a name of [a-z0-9-], at most 63 long", show(value))
    if kserve.namespace is not None and kserve.namespace == gangs:
        wanted = "another namespace than launch.namespace, for ranks run code of every branch"
        yield ConfigProblem("kserve.namespace", wanted, show(kserve.namespace), '"serving" works')
    if kserve.image is not None and not grammar.IMAGE.fullmatch(kserve.image):
        yield ConfigProblem("kserve.image", "an image with @sha256:", show(kserve.image), "IMAGE@sha256:DIGEST works")
    for name, quantity in kserve.resources.items():
        if not _RESOURCE.fullmatch(name):
            yield ConfigProblem("kserve.resources", "names of resources", show(name), '"nvidia.com/gpu" works')
        if not _QUANTITY.fullmatch(quantity):
            wanted = "a quantity of Kubernetes"
            yield ConfigProblem(f"kserve.resources.{name}", wanted, show(quantity), '"1", "500m" and "4Gi" work')
    least = 0 if kserve.mode == "Knative" else 1
    yield from at_least("kserve.min_replicas", kserve.min_replicas, least)
    yield from at_least("kserve.max_replicas", kserve.max_replicas, max(kserve.min_replicas, 1))
