"""Paths of this machine that sandboxes show or hide, and the ownership of folders that model code writes.

The system, the Python environment and devices are shown; homes and secrets are hidden. Folders that model code writes
belong to its user. Changes of owner never follow links.
"""

import os
import pwd
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import gangline
from gangline.errors import IntegrityError
from gangline.launch.sandbox.environment import passed_on
from gangline.launch.sandbox.view import holds_any, is_there, temporary_folders
from gangline.spec.python_environment import require_manifest


def give(folder: Path, uid: int | None) -> None:
    """Change the owner of `folder` and its content to `uid`, user and group; None: no change.

    A file with a second name keeps its owner: the other name may be in a folder that was never meant.
    """
    if uid is None:
        return
    os.chown(folder, uid, uid, follow_symlinks=False)
    for _, folders, files, here in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):  # another gang of this run deletes meanwhile
                _give_one(name, uid, here)


def _give_one(name: str, uid: int, folder: int) -> None:
    """Change the owner of what lies under this name, which stays the same thing while it is looked at."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1):
            os.chown(f"/proc/self/fd/{handle}", uid, uid)
    finally:
        os.close(handle)


def make_own(folder: Path, uid: int | None) -> Path:
    """Create `folder` if missing and change its owner, without its content, to `uid`.

    Raises:
        IntegrityError: A link is in its place.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        raise IntegrityError(f"wanted the folder {folder}, found a link to {folder.readlink()}; delete it")
    if uid is not None:
        os.chown(folder, uid, uid, follow_symlinks=False)
    return folder


def is_readable(path: Path) -> bool:
    """Whether any user may read the file, or the folder with all its content."""
    if not path.is_dir():
        return bool(path.stat().st_mode & 0o004)
    return path.stat().st_mode & 0o005 == 0o005 and all(map(is_readable, path.iterdir()))


def is_reachable(folder: Path) -> bool:
    """Whether any user may enter `folder`, or its nearest parent that exists."""
    try:
        return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents) if path.exists())
    except OSError:
        return False


_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys", "/nix/store", "/gnu/store")
_SETTINGS = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "nsswitch.conf", "hosts", "host.conf", "hostname",
    "resolv.conf", "gai.conf", "protocols", "services", "localtime", "timezone", "locale.alias", "locale.conf",
    "os-release", "alternatives", "ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "pki/ca-trust", "pki/tls/certs",
    "pki/tls/cert.pem", "ca-certificates", "ca-certificates.conf", "crypto-policies", "mime.types", "magic", "fonts",
    "OpenCL", "vulkan", "nvidia", "libnl", "numa.conf",
)  # fmt: skip
"""Files in /etc that programs read and that hold no secrets."""
_SECRET_SETTINGS = (
    "shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "ssh", "ssl/private", "pki/tls/private",
    "environment", "profile.d", "default", "gangline", "kubernetes", "rancher", "docker", "krb5.keytab", "wireguard",
    "NetworkManager", "gitconfig", "netrc", "pip.conf", "apt/auth.conf", "apt/auth.conf.d", "fstab", "credstore",
)  # fmt: skip
"""Files in /etc that are hidden even if the rest is shown; some are readable for all users."""
_HIDDEN = ("/root", "/home", "/run", "/var/run", "/var/lib/kubelet", "/var/spool", "/var/mail", "/var/backups")
_HIDDEN_NAMES = ("/var/lib/gangline*", "/srv/gangline*")
_SHARED = ("/data", "/media", "/mnt", "/opt", "/srv", "/usr/bin", "/usr/local", "/usr/local/bin", "/usr/local/etc",
           "/usr/share")  # fmt: skip
"""Folders of which programs need more than what a secret file in them is worth."""
_MOST_NAMES = 200
_LIBRARIES = ("/opt/cuda*", "/opt/nvidia*", "/opt/rocm*", "/run/opengl-driver", "/run/nvidia*/driver")
_DEVICES = ("nvidia*", "nvidia-caps", "dri", "kfd", "infiniband", "gdrdrv")
_PREFIX = ("bin", "lib", "lib64", "libexec", "include", "share", "etc", "ssl", "pyvenv.cfg", "targets")
"""Entries of a Python prefix to show if the folder also holds hidden paths."""


def hidden_paths() -> tuple[Path, ...]:
    """Homes and secrets of the machine, and the home of the current user."""
    paths = [Path(each) for each in _HIDDEN]
    paths += [Path("/etc", each) for each in _SECRET_SETTINGS]
    paths += [path for name in _HIDDEN_NAMES for path in Path("/").glob(name.lstrip("/"))]
    paths += home_paths(passed_on().get("HOME", ""))
    with suppress(KeyError):  # a container's user may have a number alone
        paths += home_paths(pwd.getpwuid(os.getuid()).pw_dir)
    return tuple(paths)


def home_paths(home: str) -> list[Path]:
    """A home folder; if it is a folder of the system, as for daemons, only its dot files."""
    folder = Path(home)
    if not folder.is_absolute() or not is_there(folder):
        return []
    if _holds_system(folder):
        return sorted(folder.glob(".[!.]*"))
    return [folder]


def covers_of(secret: Path) -> Iterator[Path]:
    """Folders that hide a secret file even if another file takes its name while model code runs.

    They are the folder of the file and that of each link on the way to it: those of a Kubernetes volume are pointed
    elsewhere. In a folder that much of the machine shares the file alone is hidden; a secret folder covers itself.
    """
    if any(secret.is_relative_to(each) for each in ("/dev", "/proc")):  # a descriptor of this process
        yield secret
        return
    *links, last = _names_on_the_way(secret)
    yield from (name.parent for name in links if not _is_shared(name.parent))
    yield last if os.path.isdir(last) or _is_shared(last.parent) else last.parent  # noqa: PTH112  # as below


def _names_on_the_way(path: Path) -> Iterator[Path]:
    """What is looked up when `path` is opened: every link, and at last what is no link."""
    here, left = Path("/"), [*path.absolute().parts[1:]]
    for _ in range(_MOST_NAMES):
        if not left:
            break
        name = here / left.pop(0)
        if name.name == "..":
            here = here.parent
        elif os.path.islink(name):  # noqa: PTH114  # False, too, where this user may not look
            yield name
            target = name.readlink()
            here, left = (Path("/") if target.is_absolute() else here), [*target.parts[target.is_absolute() :], *left]
        else:
            here = name
    yield here


def _is_shared(folder: Path) -> bool:
    return str(folder) in _SHARED or _holds_system(folder)


def _holds_system(folder: Path) -> bool:
    return holds_any(folder, [Path(each) for each in (*_PROGRAMS, "/etc", "/dev", "/proc", "/var/lib")])


def system_paths() -> tuple[Path, ...]:
    """Folders of the system and of accelerator libraries, and the pipes of CUDA MPS."""
    paths = [Path(each) for each in _PROGRAMS] + [Path("/etc", each) for each in _SETTINGS]
    paths.append(Path(passed_on().get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")))  # noqa: S108  # CUDA's default
    paths += [path for name in _LIBRARIES for path in sorted(Path("/").glob(name.lstrip("/")))]
    return tuple(paths)


def python_paths(hidden: Sequence[Path]) -> tuple[Path, ...]:
    """Python environment of this interpreter, and gangline; only Python's entries of a folder with hidden paths."""
    found = [Path(each) for each in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)]
    found += [hop.parent for hop in _hops(Path(sys.executable))]
    paths = [path for prefix in found for path in _of_prefix(prefix, hidden)]
    paths += [Path(each) for each in sys.path if _is_packages(Path(each), hidden)]
    libraries = passed_on().get("LD_LIBRARY_PATH", "").split(":")
    paths += [Path(library) for library in libraries if _is_packages(Path(library), hidden)]
    return (*dict.fromkeys(paths), Path(str(gangline.__file__)).parent.parent)


def interpreter_paths(python: str, *, of_site: bool = False) -> tuple[Path, ...]:
    """The Python environment of a commit, and the installation of Python that gangline chose for it.

    An environment `of_site` was made by its administrator: its own link to Python is followed.

    The manifest names that installation: packages of the commit may write whatever is in the environment. Of an
    installation in a hidden folder only Python's entries are shown.

    Raises:
        ConfigError: The environment has no manifest.
    """
    prefix, hidden = Path(python).parent.parent, hidden_paths()
    base = Path(python) if of_site else Path(require_manifest(prefix).base)
    installation = (base.resolve() if of_site else base).parent.parent
    is_hidden = any(installation.is_relative_to(path) for path in hidden)
    bases = [installation / name for name in _PREFIX] if is_hidden else _of_prefix(installation, hidden)
    return (*dict.fromkeys([prefix, *(hop.parent for hop in _hops(base)), *bases]),)


def devices() -> list[Path]:
    """Device files of accelerators and their network."""
    return [path for name in _DEVICES for path in sorted(Path("/dev").glob(name))]


def _of_prefix(prefix: Path, hidden: Sequence[Path]) -> list[Path]:
    return [prefix / name for name in _PREFIX] if holds_any(prefix, hidden) else [prefix]


def _is_packages(path: Path, hidden: Sequence[Path]) -> bool:
    """Whether an entry of `sys.path` holds packages; not the current folder or that of the script."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    by_chance = {Path.cwd(), Path(main).parent.absolute()} if main else {Path.cwd()}
    return path.is_absolute() and path not in by_chance and not holds_any(path, (*hidden, *temporary_folders()))


def _hops(link: Path) -> Iterator[Path]:
    """A program and every link to it."""
    for _ in range(8):
        yield link
        if not link.is_symlink():
            return
        link = link.parent / link.readlink()
