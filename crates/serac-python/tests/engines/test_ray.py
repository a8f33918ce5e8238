"""Ray Data with three workers reads a server's tables."""

import gc

import pytest
import ray
import seracdb
import seracdb.ray
from ray.data.expressions import col
from seracdb import remote
from tables import AS_SEEN, MOST_LEASES, columns


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


def test_rows_are_those_of_sql(cluster, served):
    with remote.plan(served.url, table="lineitem", columns=columns(), partitions=6) as plan:
        dataset = seracdb.ray.read(plan)
        assert dataset.schema().names == columns()
        assert [(dataset.count(),)] == served.sql("SELECT count(*) FROM lineitem")
        few = ray.get(dataset.filter(expr=col("l_orderkey") < 30).to_arrow_refs())
        rows = sorted((row for table in few for row in table.to_pylist()), key=lambda row: tuple(row.values())[:2])
        wanted = served.con.execute(f"{AS_SEEN} WHERE l_orderkey < 30 ORDER BY l_orderkey, l_linenumber").arrow()
        assert rows == wanted.to_pylist() and len(rows) > 100
    assert served.free_leases() == MOST_LEASES


def test_groups_and_conditions(cluster, served):
    options = {"columns": ["l_mode", "l_small"], "filter": [("l_small", "<", 50)], "partitions": 4}
    dataset = seracdb.ray.read(served.url, table="lineitem", **options)
    found = {row["l_mode"]: row["sum(l_small)"] for row in dataset.groupby("l_mode").sum("l_small").take_all()}
    assert found == dict(served.sql("SELECT l_mode, sum(l_small) FROM lineitem WHERE l_small < 50 GROUP BY 1"))
    # A partition without rows, and all without.
    nothing = seracdb.ray.read(served.url, table="lineitem", columns=["l_mode"], filter=[("l_small", "<", -1)])
    assert nothing.count() == 0
    assert seracdb.ray.read(served.url, query="SELECT 42 AS answer").take_all() == [{"answer": 42}]
    # A dataset that the program has no more.
    del dataset, nothing
    gc.collect()
    assert served.free_leases() == MOST_LEASES


def test_a_dataset_is_one_snapshot(cluster, served, transfers):
    with remote.plan(served.url, table="account", partitions=5) as plan:
        dataset = seracdb.ray.read(plan)
        rows = dataset.count()
        for _ in range(2):
            transfers.wait_for_more()
            assert dataset.sum("balance") == 1_000_000 and dataset.count() == rows
    assert rows % 2 == 0 and served.sql("SELECT count(*) FROM account")[0][0] > rows
    # Only a plan that is open is read.
    with pytest.raises(ray.exceptions.RayError, match="has let go of the snapshot"):
        dataset.materialize()
    with pytest.raises(seracdb.InterfaceError, match="the plan is closed"):
        seracdb.ray.read(plan)
    assert served.free_leases() == MOST_LEASES


def test_columns_that_have_no_name_of_their_own(cluster, served):
    with pytest.raises(seracdb.NotSupportedError, match="counts no rows without columns"):
        seracdb.ray.read(served.url, table="lineitem", columns=[])
    with pytest.raises(seracdb.ProgrammingError, match="two columns have the name n"):
        seracdb.ray.read(served.url, query="SELECT 1 AS n, 2 AS n")
    gc.collect()
    assert served.free_leases() == MOST_LEASES
