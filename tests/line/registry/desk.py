"""A run that passed, as it stands after its gates: repository, store, plan, signed checkpoint, record."""

import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from tests.report.records import passed

from gangline.line.build.code_layer import pack
from gangline.line.git import Repository
from gangline.line.registry.keys import SigningKey, signing_key
from gangline.line.registry.publish import publish
from gangline.spec.line import Line, ProjectTable, TrainTable
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, DataFile, DataSource, Plan, Program
from gangline.spec.record import CommitInfo, Record, run_prefix
from gangline.spec.site import Site
from gangline.storage.blobs import put_blob
from gangline.storage.local import FolderStore

EXAMPLE = Path(__file__).parents[3] / "examples" / "bytegpt" / "model.py"
MODEL = {"layers": 1, "width": 32, "context": 16}


@dataclass
class Desk:
    root: Path
    repo: Path
    store: FolderStore
    environ: dict[str, str]
    site: Site
    line: Line
    record: Record
    checkpoint: str

    @property
    def key(self) -> SigningKey:
        return signing_key(self.site, self.environ)

    def publish(self, record: Record | None = None, *, line: Line | None = None, **arguments):
        record = record or self.record
        wanted = {
            "store": self.store, "record": record, "line": line or self.line, "key": self.key, "repo": self.repo,
            "workdir": self.root / "work" / record.run.id, "checkpoint": self.checkpoint,
        }  # fmt: skip
        return publish(**wanted | arguments)

    def place(self, record: Record) -> Record:
        """Put a record into the store, as the line leaves it."""
        self.store.put(f"{record.prefix}/record.json", record.to_json())
        return record

    def commit(self, subject: str) -> str:
        git(self.repo, "commit", "--quiet", "--allow-empty", "-m", subject)
        return git(self.repo, "rev-parse", "HEAD")


_TEMPLATES: dict[str, tuple[Desk, object]] = {}


def template(factory, name: str) -> tuple[Desk, object]:
    """`passed` or `published`, made once a session whoever asks first; and what `publish` answered."""
    if name not in _TEMPLATES:
        root = factory.mktemp(name) / "root"
        if name == "passed":
            _TEMPLATES[name] = make_desk(root), None
        else:
            desk = copy_of(template(factory, "passed")[0], root)
            _TEMPLATES[name] = desk, desk.publish()
    return _TEMPLATES[name]


def copy_of(desk: Desk, root: Path) -> Desk:
    """The same desk at another place, to be struck."""
    shutil.copytree(desk.root, root)
    environ = {"XDG_CONFIG_HOME": str(root / "config"), "HOME": str(root)}
    return replace(desk, root=root, repo=root / "repo", store=FolderStore(root / "store"), environ=environ)


def git(folder: Path, *arguments: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True, env=clean
    )
    return done.stdout.strip()


def make_desk(root: Path) -> Desk:
    repo = root / "repo"
    repo.mkdir(parents=True)
    shutil.copy(EXAMPLE, repo / "model.py")
    git(repo, "init", "--quiet")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "-m", "first")
    environ = {"XDG_CONFIG_HOME": str(root / "config"), "HOME": str(root)}
    store, site = FolderStore(root / "store"), Site()
    line = Line(
        project=ProjectTable(name="bytegpt", task="model:ByteGPT"),
        train=TrainTable(steps=2, global_batch=4),
        model=MODEL,
    )
    record = _record(repo, store, line)
    checkpoint = _save(store, record, signing_key(site, environ).checkpoint_key("bytegpt"))
    desk = Desk(root, repo, store, environ, site, line, record, checkpoint)
    desk.place(record)
    return desk


def _record(repo: Path, store: FolderStore, line: Line) -> Record:
    sha = git(repo, "rev-parse", "HEAD")
    old, run = passed(), f"bytegpt-{sha[:8]}-aaaaaa"
    repository = Repository.at(repo)
    code = put_blob(store, pack(repository, repository.tree(sha), line.project).data)
    text = b"every byte of this text is held out or trained on " * 20
    plan = Plan(
        run=run, project="bytegpt", name="none", run_prefix=run_prefix("bytegpt", sha, run),
        program=Program(task=line.project.task), strategy="none", mesh=Mesh(), model=MODEL,
        data=DataSource(files=(DataFile(path="repo/text.txt", key=put_blob(store, text), size_bytes=len(text)),)),
        steps=2, global_batch=4, micro_batch=4, checkpoint=CheckpointPolicy(every=2),
    )  # fmt: skip
    key = put_blob(store, plan.to_json())
    inputs = replace(old.inputs, code=code, data=sha256(text).hexdigest(), environment="7c" * 32, line="1e" * 32)
    return replace(
        old,
        run=replace(old.run, id=run),
        commit=CommitInfo(sha=sha, tree=repository.tree(sha), branch="main", subject="first <b>*bold*</b>"),
        plan=replace(old.plan, key=key, digest=plan.digest),
        inputs=inputs,
        artifacts=(),
    )


def _save(store: FolderStore, record: Record, key: bytes) -> str:
    import torch

    from gangline.checkpoint.saver import Saver

    torch.manual_seed(1)
    space: dict = {"__name__": "model"}
    exec(compile(EXAMPLE.read_text(), str(EXAMPLE), "exec"), space)
    model = space["GPT"](**MODEL)
    saver = Saver(
        store=store, prefix=f"{record.prefix}/checkpoints", run=record.run.id, plan_digest=record.plan.digest,
        generation=1, key=key, group=None,
    )  # fmt: skip
    report = saver.save(model, None, {}, step=2, wait=True)
    saver.close()
    return report.key
