"""A run that passed, as it stands after its gates: repository, store, plan, signed checkpoint, record."""

import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from tests.report.records import passed

from gangline.build.code_layer import pack
from gangline.errors import StorageError
from gangline.git.repository import Repository
from gangline.line.gangs.sandbox import local_runner
from gangline.registry.publish import publish
from gangline.signing.keys import SigningKey, signing_key
from gangline.signing.record_seal import Sealer
from gangline.spec.config.line import Line, ProjectTable, TrainTable
from gangline.spec.config.site import Site
from gangline.spec.data_source import DataFile, DataSource
from gangline.spec.identity import run_id
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec
from gangline.spec.record import Artifact, CommitInfo, Record, gang_prefix, run_prefix
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.blobs import put_blob

EXAMPLE = Path(__file__).parents[2] / "examples" / "bytegpt" / "model.py"
LINE_DIGEST = "1e" * 32
MODEL = {"layers": 1, "width": 32, "context": 16}


@dataclass
class Workspace:
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

    @property
    def files(self) -> Path:
        """The folder of the store."""
        return Path(self.store.url.removeprefix("file:"))

    def publish(self, record: Record | None = None, *, line: Line | None = None, **arguments):
        record = record or self.record
        wanted = {
            "store": self.store, "record": record, "line": line or self.line, "key": self.key, "repo": self.repo,
            "workdir": self.root / "work" / record.run.id, "checkpoint": self.checkpoint,
            "runner": local_runner(self.repo, site=self.site, environ=self.environ),
            "python": lambda: None,
        }  # fmt: skip
        return publish(**wanted | arguments)

    def place(self, record: Record) -> Record:
        """Put a record into the store, as the line leaves it."""
        sealed = Sealer.of(self.site, self.environ).seal(record)
        self.store.put(f"{record.prefix}/record.json", sealed.to_json())
        return sealed

    def attempt(self, number: int) -> Record:
        """The record of a later attempt at the same question, which took the training over."""
        run = self.record.run
        name = run_id(run.project, self.record.commit, line=self.record.inputs.line, attempt=number)
        return replace(self.record, run=replace(run, id=name, attempt=number))

    def commit(self, subject: str) -> str:
        git(self.repo, "commit", "--quiet", "--allow-empty", "-m", subject)
        return git(self.repo, "rev-parse", "HEAD")


_TEMPLATES: dict[str, tuple[Workspace, object]] = {}


def template(factory, name: str) -> tuple[Workspace, object]:
    """`passed` or `published`, made once a session whoever asks first; and what `publish` answered."""
    if name not in _TEMPLATES:
        root = factory.mktemp(name) / "root"
        if name == "passed":
            _TEMPLATES[name] = make_workspace(root), None
        else:
            workspace = copy_of(template(factory, "passed")[0], root)
            _TEMPLATES[name] = workspace, workspace.publish()
    return _TEMPLATES[name]


def copy_of(workspace: Workspace, root: Path) -> Workspace:
    """The same workspace at another place, to be struck."""
    shutil.copytree(workspace.root, root)
    environ = {"XDG_CONFIG_HOME": str(root / "config"), "HOME": str(root)}
    return replace(workspace, root=root, repo=root / "repo", store=store_in(root / "repo"), environ=environ)


def store_in(repo: Path) -> FolderStore:
    """The store of a repository, as it is without a site."""
    return FolderStore(repo / ".gangline" / "store")


def git(folder: Path, *arguments: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True, env=clean
    )
    return done.stdout.strip()


def make_workspace(root: Path) -> Workspace:
    repo = root / "repo"
    repo.mkdir(parents=True)
    shutil.copy(EXAMPLE, repo / "model.py")
    git(repo, "init", "--quiet")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "-m", "first")
    environ = {"XDG_CONFIG_HOME": str(root / "config"), "HOME": str(root)}
    store, site = store_in(repo), Site()
    line = Line(
        project=ProjectTable(name="bytegpt", task="model:ByteGPT"),
        train=TrainTable(steps=2, global_batch=4),
        model=MODEL,
    )
    record = _record(repo, store, line)
    checkpoint = _save(store, record, signing_key(site, environ).checkpoint_key("bytegpt"))
    record = replace(record, artifacts=(manifest_of(store, checkpoint),))
    workspace = Workspace(root, repo, store, environ, site, line, record, checkpoint)
    workspace.record = workspace.place(record)
    return workspace


def manifest_of(store: FolderStore, checkpoint: str) -> Artifact:
    """As the train stage writes it down."""
    key, data = f"{checkpoint}/manifest.json", store.get(f"{checkpoint}/manifest.json").data
    digest = sha256(data).hexdigest()
    return Artifact(
        kind="checkpoint", key=key, media_type="application/json", size_bytes=len(data), sha256=digest
    )  # fmt: skip


def _record(repo: Path, store: FolderStore, line: Line) -> Record:
    sha = git(repo, "rev-parse", "HEAD")
    old, repository = passed(), Repository.at(repo)
    commit = CommitInfo(
        sha=sha, tree=repository.tree(sha), branch="main", subject="first <b>*bold*</b>", protected=True
    )  # fmt: skip
    run = run_id("bytegpt", commit, line=LINE_DIGEST, attempt=1)
    code = put_blob(store, pack(repository, repository.tree(sha), line.project).data)
    text = b"every byte of this text is held out or trained on " * 20
    plan = Plan(
        run=run, project="bytegpt", name="none", run_prefix=gang_prefix(run_prefix("bytegpt", sha, run)),
        program=ProgramSpec(task=line.project.task), strategy="none", mesh=Mesh(), model=MODEL,
        data=DataSource(files=(DataFile(path="repo/text.txt", key=put_blob(store, text), size_bytes=len(text)),)),
        steps=2, global_batch=4, micro_batch=4, checkpoint=CheckpointPolicy(every=2),
    )  # fmt: skip
    key = put_blob(store, plan.to_json())
    inputs = replace(old.inputs, code=code, data=sha256(text).hexdigest(), environment="7c" * 32, line=LINE_DIGEST)
    return replace(
        old,
        run=replace(old.run, id=run),
        commit=commit,
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
        store=store, prefix=f"{record.gang_prefix}/checkpoints", run=record.run.id, plan_digest=record.plan.digest,
        generation=1, key=key, group=None,
    )  # fmt: skip
    report = saver.save(model, None, {}, step=2, wait=True)
    saver.close()
    return report.key


class LostAnswer:
    """A store whose answers to conditional writes are lost, of keys with `at` in them."""

    def __init__(self, store, at: str) -> None:
        self._store, self._at = store, at

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    def put_if_absent(self, key: str, data):
        answer = self._store.put_if_absent(key, data)
        if self._at in key:
            raise StorageError("the connection was reset after the write")
        return answer
