"""Bills of materials of environments and images: CycloneDX 1.6, equal bytes for equal packages."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageMetadata, distributions
from typing import Any

from gangline.errors import NotInstalledError


@dataclass(frozen=True, order=True, slots=True)
class Package:
    """One installed package."""

    name: str
    version: str
    licence: str = ""
    sha256: tuple[str, ...] = ()
    """Files that may be installed; pip takes one of them."""


def installed_packages() -> tuple[tuple[str, str, str], ...]:
    """(name, version, licence) of every distribution of this environment, sorted."""
    fields = [dist.metadata for dist in distributions()]  # parsed at every access
    found = {field["Name"].lower().replace("_", "-").replace(".", "-"): field for field in fields if "Name" in field}
    return tuple((name, found[name]["Version"], _licence(found[name])) for name in sorted(found))


def render_model_sbom(
    *, model: str, version: int, run: str, created: str, packages: Iterable[tuple[str, str, str]]
) -> str:
    """The bill of a model as JSON; its serial number comes from model, version and run."""
    return render_image_sbom(
        name=model, version=str(version), kind="machine-learning-model", serial=f"{model}/{version}/{run}",
        created=created, packages=[Package(name=name, version=of, licence=licence) for name, of, licence in packages],
    )  # fmt: skip


def render_image_sbom(
    *, name: str, version: str, kind: str, serial: str, created: str, packages: Iterable[Package]
) -> str:
    """The bill of `packages` in one thing, as JSON.

    Args:
        name: Of the thing.
        version: Of the thing.
        kind: CycloneDX component type.
        serial: What the bill's serial number is made from.
        created: ISO 8601.
        packages: Of PyPI; sorted in the bill.
    """
    cyclonedx = _library()
    root = cyclonedx["Component"](name=name, version=version, type=cyclonedx["ComponentType"](kind), bom_ref="root")
    bom = cyclonedx["Bom"](serial_number=uuid.uuid5(uuid.NAMESPACE_OID, serial))
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromisoformat(created)
    components = [_component(cyclonedx, package) for package in packages]
    for component in components:
        bom.components.add(component)
    bom.register_dependency(root, components)
    for component in components:
        bom.register_dependency(component, [])
    text: str = cyclonedx["JsonV1Dot6"](bom).output_as_string(indent=1)
    return text


def _component(cyclonedx: dict[str, Any], package: Package) -> Any:
    purl = cyclonedx["PackageURL"](type="pypi", name=package.name, version=package.version)
    licences = [cyclonedx["DisjunctiveLicense"](name=package.licence)] if package.licence else []
    component = cyclonedx["Component"](
        name=package.name, version=package.version, purl=purl, bom_ref=str(purl), licenses=licences,
        type=cyclonedx["ComponentType"].LIBRARY,
    )  # fmt: skip
    for digest in package.sha256:
        component.properties.add(cyclonedx["Property"](name="gangline:accepted-sha256", value=digest))
    return component


def _licence(fields: PackageMetadata) -> str:
    """A short licence name, where the package gives one; whole licence texts are left out."""
    said = next(filter(None, (fields[key] for key in ("License-Expression", "License") if key in fields)), "")
    return said if 0 < len(said) <= 80 and "\n" not in said else ""


def _library() -> dict[str, Any]:
    try:
        from cyclonedx.model import Property
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.component import Component, ComponentType
        from cyclonedx.model.license import DisjunctiveLicense
        from cyclonedx.output.json import JsonV1Dot6
        from packageurl import PackageURL
    except ImportError as error:
        raise NotInstalledError(
            f"publishing needs cyclonedx-python-lib, {error}; pip install 'gangline[publish]'"
        ) from error
    names = (Bom, Component, ComponentType, DisjunctiveLicense, JsonV1Dot6, PackageURL, Property)
    return {name.__name__: name for name in names}
