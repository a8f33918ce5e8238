"""Daft reads a server's tables."""

import gc

import daft
import pytest
import seracdb
import seracdb.daft
from seracdb import remote
from tables import AS_SEEN, MOST_LEASES, columns


def test_rows_are_those_of_sql(served):
    with remote.plan(served.url, table="lineitem", columns=columns(), partitions=6) as plan:
        frame = seracdb.daft.read(plan)
        assert frame.column_names == columns()
        assert [(frame.count_rows(),)] == served.sql("SELECT count(*) FROM lineitem")
        few = frame.where(daft.col("l_orderkey") < 30).sort(["l_orderkey", "l_linenumber"]).to_arrow()
        wanted = served.con.execute(f"{AS_SEEN} WHERE l_orderkey < 30 ORDER BY l_orderkey, l_linenumber").arrow()
        assert few.num_rows > 100 and few.column_names == columns()
        for name in columns():
            assert few[name].cast(wanted[name].type).equals(wanted[name]), name
    assert served.free_leases() == MOST_LEASES


def test_groups_joins_limits_and_conditions(served):
    options = {"columns": ["l_orderkey", "l_mode", "l_small"], "filter": [("l_small", "<", 50)], "partitions": 4}
    frame = seracdb.daft.read(served.url, table="lineitem", **options)
    orders = seracdb.daft.read(served.url, table="orders", partitions=2)
    joined = frame.join(orders, left_on="l_orderkey", right_on="o_orderkey")
    found = joined.groupby("o_priority").sum("l_small").to_pydict()
    query = """SELECT o_priority, sum(l_small) FROM lineitem JOIN orders ON l_orderkey = o_orderkey
        WHERE l_small < 50 GROUP BY 1"""
    assert dict(zip(found["o_priority"], found["l_small"], strict=True)) == dict(served.sql(query))
    assert frame.limit(7).count_rows() == 7
    assert frame.select("l_mode").distinct().count_rows() == 7
    assert seracdb.daft.read(served.url, table="one", filter=[("n", "<", 0)]).count_rows() == 0
    assert seracdb.daft.read(served.url, query="SELECT 42 AS answer").to_pydict() == {"answer": [42]}


def test_a_frame_is_one_snapshot(served, transfers):
    frame = seracdb.daft.read(served.url, table="account", partitions=5)
    rows = frame.count_rows()
    for _ in range(2):
        transfers.wait_for_more()
        sums = frame.agg(daft.col("balance").sum(), daft.col("id").count()).to_pydict()
        assert sums["balance"] == [1_000_000] and sums["id"] == [rows]
        assert served.free_leases() == MOST_LEASES - 1
    assert rows % 2 == 0 and served.sql("SELECT count(*) FROM account")[0][0] > rows
    del frame
    gc.collect()
    assert served.free_leases() == MOST_LEASES


def test_a_closed_plan(served):
    with remote.plan(served.url, table="one") as plan:
        frame = seracdb.daft.read(plan)
    with pytest.raises(Exception, match="has let go of the snapshot"):
        frame.collect()
    with pytest.raises(seracdb.InterfaceError, match="the plan is closed"):
        seracdb.daft.read(plan)


def test_columns_that_have_no_name_of_their_own(served):
    with pytest.raises(seracdb.NotSupportedError, match="counts no rows without columns"):
        seracdb.daft.read(served.url, table="lineitem", columns=[])
    with pytest.raises(seracdb.ProgrammingError, match="two columns have the name n"):
        seracdb.daft.read(served.url, query="SELECT 1 AS n, 2 AS n")
    gc.collect()
    assert served.free_leases() == MOST_LEASES
