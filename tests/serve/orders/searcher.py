"""Stands in for `gangline search` where only what a service does with it counts: leaves an answered search behind."""

import argparse
import os
from pathlib import Path

from tests.report import searches
from tests.search.stored import LR, store_search

from gangline.spec.config.load import load_site
from gangline.storage import site_paths

parser = argparse.ArgumentParser()
for option in ("--repo", "--site", "--commit"):
    parser.add_argument(option)
asked = parser.parse_args()
store = site_paths.open_site_store(Path(asked.repo), load_site(Path(asked.site), environ=os.environ), os.environ)
request = searches.request(project="cheap", commit=asked.commit, space={LR: searches.request().space[LR]})
store_search(store, request)
