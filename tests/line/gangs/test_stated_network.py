"""The stated network with what the store has of it."""

from tests.fabric.test_measured_links import FABRIC, measured

from gangline.line.gangs.stated_network import keep_measurement, planned_network, read_measurement, stated_network
from gangline.storage.folder.store import FolderStore


def test_newest_measurement_counts_and_each_keeps_its_own_blob(tmp_path):
    store = FolderStore(tmp_path)
    assert read_measurement(store) is None
    assert planned_network(FABRIC, store).fabric == FABRIC
    first = keep_measurement(store, measured(0.6e9))
    second = keep_measurement(store, measured(1.2e9))
    assert first != second
    assert store.head(first) is not None
    found = planned_network(FABRIC, store)
    assert found.fabric.nic_bytes_per_second == 1.2e9
    assert found.links.startswith("measured 1.2 GB/s on 2026-11-26")
    assert planned_network(None, store) is None


def test_fabric_is_that_of_the_environment(tmp_path):
    file = tmp_path / "fabric.toml"
    file.write_text('[fabric]\ngroups = [{ name = "g", servers = "a[1-2]" }]\n')
    assert stated_network({"GANGLINE_FABRIC": str(file)}).servers == ("a1", "a2")
    assert stated_network({"HOME": str(tmp_path)}) is None
