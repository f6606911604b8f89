"""What a lock installs, as a bill of materials beside the image: names, versions and the hashes that were demanded."""

import platform as machine
import re
import sys
from collections.abc import Iterator

from gangline.errors import ConfigError
from gangline.line.build.oci.documents import Platform
from gangline.line.build.recipe import Recipe, logical_lines
from gangline.line.registry.sbom import Package, render_bill

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def image_bill(recipe: Recipe, *, image: str, created: str) -> bytes:
    """CycloneDX of the image by digest, as JSON."""
    packages = locked(recipe.lock.decode(), recipe.platform)
    return render_bill(
        name=recipe.image.name, version=image, kind="container", serial=recipe.key, created=created, packages=packages
    ).encode()


def locked(text: str, platform: Platform) -> tuple[Package, ...]:
    """What `text` installs on `platform` under this minor version of Python, sorted."""
    return tuple(sorted(_locked(text, platform)))


def _locked(text: str, platform: Platform) -> Iterator[Package]:
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ImportError as error:
        raise ConfigError(f"images need packaging, {error}; pip install packaging") from error
    environment = {
        "os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "implementation_name": "cpython",
        "platform_python_implementation": "CPython", "python_full_version": machine.python_version(),
        "python_version": f"{sys.version_info.major}.{sys.version_info.minor}",
        "platform_machine": _MACHINES.get(platform.architecture, platform.architecture),
    }  # fmt: skip
    for line in logical_lines(text):
        try:
            wanted = Requirement(line.partition(" --hash")[0])
        except InvalidRequirement as error:
            raise ConfigError(f"env.lock: {line[:80]!r} is no requirement: {error}") from error
        if wanted.marker is None or wanted.marker.evaluate(environment):
            version = str(wanted.specifier).removeprefix("==")
            yield Package(name=wanted.name.lower(), version=version, sha256=tuple(sorted(_HASH.findall(line))))
