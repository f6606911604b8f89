"""Optuna's own storage suite over our journal."""

import pytest
from optuna.storages import JournalStorage
from optuna.testing.pytest_storages import StorageTestCase

from gangline.search.journal import StoreJournal


@pytest.fixture
def storage(store):
    return JournalStorage(StoreJournal(store, "searches/p/s/journal"))


@pytest.mark.row("HS2")
class TestStoreJournal(StorageTestCase):
    """Every test is Optuna's."""
