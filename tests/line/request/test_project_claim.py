"""Who owns a project name: one repository and one folder of it, by the claim in the store or by the site."""

import shutil
from dataclasses import replace
from functools import partial

import pytest
from tests.line import repositories
from tests.line.conftest import Workspace
from tests.line.repositories import git

from gangline.errors import ConfigError, IntegrityError
from gangline.line.request.project_claim import claim_project, project_owners, require_owned
from gangline.line.request.run_request import CommitOrigin, resolve_request
from gangline.registry.project_owner import OWN_STORE, claim_key
from gangline.signing.keys import LOCAL_NAME, key_folder
from gangline.spec.config.site import Site, StoreTable
from gangline.spec.record import run_prefix

FORGE = "git@forge.example:acme/cheap.git"
ADDRESS = "forge.example/acme/cheap"
FORK = CommitOrigin(branch="their-idea", pull_request=7, trust="fork")


@pytest.fixture
def site(tmp_path):
    """A site whose store is shared by all repositories."""
    return Site(store=StoreTable(url=f"file:{tmp_path / 'store'}"))


@pytest.fixture
def made(tmp_path, site):
    """Makes a workspace of a new repository whose project is `cheap`."""

    def make(name: str, remote: str | None = None) -> Workspace:
        repo = repositories.make_repository(tmp_path / name)
        if remote:
            git(repo, "remote", "add", "origin", remote)
            git(repo, "update-ref", "refs/remotes/origin/main", "HEAD")
        return Workspace(repo, site, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")})

    return make


def claim(workspace: Workspace, **asked) -> str:
    """Address of the repository, once it owns the name."""
    origin, writes = asked.pop("origin", None), asked.pop("writes", True)
    request = resolve_request(
        workspace.repo, **{"commit": None, "overrides": (), "strategy": None} | asked, origin=origin
    )
    return claim_project(
        workspace.store, request, site=workspace.site, sealer=workspace.sealer, writes=writes
    ).text  # fmt: skip


def stored(workspace: Workspace):
    return project_owners(workspace.store, workspace.site, workspace.sealer).claim("cheap")[0]


def naming(workspace: Workspace, *addresses: str) -> Workspace:
    return replace(workspace, site=replace(workspace.site, projects={"cheap": addresses}))


def test_the_first_repository_gets_the_name_and_every_clone_of_it_has_it(made, tmp_path):
    ours = made("ours", FORGE)
    assert claim(ours) == ADDRESS
    assert (stored(ours).repository, stored(ours).folder) == (ADDRESS, "")
    git(tmp_path, "clone", "--quiet", str(ours.repo), "clone")
    git(tmp_path / "clone", "remote", "set-url", "origin", "https://forge.example:8443/acme/cheap")
    before = stored(ours)
    assert claim(replace(ours, repo=tmp_path / "clone")) == ADDRESS
    assert stored(ours) == before


@pytest.mark.row("A1")
def test_another_repository_is_refused_with_what_was_wanted_found_and_works(made):
    claim(made("ours", FORGE))
    theirs = made("theirs", "https://forge.example/alex/cheap")
    with pytest.raises(ConfigError) as refused:
        claim(theirs)
    assert str(refused.value) == (
        "project.name: wanted a name of this repository, forge.example/alex/cheap, found 'cheap', which belongs to"
        f" forge.example/acme/cheap in {theirs.store.url}; give this line another name, or, if the project has moved"
        ' here, write into site.toml: [projects] cheap = ["forge.example/alex/cheap"]'
    )
    assert refused.value.exit_code == 10


@pytest.mark.row("A1")
def test_a_run_that_names_another_repositorys_project_leaves_no_record_and_reads_no_run(made, monkeypatch):
    ours, theirs = made("ours", FORGE), made("theirs", "https://forge.example/alex/cheap")
    assert ours.run(until="build").commit.repository == ADDRESS
    runs = [record.run.id for record in ours.records()]
    monkeypatch.setattr("gangline.line.run.create._newest", None)  # nothing is looked up
    for asked in ({}, {"origin": FORK, "commit": "HEAD"}, {"overrides": ("train.seed=2",)}):
        with pytest.raises(ConfigError, match=r"belongs to forge\.example/acme/cheap"):
            theirs.run(until="build", **asked)
    assert [record.run.id for record in ours.records()] == runs


@pytest.mark.row("A1")
def test_runs_from_before_there_were_claims_have_no_owner_until_the_site_says_whose(made):
    ours, theirs = made("ours", FORGE), made("theirs", "https://forge.example/alex/cheap")
    record = ours.run(until="build")
    older = ours.sealer.seal(replace(record, commit=replace(record.commit, repository=None)))
    ours.store.put(f"{record.prefix}/record.json", older.to_json())
    ours.store.delete(claim_key("cheap"))
    for each in (theirs, ours):
        with pytest.raises(ConfigError, match=f"has {record.run.id}, which does not say of which repository it is"):
            claim(each)
    assert ours.store.get(claim_key("cheap")) is None
    assert claim(naming(ours, FORGE)) == ADDRESS
    assert claim(ours) == ADDRESS  # written by the run before
    with pytest.raises(ConfigError, match="belongs to"):
        claim(theirs)


@pytest.mark.row("A1")
def test_a_name_under_which_another_repository_has_trained_is_not_claimed(made):
    ours, theirs = made("ours", FORGE), made("theirs", "https://forge.example/alex/cheap")
    ours.run(until="build")
    ours.store.delete(claim_key("cheap"))
    with pytest.raises(ConfigError, match=f"of {ADDRESS}; give this line another name"):
        claim(theirs)
    assert claim(ours) == ADDRESS


def test_the_site_decides_before_the_claim_and_a_moved_repository_takes_it_along(made):
    ours, moved = made("ours", FORGE), made("moved", "https://new.example/acme/cheap")
    record = ours.run(until="build")
    moved = naming(moved, "new.example/acme/cheap")
    claim(moved)
    assert (stored(ours).repository, stored(ours).earlier) == ("new.example/acme/cheap", (ADDRESS,))
    with pytest.raises(ConfigError, match=r"belongs to new\.example/acme/cheap"):
        claim(ours)
    with pytest.raises(ConfigError, match=r"belongs to new\.example/acme/cheap"):
        claim(replace(ours, site=moved.site))
    assert require_owned(moved.store, record, site=moved.site, sealer=moved.sealer, repo=moved.repo, claimed=True)


def test_a_site_that_names_two_addresses_accepts_both_and_moves_nothing(made):
    ours, mirror = made("ours", FORGE), made("mirror", "ssh://git@mirror.example/acme/cheap")
    claim(ours)
    both = (FORGE, "mirror.example/acme/cheap")
    before = stored(ours)
    assert claim(naming(mirror, *both)) == "mirror.example/acme/cheap"
    assert claim(naming(ours, *both)) == ADDRESS
    assert stored(ours) == before


def test_a_folder_that_gets_a_remote_takes_its_claim_to_the_remote(made):
    ours = made("ours")
    assert claim(ours) == str(ours.repo)
    git(ours.repo, "remote", "add", "origin", FORGE)
    assert claim(ours) == ADDRESS
    assert (stored(ours).repository, stored(ours).earlier) == (ADDRESS, (str(ours.repo),))


def test_in_its_own_store_a_repository_may_move_get_other_remotes_and_lose_its_key(made, tmp_path):
    ours = replace(made("ours"), site=Site())
    claim(ours)
    assert stored(ours).repository == OWN_STORE
    (key_folder(ours.environ) / LOCAL_NAME).unlink()
    for remote in (FORGE, "https://new.example/acme/cheap"):
        git(ours.repo, "config", "remote.origin.url", remote)
        claim(ours)
    ours.repo.rename(tmp_path / "elsewhere")
    claim(replace(ours, repo=tmp_path / "elsewhere"))


@pytest.mark.row("A1")
def test_a_store_that_was_copied_out_of_its_repository_is_no_longer_its_own(made, site, tmp_path):
    ours, theirs = replace(made("ours", FORGE), site=Site()), made("theirs", "https://forge.example/alex/cheap")
    ours.run(until="build")
    shutil.copytree(ours.repo / ".gangline" / "store", tmp_path / "store")
    with pytest.raises(ConfigError, match=f"of {ADDRESS}"):
        claim(theirs)
    shared = replace(ours, site=site)
    claim(shared)
    assert stored(shared).repository == ADDRESS


@pytest.mark.row("A1")
def test_a_claim_that_no_trusted_key_signed_gives_no_name(made, tmp_path):
    ours, theirs = made("ours", FORGE), made("theirs", "https://forge.example/alex/cheap")
    claim(ours)
    forged = replace(stored(ours), repository="forge.example/alex/cheap")
    ours.store.put(claim_key("cheap"), forged.to_json())
    for each in (ours, theirs):
        with pytest.raises(IntegrityError, match="signature"):
            claim(each)
    stranger = replace(ours, environ={"HOME": str(tmp_path / "stranger")})
    ours.store.put(claim_key("cheap"), stored_by(theirs, ours).to_json())
    with pytest.raises(IntegrityError, match="is signed by key"):
        claim(stranger)


def stored_by(theirs, ours):
    ours.store.delete(claim_key("cheap"))
    claim(theirs)
    return stored(theirs)


@pytest.mark.row("A1")
def test_a_claim_that_was_copied_to_another_name_is_refused(made):
    ours = made("ours", FORGE)
    claim(ours)
    ours.store.put(claim_key("dear"), ours.store.get(claim_key("cheap")).data)
    repositories.commit(ours.repo, {"line.toml": repositories.LINE.replace('"cheap"', '"dear"')})
    git(ours.repo, "update-ref", "refs/remotes/origin/main", "HEAD")
    with pytest.raises(IntegrityError, match="is the claim of cheap"):
        claim(ours)


def test_of_two_repositories_at_once_one_gets_the_name(made, monkeypatch):
    ours, theirs = made("ours", FORGE), made("theirs", "https://forge.example/alex/cheap")
    store = type(ours.store)
    put = store.put_if_absent

    def slower(self, key, data):
        monkeypatch.setattr(store, "put_if_absent", put)
        claim(theirs)
        return put(self, key, data)

    monkeypatch.setattr(store, "put_if_absent", slower)
    with pytest.raises(ConfigError, match=r"belongs to forge\.example/alex/cheap"):
        claim(ours)


def test_a_fork_claims_nothing_and_runs_where_there_is_no_claim(made):
    ours = made("ours", FORGE)
    assert claim(ours, origin=FORK, commit="HEAD") == ADDRESS
    assert ours.store.get(claim_key("cheap")) is None
    assert claim(ours, writes=False) == ADDRESS
    assert ours.store.get(claim_key("cheap")) is None


# names inside of one repository


@pytest.fixture
def mono(made):
    """A repository with the lines `cheap` in one and `dear` in two, all on the default branch."""
    workspace = made("mono")
    files = {"answer.py": repositories.PROGRAM}
    git(workspace.repo, "rm", "--quiet", "-r", ".")
    for folder, name in (("one", "cheap"), ("two", "dear")):
        text = repositories.LINE.replace('"cheap"', f'"{name}"')
        repositories.commit(workspace.repo, {f"{folder}/{path}": text for path, text in files.items()})
        repositories.commit(workspace.repo, {f"{folder}/line.toml": text})
    return workspace


def within(workspace, folder):
    return replace(workspace, repo=workspace.repo / folder)


@pytest.mark.row("A1")
def test_a_branch_cannot_give_its_line_the_name_of_another_folder(mono):
    git(mono.repo, "checkout", "--quiet", "-b", "feature")
    text = (mono.repo / "one" / "line.toml").read_text()
    repositories.commit(mono.repo, {"two/line.toml": text, "three/line.toml": text, "three/answer.py": ""})
    ask = partial(resolve_request, commit=None, overrides=(), strategy=None)
    assert ask(mono.repo / "two").line.project.name == "dear"  # the name is that of the default branch
    with pytest.raises(ConfigError, match="'cheap' is the name of the line in one of this repository, found it in thr"):
        claim(within(mono, "three"))
    claim(within(mono, "one"))
    with pytest.raises(ConfigError, match="is the name of the line in one of this repository"):
        claim(within(mono, "three"))


def test_a_folder_that_is_moved_on_the_default_branch_takes_its_name_along(mono):
    claim(within(mono, "one"))
    git(mono.repo, "mv", "one", "moved")
    repositories.commit(mono.repo, {})
    claim(within(mono, "moved"))
    assert stored(mono).folder == "moved"


@pytest.mark.row("A1")
def test_a_folder_that_is_moved_on_a_branch_alone_takes_no_name_along(mono):
    claim(within(mono, "one"))
    git(mono.repo, "checkout", "--quiet", "-b", "feature")
    git(mono.repo, "mv", "one", "moved")
    repositories.commit(mono.repo, {})
    with pytest.raises(ConfigError, match="is the name of the line in one"):
        claim(within(mono, "moved"))


@pytest.mark.row("A1")
@pytest.mark.parametrize("dirty", [False, True])
def test_the_name_of_a_branch_is_that_of_the_default_branch_and_the_run_says_so(made, dirty):
    ours = made("ours")
    git(ours.repo, "checkout", "--quiet", "-b", "feature")
    text = repositories.LINE.replace('"cheap"', '"other"')
    if dirty:
        (ours.repo / "line.toml").write_text(text)
    else:
        repositories.commit(ours.repo, {"line.toml": text})
    record = ours.run(until="resolve")
    assert record.run.project == "cheap"
    assert record.prefix.startswith(run_prefix("cheap", record.commit.sha, record.run.id))
    said = "project.name is cheap, as the default branch says; other, which this line.toml says, counts once"
    assert any(note.startswith(said) for note in ours.seen.notes), ours.seen.notes


@pytest.mark.row("A1")
def test_a_name_on_the_command_line_is_refused(made):
    with pytest.raises(ConfigError, match=r"^--set: project\.name says whose runs and models a run may use"):
        claim(made("ours"), overrides=("project.name=other",))
