"""Children of the service work in clones, and name places as the service does."""

from dataclasses import replace

from gangline.serve.context.home import ServiceHome, effective_site
from gangline.spec.config.load import load_site
from gangline.spec.config.site import MetricsTable, Site, StoreTable
from gangline.storage.site_paths import targets


def test_ranks_and_drivers_of_every_clone_are_announced_in_one_folder(tmp_path):
    site = effective_site(tmp_path, Site(store=StoreTable(url=f"file:{tmp_path / 'store'}")))
    home = ServiceHome.of(tmp_path, site, {})
    reported = load_site(home.write_site(site), environ={})
    assert targets(tmp_path / "a-clone", reported) == tmp_path / ".gangline" / "targets"


def test_a_folder_that_the_site_names_stays(tmp_path):
    site = Site(store=StoreTable(url=f"file:{tmp_path / 'store'}"), metrics=MetricsTable(targets="/srv/targets"))
    assert effective_site(tmp_path, site).metrics.targets == "/srv/targets"
    assert effective_site(tmp_path, replace(site, metrics=MetricsTable(driver_port=9399))).metrics.driver_port == 9399
