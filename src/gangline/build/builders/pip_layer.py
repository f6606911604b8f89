"""pip and our own OCI writer: the locked wheels as one layer on the base, pushed over the registry's API."""

import csv
import io
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from gangline.build.builders.recipe import HOME, USER, Recipe, package_members
from gangline.build.builders.workspace import BuildWorkspace
from gangline.build.image_registry.repository import ImageRepository
from gangline.build.oci import Image, ImageLayout, LayerMember, Settings, members_of_folder
from gangline.errors import BuildError, ConfigError

PYTHON_LABEL = "io.gangline.python"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


class PipLayer:
    """Builds without a daemon: pip installs into a folder, which becomes a layer over the base image."""

    name = "layer"

    def build(self, recipe: Recipe, workspace: BuildWorkspace) -> str:
        registry = ImageRepository.open(recipe.base, workspace.environ, named_by_site=recipe.is_of_site(recipe.base))
        _, base = registry.image(recipe.base, recipe.platform)
        python = base_python(base, str(recipe.base))
        site = workspace.folder / "site"
        lock = workspace.folder / "requirements.lock"
        lock.write_bytes(recipe.lock)
        workspace.run(pip_command(str(lock), str(site)))
        _normalize_files(site)
        layout = ImageLayout.create(workspace.folder / "image")
        layer = layout.add_layer(members(site, python), compress=True)
        image = layout.add_image([layer], base=base, settings=settings(base))
        target = ImageRepository.open(recipe.image, workspace.environ, named_by_site=True)
        target.push(layout, image, tag=recipe.tag, base=registry)
        return image.digest


def pip_command(lock: str, site: str) -> list[str]:
    """Installs the locked wheels of `lock` into the folder `site`."""
    return [
        sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-cache-dir",
        "--no-compile", "--no-deps", "--require-hashes", "--only-binary=:all:", "--progress-bar", "off", "--target",
        site, "--requirement", lock,
    ]  # fmt: skip


def base_python(base: Image, name: str) -> str:
    """Absolute path of the base's Python, which is of this minor version.

    Raises:
        ConfigError: The base does not say, or it is of another version.
    """
    labels = base.config.get("config", {}).get("Labels") or {}
    version = base.env.get("PYTHON_VERSION", "")
    label = labels.get(PYTHON_LABEL) or (f"/usr/local/bin/python{'.'.join(version.split('.')[:2])}" if version else "")
    if not label:
        raise ConfigError(
            f"registry.base {name} has no label of its Python; give it the label {PYTHON_LABEL}=/usr/bin/python{MINOR}"
        )
    if not label.startswith("/") or not label.endswith(f"/python{MINOR}"):
        raise ConfigError(
            f"registry.base {name} has {label}, and this driver is Python {MINOR}; take a base with that one"
        )
    return str(label)


def members(site: Path, python: str) -> Iterator[LayerMember]:
    """A virtual environment below `HOME`: link, marker, the wheels, gangline."""
    packages = f"{HOME}/lib/python{MINOR}/site-packages"
    for folder in (HOME, f"{HOME}/bin", f"{HOME}/lib", f"{HOME}/lib/python{MINOR}"):
        yield LayerMember(folder, folder=True, mode=0o755)
    for name in ("python", "python3"):
        yield LayerMember(f"{HOME}/bin/{name}", link=python)
    marker = f"home = {python.rpartition('/')[0]}\ninclude-system-site-packages = true\nversion = {MINOR}\n"
    yield LayerMember(f"{HOME}/pyvenv.cfg", data=marker.encode())
    yield from members_of_folder(site, at=packages)
    yield from package_members(f"{packages}/gangline")


def settings(base: Image) -> Settings:
    """Environment and user of an image over `base`."""
    env = {"PATH": f"/{HOME}/bin:{base.env.get('PATH', _PATH)}", "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1",
           "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    return Settings(env=env, user=USER, workdir="/")


def _normalize_files(site: Path) -> None:
    """Make what pip laid out the same on every machine: no scripts, which name this machine's Python, open modes."""
    site.mkdir(exist_ok=True)
    if (site / "gangline").exists():
        raise BuildError("env.lock installs a gangline of its own; leave it out, the driver's goes into the image")
    if (site / "bin").exists():
        shutil.rmtree(site / "bin")
    for record in site.glob("*.dist-info/RECORD"):
        record.write_text(_without_scripts(record.read_text()))
    for path in (site, *site.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)


def _without_scripts(record: str) -> str:
    out = io.StringIO()
    rows = [row for row in csv.reader(io.StringIO(record)) if row and not row[0].startswith(("../../bin/", "bin/"))]
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()
