"""Bill of materials of the environment a model was made in: CycloneDX 1.6, the same bytes for the same packages."""

import uuid
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import Distribution, distributions
from typing import Any

from gangline.errors import ConfigError


def installed() -> tuple[tuple[str, str, str], ...]:
    """(name, version, licence) of every distribution of this environment, sorted."""
    found = {_normal(dist.metadata["Name"]): dist for dist in distributions() if dist.metadata["Name"]}
    return tuple((name, dist.version, _licence(dist)) for name, dist in sorted(found.items()))


def render_sbom(*, model: str, version: int, run: str, created: str, packages: Iterable[tuple[str, str, str]]) -> str:
    """The bill as JSON. `created` is ISO 8601; the serial number comes from model, version and run."""
    cyclonedx = _library()
    root = cyclonedx["Component"](
        name=model, version=str(version), type=cyclonedx["ComponentType"].MACHINE_LEARNING_MODEL, bom_ref="model"
    )
    bom = cyclonedx["Bom"](serial_number=uuid.uuid5(uuid.NAMESPACE_OID, f"{model}/{version}/{run}"))
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromisoformat(created)
    components = [_component(cyclonedx, *package) for package in packages]
    for component in components:
        bom.components.add(component)
    bom.register_dependency(root, components)
    for component in components:
        bom.register_dependency(component, [])
    text: str = cyclonedx["JsonV1Dot6"](bom).output_as_string(indent=1)
    return text


def _component(cyclonedx: dict[str, Any], name: str, version: str, licence: str) -> Any:
    purl = cyclonedx["PackageURL"](type="pypi", name=name, version=version)
    licences = [cyclonedx["DisjunctiveLicense"](name=licence)] if licence else []
    kind = cyclonedx["ComponentType"].LIBRARY
    return cyclonedx["Component"](
        name=name, version=version, purl=purl, bom_ref=str(purl), licenses=licences, type=kind
    )


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _licence(dist: Distribution) -> str:
    """A short licence name, where the package gives one; whole licence texts are left out."""
    fields = dist.metadata.json
    said = str(fields.get("license_expression") or fields.get("license") or "")
    return said if 0 < len(said) <= 80 and "\n" not in said else ""


def _library() -> dict[str, Any]:
    try:
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.component import Component, ComponentType
        from cyclonedx.model.license import DisjunctiveLicense
        from cyclonedx.output.json import JsonV1Dot6
        from packageurl import PackageURL
    except ImportError as error:
        raise ConfigError(f"publishing needs cyclonedx-python-lib, {error}; pip install 'gangline[publish]'") from error
    names = (Bom, Component, ComponentType, DisjunctiveLicense, JsonV1Dot6, PackageURL)
    return {each.__name__: each for each in names}
