"""What the tests share."""

import pytest
import seracdb


@pytest.fixture
def con():
    """A connection to a database in memory, in which each statement is a transaction."""
    with seracdb.connect(autocommit=True) as con:
        yield con


@pytest.fixture
def numbers(con):
    """A connection with a table of 10,000 frozen rows."""
    con.execute("CREATE TABLE numbers (id BIGINT PRIMARY KEY, half DOUBLE PRECISION, name TEXT)")
    con.execute("INSERT INTO numbers SELECT i, i / 2.0, 'n' || i FROM generate_series(0, 9999) AS g (i)")
    con.execute("FREEZE TABLE numbers")
    return con
