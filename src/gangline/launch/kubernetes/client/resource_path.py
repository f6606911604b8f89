"""Paths of the API server, parsed: resource, namespace, name, subresource."""

from dataclasses import dataclass
from urllib.parse import unquote


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourcePath:
    """What a path points at; all empty but `path` where it is no resource, as `/version`."""

    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        """As rights name it: `pods`, `pods/log`, `jobs.batch`; the path itself where it is no resource."""
        if not self.plural:
            return self.path
        grouped = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{grouped}/{self.subresource}" if self.subresource else grouped

    @property
    def served(self) -> str:
        """As `Facts.served` names it: `batch/v1/jobs`, core ones `v1/pods`."""
        return "/".join(filter(None, (self.group, self.version, self.plural)))

    def __str__(self) -> str:
        """For messages: `jobs.batch run-1 in namespace gangs`."""
        named = f"{self.resource} {self.name}" if self.name else self.resource
        return f"{named} in namespace {self.namespace}" if self.namespace else named


def parse_path(path: str) -> ResourcePath:
    """Take `path` apart, without its query."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return ResourcePath(path=path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, *below = [*rest, "", ""][: max(len(rest), 2)]
    return ResourcePath(
        path=path,
        group=group,
        version=version,
        namespace=namespace,
        plural=plural,
        name=name,
        subresource="/".join(below),
    )
