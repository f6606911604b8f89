"""Sandbox policy: which engine the model code of a commit gets on this machine, and what it sees."""

from dataclasses import dataclass
from pathlib import Path

from gangline.errors import ConfigError, IntegrityError
from gangline.launch.sandbox.engines import WHAT_WORKS, SandboxCommand, SandboxEngine, SandboxProgram, Unconfined
from gangline.launch.sandbox.environment import model_environ, passed_on
from gangline.launch.sandbox.host_paths import hidden_paths, is_reachable, make_own, python_paths, system_paths
from gangline.launch.sandbox.view import TMP, SandboxView
from gangline.spec.record import Trust


@dataclass(frozen=True, kw_only=True, slots=True)
class Sandbox:
    """Engine and rules for the model code of one commit."""

    engine: SandboxEngine
    trust: Trust
    """A fork's commit gets the closed view, and does not run without an engine."""
    required: bool = False
    """Own commits do not run without an engine, either."""
    hidden: tuple[Path, ...] = ()
    """Paths to hide in addition to those of every machine: of this site, repository and user."""
    shown: tuple[Path, ...] = ()
    """Paths that own commits may read."""
    home: Path | None = None
    """Home folder of own commits, kept between runs; None: each gang has its own, deleted with it."""

    @property
    def is_unconfined(self) -> bool:
        """Whether there is no engine, so that model code runs as this user."""
        return isinstance(self.engine, Unconfined)

    @property
    def is_own(self) -> bool:
        """Whether the commit is the repository's own, not a fork's."""
        return self.trust == "own"

    def require(self) -> None:
        """Raises `IntegrityError` if code of this commit requires an engine and there is none."""
        if self.is_unconfined and (self.required or not self.is_own):
            whose = "an own commit, as sandbox.mode = required demands" if self.is_own else "a fork's commit"
            raise IntegrityError(
                f"wanted a sandbox for the model code of {whose}, found {self.engine.text}; {WHAT_WORKS}"
            )

    def require_python(self, python: str | None) -> None:
        """Raises `ConfigError` if the user of model code cannot enter the commit's Python environment."""
        if python and self.engine.uid is not None and not self.engine.hides and not is_reachable(Path(python).parent):
            raise ConfigError(
                f"wanted an environment that uid {self.engine.uid} may enter, found {Path(python).parent.parent} closed"
                f" to others; {WHAT_WORKS}, or GANGLINE_CACHE names a folder that others may enter"
            )

    @property
    def warning(self) -> str:
        """Warning before the code of an own commit runs; empty: none."""
        if not self.is_unconfined:
            return ""
        gaps = f"{self.engine.gaps}, keys included; commits of forks are refused"
        return f"sandbox: {self.engine.text}; {gaps}; {WHAT_WORKS}"

    def view(
        self, *, tmp: Path, write: tuple[Path, ...], read: tuple[Path, ...] = (), hidden: tuple[Path, ...] = (),
        empty: tuple[Path, ...] = (),
    ) -> SandboxView:  # fmt: skip
        """View of this commit's code, with the additional paths of a gang or module."""
        away = (*hidden_paths(), *self.hidden, *hidden)
        given = (*python_paths(away), *system_paths(), *(self.shown if self.is_own else ()), *read)
        return SandboxView(
            wide=self.is_own, network=self.is_own, tmp=tmp, read=given, write=write, hidden=away, empty=empty
        )

    def make_home(self, own: Path) -> Path:
        """Create the home of model code: the one that is kept, or else `own`."""
        if self.home is not None:
            close(self.home.parent, self.engine)
            self.home.parent.touch()  # its last use
        home = make_own(self.home or own, self.engine.uid)
        home.chmod(0o700)
        return home

    def environ(self, *, home: Path, tmp: Path) -> dict[str, str]:
        """Environment of model code with these folders; `tmp` is its `/tmp`, where it has a `/tmp` of its own."""
        if self.is_unconfined:
            return passed_on() | {"TMPDIR": str(tmp)}
        return model_environ(home=home, tmp=TMP if self.engine.hides else tmp)

    def command(self, program: SandboxProgram, view: SandboxView) -> SandboxCommand:
        """How the engine starts `program`."""
        return self.engine.command(program, view)


def close(folder: Path, engine: SandboxEngine) -> None:
    """Create `folder` closed to other sandboxes, which may run as the same user."""
    folder.mkdir(parents=True, exist_ok=True)
    if engine.uid is not None:
        folder.chmod(0o700 if engine.hides else 0o711)
