"""Origin of the files of a Python program: code of the commit, packages with versions, standard library, elsewhere."""

import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping

_MOST_RECORD_BYTES = 8 << 20
_SYSTEM = (
    "/proc", "/sys", "/dev", "/etc", "/run", "/bin", "/lib", "/lib64", "/usr/bin", "/usr/lib", "/usr/lib64",
    "/usr/share", "/usr/local/cuda", "/usr/local/lib", "/usr/local/share", "/opt/nvidia", "/nix/store",
)  # fmt: skip
_CACHES = (
    ".cache/fontconfig", ".cache/jax", ".cache/keras/backend", ".cache/matplotlib", ".cache/mesa_shader_cache",
    ".cache/nvidia", ".cache/pip", ".cache/torch/kernels", ".cache/torch_extensions", ".cache/torch/inductor",
    ".cache/triton", ".cache/uv", ".config/matplotlib", ".keras/keras.json", ".matplotlib", ".nv", ".triton",
)  # fmt: skip
"""Paths below the home of files that frameworks build. Files that they download (`.cache/huggingface`) are inputs."""
_KEPT_HOMES = "/.gangline/home/"
"""Part of the path of a home that is kept from run to run."""
_SECRETS = ("GANGLINE_KEY_FILE", "GANGLINE_STORE_CREDENTIALS_FILE")
"""Variables with files in the folder that the launcher gave this gang."""
_PACKAGES = ("site-packages", "dist-packages")


class FileOrigins:
    """Folders by the origin of their files; each ends with a slash."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        home = os.path.expanduser("~")
        self.kept_home = _folders([home] if _KEPT_HOMES in home else [])
        self.code = _folders([environ.get("GANGLINE_LAYER") or environ.get("GANGLINE_CODE")])
        self.gangline = _folders([os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))])
        self.packages = _folders(each for each in sys.path if os.path.basename(each) in _PACKAGES)
        paths = sysconfig.get_paths()
        self.packages += _folders([paths.get("purelib"), paths.get("platlib")])
        self.standard = _folders([paths.get("stdlib"), paths.get("platstdlib"), os.path.dirname(os.__file__)])
        inner = ("bin", "lib", "lib64", "libexec", "share", "include", "etc", "pyvenv.cfg")
        prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
        self.environment = _folders(os.path.join(prefix, each) for prefix in prefixes for each in inner)
        store = environ.get("GANGLINE_STORE", "")
        own = [environ.get("GANGLINE_HOME"), environ.get("GANGLINE_COPIES")]
        own += [os.path.dirname(environ[each]) for each in _SECRETS if environ.get(each)]
        own += [store[len("file:") :]] if store.startswith("file:") else []
        own += [os.path.join(home, each) for each in _CACHES]
        own += [environ.get(each) for each in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "MPLCONFIGDIR")]
        known = (*self.code, *self.gangline, *self.packages, *self.standard, *self.environment)
        self.declared = (*known, *_folders(own), *_folders(_SYSTEM))
        compiled = [environ.get("TORCHINDUCTOR_CACHE_DIR"), environ.get("TRITON_CACHE_DIR")]
        compiled += [os.path.join(home, each) for each in (".triton", ".cache/torch_extensions")]
        self.compiled = _folders(compiled)
        """Folders of modules that torch and Triton compile, in addition to torch's own temporary folders."""
        self.temporary = _folders([environ.get("TMPDIR") or "/tmp"])  # noqa: S108  # nothing is written there

    def origin(self, path: str) -> str:
        """Origin of an absolute path: code, gangline, environment, standard or elsewhere."""
        for name, folders in (
            ("code", self.code), ("gangline", self.gangline), ("environment", self.packages),
            ("standard", self.standard), ("environment", self.environment),
        ):  # fmt: skip
            if path.startswith(folders):
                return name
        return "elsewhere"

    def is_compiled(self, path: str) -> bool:
        """Is that where frameworks put modules that they compile, or write from templates of their own?"""
        inductor = any(path.startswith(f"{each}torchinductor_") for each in self.temporary)
        return inductor or path.startswith(self.compiled) or self._is_of_template(path)

    def _is_of_template(self, path: str) -> bool:
        """A temporary folder that older versions of torch, such as 2.9, make for modules of `torch.distributed.nn`."""
        writer = sys.modules.get("torch.distributed.nn.jit.instantiator")
        folder = vars(writer).get("INSTANTIATED_TEMPLATE_DIR_PATH") if writer is not None else None
        return isinstance(folder, str) and path.startswith(f"{folder}/") and path.startswith(self.temporary)


def versions(imported: Mapping[str, str], folders: Iterable[str]) -> dict[str, tuple[str, str] | None]:
    """(name, version) of the distribution of each module, by its name or else by the files that distributions list.

    Args:
        imported: File of a module by what leads to its distribution: its name, of a namespace `google/protobuf`.
        folders: Of packages, in the order of the path.
    """
    dists: dict[str, tuple[str, str, str]] = {}
    for folder in dict.fromkeys(folders):
        for entry in _listed(folder):
            name, _, version = entry.rpartition(".")[0].partition("-")
            if entry.endswith(".dist-info") and version:
                dists.setdefault(_plain(name), (name, version, folder + entry))
    found: dict[str, tuple[str, str] | None] = {}
    for top in imported:
        by_name = dists.get(_plain(top))
        found[top] = (_package_name(by_name[0]), by_name[1]) if by_name else None
    missing = {top for top, each in found.items() if each is None}
    for name, version, folder in dists.values():
        if not missing:
            break
        text = _read(folder + "/RECORD")
        root = os.path.dirname(folder) + "/"
        for top in [each for each in missing if imported[each].startswith(root)]:
            if f"\n{imported[top][len(root) :]}," in text:
                found[top] = (_package_name(name), version)
                missing.discard(top)
    return found


def _folders(paths: Iterable["str | None"]) -> tuple[str, ...]:
    """Prefixes of absolute paths, with links and with links resolved."""
    found = [os.path.abspath(path) for path in paths if path]
    found += [os.path.realpath(each) for each in found]
    return tuple(dict.fromkeys(each.rstrip("/") + "/" for each in found if each != "/"))


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _read(path: str) -> str:
    try:
        if os.stat(path).st_size > _MOST_RECORD_BYTES:
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return "\n" + file.read()
    except OSError:
        return ""


def _plain(name: str) -> str:
    """Normalized name of a module or a distribution."""
    return _package_name(name).replace("-", "_")


def _package_name(name: str) -> str:
    """Name as package indexes spell it."""
    return name.replace("_", "-").replace(".", "-").lower()
