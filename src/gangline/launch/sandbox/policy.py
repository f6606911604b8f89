"""What the model code of one commit gets on this machine: an engine, and what it sees by whose commit it is of."""

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
    engine: SandboxEngine
    trust: Trust
    """A fork's commit gets the closed view; without an engine it does not run at all."""
    required: bool = False
    """Nor does an own one."""
    hidden: tuple[Path, ...] = ()
    """Further than what every machine hides: of this site, repository and user."""
    shown: tuple[Path, ...] = ()
    """Read-only, to own commits."""
    home: Path | None = None
    """Of own commits, kept from run to run; None: each gang has another one, which goes with it."""

    @property
    def is_open(self) -> bool:
        """There is no engine: model code runs as this user."""
        return isinstance(self.engine, Unconfined)

    @property
    def is_own(self) -> bool:
        return self.trust == "own"

    def demand(self) -> None:
        """Raises IntegrityError where code of this commit does not run without an engine, and there is none."""
        if self.is_open and (self.required or not self.is_own):
            whose = "an own commit, as sandbox.mode = required says" if self.is_own else "a fork's commit"
            raise IntegrityError(
                f"wanted a sandbox for the model code of {whose}, found {self.engine.text}; {WHAT_WORKS}"
            )

    def demand_python(self, python: str | None) -> None:
        """Raises ConfigError where the user that code runs as cannot enter the commit's own environment."""
        if python and self.engine.uid is not None and not self.engine.hides and not is_reachable(Path(python).parent):
            raise ConfigError(
                f"wanted an environment that uid {self.engine.uid} may enter, found {Path(python).parent.parent} closed"
                f" to others; {WHAT_WORKS}, or GANGLINE_CACHE names a folder that others may enter"
            )

    @property
    def warning(self) -> str:
        """What a person has to know before the code of an own commit runs; empty: nothing."""
        if not self.is_open:
            return ""
        gaps = f"{self.engine.gaps}, keys included; commits of forks are refused"
        return f"sandbox: {self.engine.text}; {gaps}; {WHAT_WORKS}"

    def view(
        self, *, tmp: Path, write: tuple[Path, ...], read: tuple[Path, ...] = (), hidden: tuple[Path, ...] = (),
        empty: tuple[Path, ...] = (),
    ) -> SandboxView:  # fmt: skip
        """The view of this commit's code, with what a gang or child is given further."""
        away = (*hidden_paths(), *self.hidden, *hidden)
        given = (*python_paths(away), *system_paths(), *(self.shown if self.is_own else ()), *read)
        return SandboxView(
            wide=self.is_own, network=self.is_own, tmp=tmp, read=given, hidden=away, empty=empty,
            write=(*write, *((self.home,) if self.home else ())),
        )  # fmt: skip

    def environ(self, folder: Path) -> dict[str, str]:
        """Of model code that may write in `folder`, whose `tmp` is its `/tmp`."""
        if self.is_open:
            return passed_on() | {"TMPDIR": str(folder / "tmp")}
        if self.home is not None:
            close(self.home.parent, self.engine)
        home = make_own(self.home or folder / "home", self.engine.uid)
        return model_environ(home=home, tmp=TMP if self.engine.hides else folder / "tmp")

    def command(self, program: SandboxProgram, view: SandboxView) -> SandboxCommand:
        return self.engine.command(program, view)


def close(folder: Path, engine: SandboxEngine) -> None:
    """Keep other sandboxes out of `folder`, where they run as the same other user; made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    if engine.uid is not None:
        folder.chmod(0o700 if engine.hides else 0o711)
