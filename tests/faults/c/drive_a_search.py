"""`python drive_a_search.py FOLDER`: one search over functions as trials, every durable effect counted."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from tests.faults.instruments.crash_points import CountingStore, CrashPlan  # noqa: E402
from tests.search.functions import PREFIX, FunctionRuns, make_driver, make_request  # noqa: E402

from gangline.line.run import lease  # noqa: E402
from gangline.spec.search import SearchAnswer  # noqa: E402
from gangline.storage.folder.store import FolderStore  # noqa: E402


class StoredRuns(FunctionRuns):
    """Runs that lie in files, as gangs go on without the search; beginning and stopping one are effects."""

    folder: Path
    plan: CrashPlan

    def begin(self, run, settings):
        with self.plan.effect("begin", run):
            with (self.folder / "begun").open("a") as begun:
                begun.write(f"{run}\n")
            super().begin(run, settings)
            self._keep(run)

    def cancel(self, run, reason):
        before = self.runs.get(run, {}).get("cancelled")
        super().cancel(run, reason)
        if run in self.runs and self.runs[run]["cancelled"] != before:
            with self.plan.effect("cancel", run):
                self._keep(run)

    def _keep(self, run):
        (self.folder / f"{run}.json").write_text(json.dumps(self.runs[run]))


def main(folder: Path) -> None:
    lease.LEASE_SECONDS, lease.RENEW_SECONDS = 7200.0, 3600.0  # a renewal is an effect that only slow machines have
    plan = CrashPlan.from_environment()
    seed = int((folder.parent / "seed").read_text())
    store, request = CountingStore(FolderStore(folder / "store"), plan), make_request(seed=seed)
    place = folder / "runs"
    place.mkdir(exist_ok=True)
    runs = StoredRuns(request, runs={each.stem: json.loads(each.read_text()) for each in place.glob("*.json")})
    runs.folder, runs.plan = place, plan

    def confirm(view):
        best = view.trials[view.best]
        answer = SearchAnswer(
            trial=best.number, settings=best.settings, verdict="SAME", metric="m", winner=best.values[0]
        )
        store.put(f"{PREFIX}/answer.json", answer.to_json())
        return answer

    make_driver(store, request, runs, trials=6).run(confirm)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
