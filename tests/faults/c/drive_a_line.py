"""`python drive_a_line.py FOLDER`: one commit through the whole line, every durable effect counted."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from tests.faults.instruments.crash_points import Counting, CountingStore, CrashPlan  # noqa: E402
from tests.line.repositories import make_repository, settle_inventory  # noqa: E402

from gangline.launch import local  # noqa: E402  # the tests' own packages are found first
from gangline.launch.local import LocalLauncher  # noqa: E402
from gangline.line.run import lease  # noqa: E402
from gangline.line.stages.run_line import run_line  # noqa: E402
from gangline.spec.config.site import Site  # noqa: E402
from gangline.storage import site_paths  # noqa: E402


def prepare(folder: Path) -> Path:
    """The repository, on a machine that every driver of it sees alike."""
    repo = folder / "repo"
    if not repo.exists():
        make_repository(repo)
        settle_inventory(repo)
    return repo


def main(folder: Path) -> None:
    repo = prepare(folder)
    plan = CrashPlan.from_environment()

    open_store = site_paths.open_site_store

    def open_counted(*arguments):
        return CountingStore(open_store(*arguments), plan)

    def launch_counted(root, **options):
        launcher = LocalLauncher(root, **options)
        return Counting(launcher, plan, submit=lambda podset: podset.name, cancel=lambda name, **_: name)

    lease.LEASE_SECONDS, lease.RENEW_SECONDS = 7200.0, 3600.0  # a renewal is an effect that only slow machines have
    site_paths.open_site_store = open_counted
    local.LocalLauncher = launch_counted
    environ = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    run_line(repo, site=Site(), environ=environ)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
