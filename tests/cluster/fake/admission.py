"""Admission policies of the fake server: evaluated as the manifests have them, refused as a real server words it."""

from collections.abc import Iterable
from typing import Any

import yaml
from tests.cluster.fake.kinds import Kind
from tests.cluster.fake.refusal import Refusal

Object = dict[str, Any]


def policies() -> list[Object]:
    """Those of the manifests."""
    from tests.manifests.rendered import RENDERED

    found = yaml.safe_load_all((RENDERED / "base.yaml").read_text("utf-8"))
    return [each for each in found if each["kind"] == "ValidatingAdmissionPolicy"]


def demand_admitted(
    policies: Iterable[Object], kind: Kind, new: Object, before: Object | None, *, denied: set[tuple[str, str]]
) -> None:
    """Raises the refusal of the first policy that refuses.

    Args:
        policies: Bound to every namespace.
        kind: Of the object.
        new: As it would be stored.
        before: As it is stored; None: it is created.
        denied: (verb, resource) that the caller has no right to.
    """
    from tests.oracles.admission import Asked, refusals  # here: most tests have no policies, and do without CEL

    may = tuple(f"{verb} secrets" for verb in ("get", "list") if (verb, "secrets") not in denied)
    for each in policies:
        found = refusals([each], Asked(resource=kind.plural, object=new, old=before, may=may))
        if found:
            name = each["metadata"]["name"]
            why = f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {found[0]}"
            what = f'{kind.plural} "{new["metadata"]["name"]}" is forbidden: {why}'
            raise Refusal(422, "Invalid", what)
