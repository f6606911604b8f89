"""`fabric.toml`: where it is found, server ranges, and every mistake with its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.spec.config.fabric import FabricFile, FailureRates
from gangline.spec.config.load import load_fabric, load_text
from gangline.spec.config.problems import FileError
from gangline.spec.config.server_ranges import compress_servers, expand_servers

PAGE = """
[fabric]
rails = 8
nic_bytes_per_second = 50e9
nic_bus_efficiency = 0.80
intra_bus_bytes_per_second = 200e9
leaf_uplinks = 64
path_policy = "hash"
connections = 1
failures = "llama3"
groups = [{ name = "g01", servers = "a[001-064]" }]
"""


def problems(text: str) -> list[str]:
    with pytest.raises(FileError) as caught:
        load_text(FabricFile, text, file="fabric.toml")
    return [str(problem) for problem in caught.value.problems]


def test_the_fabric_of_the_page_is_read():
    found = load_text(FabricFile, PAGE, file="fabric.toml").fabric
    assert (found.rails, found.leaf_uplinks, found.path_policy) == (8, 64, "hash")
    assert len(expand_servers(found.groups[0].servers)) == 64


def test_rates_stand_in_the_place_of_a_preset():
    found = load_text(
        FabricFile, PAGE.replace('"llama3"', "{ gpu_hours = 5e4, optic_hours = 1e7 }"), file="fabric.toml"
    )
    assert found.fabric.failures == FailureRates(gpu_hours=5e4, optic_hours=1e7)


def test_argument_goes_before_variable_before_configuration_folder(tmp_path):
    def write(name, rails):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"[fabric]\nrails = {rails}\n")
        return path

    named, variable = write("named.toml", 1), write("variable.toml", 2)
    write("home/.config/gangline/fabric.toml", 3)
    environ = {"HOME": str(tmp_path / "home")}
    assert load_fabric(environ=environ).fabric.rails == 3
    environ["GANGLINE_FABRIC"] = str(variable)
    assert load_fabric(environ=environ).fabric.rails == 2
    assert load_fabric(named, environ=environ).fabric.rails == 1
    with pytest.raises(ConfigError, match="readable file"):
        load_fabric(tmp_path / "none.toml", environ={})


def test_without_a_file_nothing_is_known_of_the_network(tmp_path):
    assert load_fabric(environ={"HOME": str(tmp_path)}) is None


def groups(*tables, **keys):
    lines = [f"{key} = {value}" for key, value in keys.items()]
    return "\n".join(["[fabric]", *lines, f"groups = [{', '.join(tables)}]"])


def group(name, servers, more=""):
    return f'{{ name = "{name}", servers = "{servers}"{more} }}'


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("fabric.rails", "fabric = { rails = 0 }", "at least 1"),
        ("fabric.rails", "fabric = { rails = 'eight' }", "an integer"),
        ("fabric.rail", "fabric = { rail = 8 }", "did you mean fabric.rails?"),
        ("fabric.leaf_uplinks", "fabric = { leaf_uplinks = 0 }", "leave it out where it is not known"),
        ("fabric.connections", "fabric = { connections = -1 }", "found -1"),
        ("fabric.path_policy", "fabric = { path_policy = 'ecmp' }", '"hash" or "pinned" or "spray" or "unknown"'),
        ("fabric.nic_bytes_per_second", "fabric = { nic_bytes_per_second = -50e9 }", "from 1000 to 1e+18"),
        ("fabric.nic_bytes_per_second", "fabric = { nic_bytes_per_second = 1e-300 }", "from 1000 to 1e+18"),
        ("fabric.intra_bus_bytes_per_second", "fabric = { intra_bus_bytes_per_second = 0 }", "from 1000 to 1e+18"),
        ("fabric.leaf_uplinks", "fabric = { leaf_uplinks = 1000000000 }", "at most 65536"),
        ("fabric.rails", "fabric = { rails = 1000000000 }", "at most 65536"),
        ("fabric.nic_bus_efficiency", "fabric = { nic_bus_efficiency = 80 }", "a share in"),
        ("fabric.failures", "fabric = { failures = 'llama4' }", '"llama3"'),
        ("fabric.failures.gpu_hours", "fabric = { failures = { gpu_hours = 0 } }", "from 1 to 1e+15"),
        ("fabric.failures", "fabric = { failures = {} }", "found none"),
        ("fabric", "", "a value"),
        ("fabric.groups[1].name", groups(group("g", "a"), group("g", "b")), "name of its own, found 'g', as groups[0]"),
        ("fabric.groups[0].name", groups(group("", "a")), "an empty one"),
        ("fabric.groups[1].servers", groups(group("g", "a[1-4]"), group("h", "a[3-5]")),
         "servers of no other group, found 'a3' and 1 more, in groups[0] 'g', too"),
        ("fabric.groups[0].servers", groups(group("g", "a,b,a")), "each server once, found 'a' twice"),
        ("fabric.groups[0].servers", groups(group("g", "a[9-1]")), "a range that rises"),
        ("fabric.groups[0].servers", groups(group("g", "a[x]")), "server names"),
        ("fabric.groups[0].servers", groups(group("g", "a[1-9999999]")), "rises by less than 1,000,000"),
        ("fabric.groups[0].servers", groups(group("g", "")), "server names"),
        ("fabric.groups[1].servers", groups(group("g", "a[1-600000]"), group("h", "b[1-600000]")), "1,000,000 servers"),
        ("fabric.groups[1].servers", groups(group("g", "a[1-4]"), group("h", "b[1-3]"), group_size=4),
         "4 servers as group_size says, found 3"),
        ("fabric.groups[0].leaves", groups(group("g", "a", ", leaves = 4"), rails=8), "8: one leaf a rail"),
        ("fabric.groups[0].leaves", groups(group("g", "a", ", leaves = 8"), dual_homed="true"), "16: two leaves"),
        ("fabric.groups[0].servers", groups(group("g", "a[1-64]"), leaf_uplinks=32, oversubscription=1.0),
         "at most 1 ports down for one up, found 64 servers on leaves of 32 uplinks"),
    ],
)  # fmt: skip
def test_each_rule_names_its_key(key, text, said):
    found = problems(text)
    assert [each.split(": ")[0] for each in found] == [key]
    assert said in found[0]


def test_all_problems_come_together():
    text = groups(group("g", "a[1-4]"), group("g", "a[3-4]"), leaf_uplinks=0, connections=0)
    assert len(problems(text)) == 4


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a[001-003]", ["a001", "a002", "a003"]),
        ("a[8-11]", ["a8", "a9", "a10", "a11"]),
        ("a[1,3-4]-ib, b7", ["a1-ib", "a3-ib", "a4-ib", "b7"]),
        ("[1-2].rack", ["1.rack", "2.rack"]),
        ("node-x.example", ["node-x.example"]),
    ],
)
def test_ranges_are_expanded_in_order(text, names):
    assert list(expand_servers(text)) == names


def test_names_are_compressed_to_ranges():
    names = [*(f"a{number:03}" for number in range(1, 65)), "b7", "login", "c1", "c2"]
    assert compress_servers(names) == "a[001-064],b7,login,c[1-2]"


numbered = st.builds(lambda head, number, width: f"{head}{number:0{width}}", st.sampled_from(["a", "b-", "c1-"]),
                     st.integers(0, 30), st.integers(1, 3))  # fmt: skip


@given(st.lists(numbered | st.sampled_from(["login", "x.y"]), min_size=1, max_size=12))
def test_what_was_compressed_is_expanded_again(names):
    assert list(expand_servers(compress_servers(names))) == names


@given(st.text("a0b1[]-,. é", max_size=12))
def test_any_text_is_names_or_a_value_error_with_what_was_found(text):
    try:
        names, said = expand_servers(text), ""
    except ValueError as error:
        names, said = (), str(error)
    assert names or ", found " in said
