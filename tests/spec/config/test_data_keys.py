"""Keys that data may name: below the site's prefixes, or own runs without what drivers keep there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.spec.config.data_keys import RESERVED, DataAccess, foreign, is_data_prefix
from gangline.spec.config.grammar import STORE_KEY
from gangline.spec.config.load import load_line_text, load_text
from gangline.spec.config.site import Site

COMMIT = "0" * 40
SEGMENTS = st.sampled_from([
    "runs", "runs.", "data", "data.", "corpora", "models", "blobs", "open", "a", "b", "demo", COMMIT, "1" * 64, "r-1",
    "record.json", "lease.json", "gang", "x",
])  # fmt: skip
KEYS = st.lists(SEGMENTS, min_size=1, max_size=7).map("/".join)


@given(key=KEYS, prefixes=st.lists(st.sampled_from(["data/", "corpora/a/"]), max_size=2).map(tuple), fork=st.booleans())
def test_what_may_be_read_is_data_or_of_an_own_run(key, prefixes, fork):
    assert STORE_KEY.fullmatch(key)
    access = DataAccess(prefixes=prefixes, project=None if fork else "a")
    parts = key.split("/")
    is_data = any(key.startswith(prefix) for prefix in prefixes)
    is_own = parts[:2] == ["runs", "a"] and len(parts) >= 5 and parts[2] in (COMMIT, "1" * 64)
    may = is_data or (is_own and not fork and parts[4] not in ("record.json", "lease.json"))
    try:
        access.demand_key("data.text[0]", key)
    except ConfigError:
        assert not may
    else:
        assert may
        assert is_data or foreign(key, "a") is None


@pytest.mark.parametrize("prefix", ["data/", "corpora/public/", "a.b/c_d-e/", "datasets/wiki/"])
def test_a_site_gives_prefixes_to_data(prefix):
    site = load_text(Site, f'store = {{ data = ["{prefix}"] }}', file="site.toml")
    assert site.store.data == (prefix,)


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "/",
        "data",
        "/data/",
        "data//",
        "../",
        "data/../runs/",
        "./",
        "a b/",
        "datasets/wiki",
        "datasets/Wiki/",
        "datasets/wiki/aliases/",
        "datasets//",
        *(f"{each}/" for each in sorted(RESERVED)),
    ],
)
def test_a_prefix_that_gangline_writes_itself_is_none_of_data(prefix):
    assert not is_data_prefix(prefix)
    with pytest.raises(ConfigError, match=r"^site\.toml: store\.data\[0\]: wanted a prefix of keys with a slash"):
        load_text(Site, f'store = {{ data = ["{prefix}"] }}', file="site.toml")


def test_what_every_site_refuses_the_line_says_by_itself():
    line = "project = { name = 'a', task = 'm:C' }\ntrain = { steps = 1, global_batch = 1 }\ndata = { text = [%s] }"
    text = line % f"'repo:a', 'runs/b/{COMMIT}/r-1/model/x'"
    with pytest.raises(
        ConfigError, match=r"data\.text\[1\]: wanted .*, found 'runs/b/.*, of a run of another project; data"
    ):
        load_line_text(text, file="line.toml")
    assert load_line_text(line % f"'runs/a/{COMMIT}/r-1/model/x', 'elsewhere/x'", file="line.toml")
    with pytest.raises(ConfigError, match=r"data\.text: wanted at most 100 entries, found 101"):
        load_line_text(line % ",".join(["'repo:a'"] * 101), file="line.toml")


def test_a_prefix_of_a_data_set_opens_it_to_forks_and_no_key_to_anyone():
    fork = DataAccess(prefixes=("data/", "datasets/wiki/"))
    fork.demand_dataset("data.shards[0]", "wiki")
    with pytest.raises(ConfigError, match=r"a fork's line may read \(wiki\), found 'code'; store\.data = "):
        fork.demand_dataset("data.shards[0]", "code")
    DataAccess(project="a").demand_dataset("data.shards[0]", "code")
    for access in (fork, DataAccess(prefixes=("datasets/wiki/",), project="a")):
        with pytest.raises(ConfigError, match="which gangline keeps for itself"):
            access.demand_key("data.text[0]", "datasets/wiki/3f2a91c4.json")
