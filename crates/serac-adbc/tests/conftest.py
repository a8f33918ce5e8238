"""What the tests share: the library that SERACDB_LIBRARY names, as a driver."""

import os

import pytest
from adbc_driver_manager import dbapi

LIBRARY = os.environ["SERACDB_LIBRARY"]


def connect(uri=":memory:", **options):
    """A connection to a database of its own, or in a folder."""
    return dbapi.connect(driver=LIBRARY, db_kwargs={"uri": uri}, **options)


@pytest.fixture
def con():
    """A connection to a database in memory, in which each statement is a transaction."""
    with connect(autocommit=True) as con:
        yield con


@pytest.fixture
def cur(con):
    """A cursor of that connection."""
    with con.cursor() as cur:
        yield cur
