"""Dask with three workers, and with threads, reads a server's tables."""

import gc

import dask
import pytest
import seracdb
import seracdb.dask
from distributed import Client
from seracdb import remote
from tables import AS_SEEN, MOST_LEASES, columns


@pytest.fixture(scope="module")
def cluster():
    with Client(n_workers=3, threads_per_worker=1, dashboard_address=None, memory_limit="1GiB") as client:
        yield client


def test_rows_are_those_of_sql(cluster, served):
    with remote.plan(served.url, table="lineitem", columns=columns(), partitions=6) as plan:
        frame = seracdb.dask.read(plan)
        assert frame.npartitions == 6 and list(frame.columns) == columns()
        assert [(len(frame),)] == served.sql("SELECT count(*) FROM lineitem")
        few = frame[frame.l_orderkey < 30].compute().sort_values(["l_orderkey", "l_linenumber"])
        wanted = served.con.execute(f"{AS_SEEN} WHERE l_orderkey < 30 ORDER BY l_orderkey, l_linenumber").arrow()
        assert len(few) > 100
        for name in columns():
            assert few[name].array.__arrow_array__().cast(wanted[name].type).equals(wanted[name]), name
    assert served.free_leases() == MOST_LEASES


def test_groups_joins_and_conditions(cluster, served):
    options = {"columns": ["l_orderkey", "l_mode", "l_small"], "filter": [("l_small", "<", 50)], "partitions": 4}
    with (
        remote.plan(served.url, table="lineitem", **options) as items,
        remote.plan(served.url, table="orders", partitions=2) as orders,
    ):
        frame = seracdb.dask.read(items)
        joined = frame.merge(seracdb.dask.read(orders), left_on="l_orderkey", right_on="o_orderkey")
        found = joined.groupby("o_priority").l_small.sum().compute().to_dict()
    query = """SELECT o_priority, sum(l_small) FROM lineitem JOIN orders ON l_orderkey = o_orderkey
        WHERE l_small < 50 GROUP BY 1"""
    assert found == dict(served.sql(query))
    with remote.plan(served.url, table="lineitem", filter=[("l_small", "<", -1)]) as plan:
        assert len(seracdb.dask.read(plan)) == 0
    answer = seracdb.dask.read(served.url, query="SELECT 42 AS answer").compute()
    assert answer.answer.to_list() == [42]


def test_a_frame_is_one_snapshot(cluster, served, transfers):
    with remote.plan(served.url, table="account", partitions=5) as plan:
        frame = seracdb.dask.read(plan)
        rows = len(frame)
        for _ in range(2):
            transfers.wait_for_more()
            assert dask.compute(frame.balance.sum(), frame.id.count()) == (1_000_000, rows)
    assert rows % 2 == 0 and served.sql("SELECT count(*) FROM account")[0][0] > rows


def test_what_is_made_of_a_frame_holds_the_snapshot(served):
    with dask.config.set(scheduler="threads"):
        before = served.free_leases()
        frame = seracdb.dask.read(served.url, table="orders", partitions=3)
        count = frame.o_orderkey.count()
        del frame
        gc.collect()
        assert served.free_leases() == before - 1
        assert [(count.compute(),)] == served.sql("SELECT count(*) FROM orders")
        del count
        gc.collect()
        assert served.free_leases() == before == MOST_LEASES


def test_a_closed_plan(cluster, served):
    with remote.plan(served.url, table="one") as plan:
        frame = seracdb.dask.read(plan)
    assert served.free_leases() == MOST_LEASES
    with pytest.raises(seracdb.OperationalError, match="has let go of the snapshot"):
        frame.compute()
    with pytest.raises(seracdb.InterfaceError, match="the plan is closed"):
        seracdb.dask.read(plan)
