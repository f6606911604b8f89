"""Which environment a run has: said by site, line and target; built only where ranks run in images."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.build.wheels import lock_of, make_wheel
from tests.line import repositories

from gangline.build import images, own_environment
from gangline.build.image_registry.reference import ImageReference
from gangline.build.image_store import BuiltImage
from gangline.errors import CapacityError, ConfigError, IntegrityError
from gangline.git.repository import Repository
from gangline.line.record.observer import SilentObserver
from gangline.line.stages import build as build_stage
from gangline.line.stages.build import environment_of
from gangline.spec.config.line import EnvTable
from gangline.spec.config.site import RegistryTable, Site
from gangline.spec.config.site_tables import EnvironmentsTable
from gangline.spec.record import RunInfo
from gangline.storage.open import open_store

BASE = f"registry.example/base/python@sha256:{'b' * 64}"
SPAM = make_wheel("spam", "1.0")
LOCK = lock_of(SPAM)
BUILDS = RegistryTable(image="registry.example/team/env", base=BASE, builder="layer")


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What a stage sees, as far as it matters here; `of` changes it."""
    monkeypatch.setenv("GANGLINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / SPAM[0]).write_bytes(SPAM[1])
    links = EnvironmentsTable(find_links=(str(tmp_path / "wheels"),))
    repo = repositories.make_repository(
        tmp_path / "repo", {"line.toml": repositories.LINE, "a.py": "", "lock.txt": LOCK.decode()}
    )
    repository = Repository.at(repo)

    def of(*, target="kubernetes", registry=RegistryTable(), lock="lock.txt", base=None, trust="own"):  # noqa: B008  # frozen
        commit = SimpleNamespace(sha="a" * 40, tree=repository.tree("HEAD"), trust=trust)
        return SimpleNamespace(
            record=SimpleNamespace(run=RunInfo(id="r", project="p", created="", target=target), commit=commit),
            line=SimpleNamespace(env=EnvTable(lock=lock, base=base), project=SimpleNamespace(task=None)),
            site=replace(Site(), registry=registry, environments=links),
            home=tmp_path,
            observer=SilentObserver(),
            repository=repository,
            store=open_store(f"file:{tmp_path / 'store'}"),
            environ={"HOME": str(tmp_path), "UV_OFFLINE": "1"},
        )

    return of


@pytest.fixture
def builds(monkeypatch):
    """Recipes that were built; the registry has what was built before."""
    seen = []

    def build(recipe, *, builder, image_store, commit):
        cached = recipe.key in [each.key for each in seen]
        seen.append(recipe)
        return BuiltImage(
            reference=f"{recipe.image.name}@sha256:{'c' * 64}", key=recipe.key, digest=f"sha256:{'c' * 64}",
            size_bytes=1, seconds=0.0 if cached else 2.0, cached=cached, builder=builder.name, log_key=None,
            sbom="blobs/sha256/" + "d" * 64, provenance="blobs/sha256/" + "e" * 64,
            sizes={"image-sbom": 1, "image-provenance": 2},
        )  # fmt: skip

    monkeypatch.setattr(build_stage, "build_image", build)
    return seen


def test_ranks_of_this_machine_have_what_the_lock_says_whatever_the_site_builds(asked, builds):
    found = environment_of(asked(target="local", registry=BUILDS))
    assert (found.lock, found.image) == ("lock.txt", None)
    assert found.own.manifest.packages["spam"] == "1.0"
    assert found.digest == found.own.digest
    assert environment_of(asked(target="local")).source.endswith("cached")
    assert builds == []


def test_without_a_lock_the_run_says_that_it_is_not_locked(asked):
    found = environment_of(asked(target="local", lock=None))
    assert (found.digest, found.lock, found.own) == (own_environment.interpreter_digest(), None, None)
    assert found.source.startswith("environment not locked")
    assert found.outputs == {"lock": None}


@pytest.mark.row("P8")
def test_for_a_fork_nothing_is_installed_before_somebody_approves_it(asked):
    fork = asked(target="local", trust="fork")
    with pytest.raises(CapacityError, match="gangline approve"):
        environment_of(fork)
    fork.record.run = replace(fork.record.run, approved="me")
    assert environment_of(fork).own.manifest.packages["spam"] == "1.0"


def test_a_fork_has_what_an_own_commit_with_the_same_lock_had_installed(asked):
    own = environment_of(asked(target="local"))
    fork = environment_of(asked(target="local", trust="fork"))
    assert (fork.digest, fork.own.folder) == (own.digest, own.own.folder)
    assert fork.own.is_cached


def test_without_a_builder_pods_have_the_base_as_it_is_and_its_choice_is_signed(asked):
    found = environment_of(asked(registry=RegistryTable(base=BASE), lock=None))
    assert found.image.reference == BASE
    assert found.source == f"image python@{'b' * 12}, unchanged"
    assert [each.kind for each in found.artifacts] == ["image-provenance"]
    unread = environment_of(asked(registry=RegistryTable(base=BASE)))
    assert "lock.txt is not installed" in unread.source


def test_a_changed_base_is_another_environment(asked):
    other = BASE.replace("b" * 64, "c" * 64)
    digests = {environment_of(asked(registry=RegistryTable(base=base))).digest for base in (BASE, other)}
    assert len(digests) == 2


def test_a_record_of_another_base_in_the_store_is_refused(asked):
    first = environment_of(asked(registry=RegistryTable(base=BASE)))
    evil = BASE.replace("b" * 64, "c" * 64)
    second = environment_of(asked(registry=RegistryTable(base=evil)))
    store = asked().store
    store.put(f"images/{first.digest}.json", store.get(f"images/{second.digest}.json").data)
    with pytest.raises(IntegrityError, match="wanted provenance of"):
        environment_of(asked(registry=RegistryTable(base=BASE)))


def test_an_unchanged_lock_reuses_its_image_and_says_so(asked, builds):
    first, second = (environment_of(asked(registry=BUILDS)) for _ in range(2))
    tag = builds[0].tag
    assert first.source == f"image {tag} built by layer in 2.0 s"
    assert second.source == f"lock unchanged: image {tag} reused, 0 s"
    assert first.digest == second.digest == builds[0].key
    assert [each.kind for each in first.artifacts] == ["image-provenance", "image-sbom"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lock": None}, "env.lock"),
        ({"lock": "gone.txt"}, "git add"),
        ({"registry": replace(BUILDS, image=None)}, r"registry\.image"),
        ({"registry": replace(BUILDS, base=None)}, r"registry\.base"),
    ],
)
def test_a_site_or_line_that_says_too_little_is_shown_what_is_missing(asked, builds, change, said):
    with pytest.raises(ConfigError, match=said):
        environment_of(asked(**{"registry": BUILDS} | change))
    assert builds == []


def test_the_line_chooses_the_base_and_a_fork_does_not(asked, builds):
    own = BASE.replace("base/python", "own/python")
    environment_of(asked(registry=BUILDS, base=own))
    assert builds[-1].base == ImageReference.parse(own)
    forked = environment_of(asked(registry=RegistryTable(base=BASE), base=own, trust="fork"))
    assert forked.image.reference == BASE


def test_a_forks_lock_is_never_built_with_our_rights(asked, builds, monkeypatch):
    monkeypatch.setattr(images.ImageRepository, "open", lambda *_: None)
    with pytest.raises(IntegrityError, match="fork"):
        environment_of(asked(registry=BUILDS, trust="fork"))
    assert builds == []
