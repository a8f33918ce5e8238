"""A server for engines with workers. These tests have an environment of their own
(requirements-engines.txt), and `scripts/python` runs them."""

import os
import sys

import pytest
import seracdb
from tables import LINEITEM, NULLS, ROWS, Served, Transfers

# The workers of engines are this Python, on this machine alone.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
# Ray would let its workers starve beside other programs.
os.environ["RAY_worker_niceness"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = os.environ["DO_NOT_TRACK"] = "0"
os.environ["DAFT_ANALYTICS_ENABLED"] = os.environ["SCARF_NO_ANALYTICS"] = "0"


@pytest.fixture(scope="session")
def served():
    with seracdb.connect(autocommit=True) as con:
        con.execute("CREATE TABLE one AS SELECT 1 AS n")
        con.execute(LINEITEM)
        con.execute(ROWS, (0, 99_999))
        con.freeze("lineitem")
        con.execute(ROWS, (100_000, 119_999))
        con.execute(NULLS)
        con.execute("DELETE FROM lineitem WHERE l_orderkey % 100 = 7")
        con.execute("CREATE TABLE orders (o_orderkey BIGINT NOT NULL, o_priority TEXT)")
        con.execute("INSERT INTO orders SELECT i, 'p' || i % 5 FROM generate_series(0, 29999) AS g (i)")
        with con.serve(flight="127.0.0.1:0") as server:
            yield Served(con, server.flight)


@pytest.fixture
def transfers(served):
    transfers = Transfers(served.con)
    yield transfers
    transfers.end()
