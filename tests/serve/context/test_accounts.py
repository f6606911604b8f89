"""Token files, the local token, and the site as children of the service read it."""

import stat

import pytest

from gangline.errors import CapacityError, ConfigError
from gangline.serve.context.accounts import Accounts, digest_of, new_token, read_token_file
from gangline.serve.context.home import ServiceHome, site_text
from gangline.serve.database.open import open_database
from gangline.spec.config.load import load_text
from gangline.spec.config.site import ForgeTable, GpuTable, PodTable, ServeTable, Site, StoreTable

GOOD = '[[token]]\nname = "ci"\ndigest = "{digest}"\nroles = {{ alpha = "runner" }}\n'


def test_token_of_a_file_is_found_by_its_digest(tmp_path):
    token = new_token()
    database = open_database(str(tmp_path / "serve.db"))
    accounts = Accounts(database.tokens, read_token_file(GOOD.format(digest=digest_of(token)), source="tokens"))
    assert accounts.of_token(token).roles == {"alpha": "runner"}
    assert accounts.of_token(token + "x") is None
    assert accounts.of_token("x" * 10_000) is None
    database.close()


@pytest.mark.parametrize(
    "text",
    ["not toml", "x = 1", "[[token]]\nname = 'a'\n", GOOD.format(digest="gl_secret"),
     GOOD.format(digest="0" * 64).replace("runner", "king"), GOOD.format(digest="0" * 64) + "more = 1\n"],
)  # fmt: skip
def test_wrong_token_file_is_refused_without_repeating_its_values(text):
    with pytest.raises(ConfigError) as error:
        read_token_file(text, source="tokens.toml")
    assert str(error.value).startswith("tokens.toml")
    assert "gl_secret" not in str(error.value)


def test_local_token_is_made_once_and_closed_to_others(tmp_path):
    home = ServiceHome.of(tmp_path, Site(serve=ServeTable(home=str(tmp_path / "home"))), {})
    first = home.local_token()
    assert home.local_token() == first
    assert first.principal.may("admin", "*")
    assert stat.S_IMODE((home.folder / "local-token").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700


def test_home_is_one_services_alone(tmp_path):
    home = ServiceHome.of(tmp_path, Site(serve=ServeTable(home=str(tmp_path / "home"))), {})
    with home.lock(), pytest.raises(CapacityError, match="process"), home.lock():
        pass
    with home.lock():
        assert (home.folder / "lock").exists()


def test_site_of_children_reads_as_the_site_in_force():
    site = Site(
        store=StoreTable(url="s3://a/b", endpoint="https://s3.example", credentials="secret:env:STORE"),
        pod=PodTable(selector={"a.b/c": 'quote " and \\ back'}, pull_secrets=("one",)),
        gpu={"h200": GpuTable(memory_bytes=141e9, flops_per_second={"bf16": 7e14})},
        forge={"ours": ForgeTable(kind="gitea", url="https://git.example", projects={"team/a b": "alpha"})},
        serve=ServeTable(repositories={"alpha": "/srv/über alles"}, workers=3),
    )
    assert load_text(Site, site_text(site), file="site.toml") == site
    assert load_text(Site, site_text(Site()), file="site.toml") == Site()
