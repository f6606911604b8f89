"""What a build of Jenkins is refused for: a store that is discarded with it, a second workspace."""

import pytest

from gangline.cli.commands.stage import check_jenkins_workspace
from gangline.errors import ConfigError
from gangline.spec.config.site import LaunchTable, Site, StoreTable


def demand(workspace, *, store="file:.gangline/store", target="local"):
    site = Site(store=StoreTable(url=store), launch=LaunchTable(target=target))
    check_jenkins_workspace(workspace, site, {"WORKSPACE": str(workspace)})


def test_a_store_in_the_workspace_is_refused_and_one_elsewhere_is_not(tmp_path):
    with pytest.raises(ConfigError, match=r"store\.url: wanted a store that outlives the workspace"):
        demand(tmp_path / "gangline_main")
    with pytest.raises(ConfigError, match=r"store\.url"):
        demand(tmp_path / "gangline_main", store=f"file:{tmp_path}/gangline_main/sub/store")
    demand(tmp_path / "gangline_main", store=f"file:{tmp_path}/store")
    demand(tmp_path / "gangline_main", store="s3://models/gangline")


@pytest.mark.parametrize(("name", "target", "is_refused"), [
    ("gangline_main", "local", False),
    ("gangline_main@2", "local", True),
    ("gangline_main@11", "local", True),
    ("gangline_main@2", "kubernetes", False),
    ("gangline_team@home", "local", False),
])  # fmt: skip
def test_a_second_workspace_is_refused_where_gangs_are_processes_of_the_machine(tmp_path, name, target, is_refused):
    store = f"file:{tmp_path}/store"
    if is_refused:
        with pytest.raises(ConfigError, match="one executor"):
            demand(tmp_path / name, store=store, target=target)
    else:
        demand(tmp_path / name, store=store, target=target)


def test_outside_jenkins_no_workspace_is_checked(tmp_path):
    check_jenkins_workspace(tmp_path, Site(), {})
