"""Both databases, each fresh for every test."""

import psycopg
import pytest
from tests.contracts.database.servers import postgres

from gangline.serve.database.open import open_database


@pytest.fixture(scope="session")
def postgres_url():
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.tools)])
def url(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "state" / "gangline.db")
    found = request.getfixturevalue("postgres_url")
    with psycopg.connect(found, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS gangline CASCADE")
    return found


@pytest.fixture
def database(url):
    opened = open_database(url)
    yield opened
    opened.close()
