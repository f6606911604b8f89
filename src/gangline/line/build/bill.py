"""What a lock installs, as a bill of materials beside the image: names, versions and the hashes that were demanded."""

import platform as machine
import sys
from collections.abc import Iterator

from packaging.markers import Marker

from gangline.line.build.oci.documents import Platform
from gangline.line.build.recipe import Recipe
from gangline.line.registry.sbom import Package, render_bill
from gangline.spec.lock import read_lock

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def image_bill(recipe: Recipe, *, image: str, created: str) -> bytes:
    """CycloneDX of the image by digest, as JSON."""
    packages = locked(recipe.lock, recipe.platform)
    return render_bill(
        name=recipe.image.name, version=image, kind="container", serial=recipe.key, created=created, packages=packages
    ).encode()


def locked(lock: bytes, platform: Platform) -> tuple[Package, ...]:
    """What `lock` installs on `platform` under this minor version of Python, sorted."""
    return tuple(sorted(_locked(lock, platform)))


def _locked(lock: bytes, platform: Platform) -> Iterator[Package]:
    environment = {
        "os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "implementation_name": "cpython",
        "platform_python_implementation": "CPython", "python_full_version": machine.python_version(),
        "python_version": f"{sys.version_info.major}.{sys.version_info.minor}",
        "platform_machine": _MACHINES.get(platform.architecture, platform.architecture),
    }  # fmt: skip
    for pin in read_lock(lock, file="env.lock"):
        if pin.marker is None or Marker(pin.marker).evaluate(environment):
            yield Package(name=pin.name, version=pin.version, sha256=tuple(sorted(pin.sha256)))
