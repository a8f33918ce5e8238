"""PySpark with three workers reads a server's tables."""

import datetime as dt
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from decimal import Decimal
from multiprocessing import connection

import pytest
import seracdb
from seracdb import remote
from tables import AS_SEEN, MOST_LEASES, columns

if shutil.which("java") is None:
    pytest.skip("Spark needs Java", allow_module_level=True)

import pyspark.errors
import seracdb.spark
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition, LessThan

#: A moment is shown in this zone.
ZONE = "America/New_York"


@pytest.fixture(scope="module")
def spark():
    builder = SparkSession.builder.master("local-cluster[3,1,1024]").appName("seracdb")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": ZONE,
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    seracdb.spark.register(spark)
    yield spark
    spark.stop()


@pytest.fixture(autouse=True)
def no_lease_is_left(served):
    yield
    seracdb.spark.release()
    assert served.free_leases() == MOST_LEASES


def load(spark, served, **options):
    return spark.read.format("seracdb").options(url=served.url, **{"partitions": 6, **options}).load()


def lineitem(spark, served, **options):
    return load(spark, served, table="lineitem", **{"columns": json.dumps(columns()), **options})


def test_every_type_arrives_as_sql_sees_it(spark, served):
    frame = lineitem(spark, served)
    assert frame.schema.simpleString() == (
        "struct<l_orderkey:bigint,l_linenumber:int,l_quantity:decimal(15,2),l_price:decimal(30,4),l_flag:string,"
        "l_small:smallint,l_real:float,l_double:double,l_any:string,l_shipdate:date,l_commit:timestamp_ntz,"
        "l_receipt:timestamp,l_comment:string,l_mode:string,l_done:boolean,l_raw:binary,l_uuid:string,l_json:string,"
        "l_jsonb:string>"
    )
    assert [field.nullable for field in frame.schema][:3] == [False, False, True]
    where = "l_orderkey < 30 OR l_orderkey BETWEEN 24990 AND 25010 OR l_orderkey > 29990"
    found = frame.where(where).toArrow().sort_by([("l_orderkey", "ascending"), ("l_linenumber", "ascending")])
    wanted = served.con.execute(f"{AS_SEEN} WHERE {where} ORDER BY l_orderkey, l_linenumber").arrow()
    assert found.num_rows == wanted.num_rows > 100 and found.column_names == wanted.column_names
    for name in found.column_names:
        # Moments come in the session's zone.
        assert found[name].cast(wanted[name].type).equals(wanted[name]), name


def test_counts_filters_and_joins_are_those_of_sql(spark, served):
    frame, orders = lineitem(spark, served), load(spark, served, table="orders")
    assert frame.rdd.getNumPartitions() == 6
    assert [(frame.count(),)] == served.sql("SELECT count(*) FROM lineitem")
    for where in (
        "l_quantity < 10.5",
        "l_shipdate >= DATE '1993-02-01' AND l_mode IN ('mode1', 'mode3')",
        "l_comment LIKE 'comment ü 11%' OR l_small IS NULL",
        "NOT l_done AND l_double > 100.5",
        "l_receipt < TIMESTAMP '1992-01-03 04:05:00+01:00'",
    ):
        # A literal's zone counts in Spark, and in PostgreSQL's TIMESTAMPTZ.
        sql = where.replace("TIMESTAMP", "TIMESTAMPTZ")
        assert [(frame.where(where).count(),)] == served.sql(f"SELECT count(*) FROM lineitem WHERE {sql}"), where
    query = """SELECT o_priority, l_flag, count(*) AS n, sum(l_quantity) AS quantity, sum(l_price) AS price,
        min(l_shipdate) AS first, max(l_comment) AS last FROM {} WHERE l_small < 50
        GROUP BY o_priority, l_flag ORDER BY o_priority, l_flag"""
    frame.createOrReplaceTempView("lineitem")
    orders.createOrReplaceTempView("orders")
    join = "lineitem JOIN orders ON l_orderkey = o_orderkey"
    assert [tuple(row) for row in spark.sql(query.format(join)).collect()] == served.sql(query.format(join))
    # A frame with itself, under two conditions.
    itself = frame.where("l_linenumber = 0").alias("a").join(frame.where("l_linenumber = 3").alias("b"), "l_orderkey")
    assert [(itself.count(),)] == served.sql(
        "SELECT count(*) FROM lineitem a JOIN lineitem b USING (l_orderkey) "
        "WHERE a.l_linenumber = 0 AND b.l_linenumber = 3"
    )


def test_the_server_tests_conditions_and_sends_the_wanted_columns(spark, served):
    conditions = [["l_shipdate", "<", "1992-03-01"], ["l_quantity", ">", 20.25], ["l_mode", "<>", "mode3"]]
    frame = load(spark, served, table="lineitem", columns="l_comment, l_orderkey", filter=json.dumps(conditions))
    assert frame.columns == ["l_comment", "l_orderkey"]
    [(rows,)] = served.sql(
        "SELECT count(*) FROM lineitem WHERE l_shipdate < '1992-03-01' AND l_quantity > 20.25 AND l_mode <> 'mode3'"
    )
    assert frame.count() == rows > 0
    # Columns by a schema.
    reader = spark.read.format("seracdb").options(url=served.url, table="lineitem", partitions=2)
    frame = reader.schema("l_price DECIMAL(30, 4), l_flag STRING").load()
    assert [tuple(frame.agg(f.sum("l_price"), f.max("l_flag")).first())] == served.sql(
        "SELECT sum(l_price), max(l_flag) FROM lineitem"
    )
    for schema, message in (
        ("l_price DECIMAL(30, 2)", r"the schema says l_price:decimal\(30,2\), the server has l_price:decimal\(30,4\)"),
        ("l_price BIGINT", "the schema says l_price:bigint"),
        ("nix BIGINT", 'column "nix" does not exist'),
    ):
        frame = spark.read.format("seracdb").options(url=served.url, table="lineitem").schema(schema).load()
        with pytest.raises(pyspark.errors.PySparkException, match=message):
            frame.count()


def test_a_frame_is_one_snapshot(spark, served, transfers):
    first = load(spark, served, table="account", partitions=5)
    rows = first.count()
    for _ in range(3):
        transfers.wait_for_more()
        # Money, and rows that come in pairs.
        assert first.agg(f.sum("balance"), f.count("*")).first()[:] == (1_000_000, rows)
        frame = load(spark, served, table="account", partitions=5)
        total, count = frame.agg(f.sum("balance"), f.count("*")).first()
        assert total == 1_000_000 and count % 2 == 0
        # A join of a frame with itself.
        assert frame.alias("a").join(frame.alias("b"), "id").count() == count
    assert rows % 2 == 0 and count > rows
    # The snapshots are held until they are let go.
    assert served.free_leases() == MOST_LEASES - 4
    seracdb.spark.release()
    with pytest.raises(pyspark.errors.PySparkException, match="has let go of the snapshot"):
        first.count()


def test_a_plan_of_the_program(spark, served):
    early = dt.datetime(1992, 2, 1, tzinfo=dt.timezone.utc)
    conditions = [("l_receipt", ">=", early), ("l_quantity", "<", Decimal("9.5"))]
    with remote.plan(
        served.url, table="lineitem", columns=["l_orderkey", "l_uuid"], filter=conditions, partitions=4
    ) as plan:
        frame = seracdb.spark.read(spark, plan)
        assert frame.rdd.getNumPartitions() == 4
        wanted = "SELECT count(*) FROM lineitem WHERE l_receipt >= '1992-02-01 00:00+00' AND l_quantity < 9.5"
        assert [(frame.count(),)] == served.sql(wanted)
        assert frame.select("l_uuid").distinct().count() == frame.count()
        assert served.free_leases() == MOST_LEASES - 1
    assert served.free_leases() == MOST_LEASES
    with pytest.raises(pyspark.errors.PySparkException, match="has let go of the snapshot"):
        frame.count()
    with pytest.raises(seracdb.InterfaceError, match="the plan is closed"):
        seracdb.spark.read(spark, plan)


def test_queries(spark, served):
    query = "SELECT l_mode AS mode, sum(l_quantity) AS q FROM lineitem GROUP BY 1 ORDER BY 1"
    frame = spark.read.format("seracdb").options(url=served.url, query=query).load()
    assert sorted(tuple(row) for row in frame.where("mode IS NOT NULL").collect()) == served.sql(query)[:-1]
    spark.sql(f"CREATE TEMPORARY VIEW one USING seracdb OPTIONS (url '{served.url}', table 'one')")
    assert spark.sql("SELECT n + 1 AS m FROM one").first().m == 2
    with remote.plan(served.url, query="SELECT 42 AS answer") as plan:
        assert seracdb.spark.read(spark, plan).first().answer == 42
    twice = spark.read.format("seracdb").options(url=served.url, query="SELECT 1 AS n, 2 AS n")
    with pytest.raises(pyspark.errors.PySparkException, match="two columns have the name n"):
        twice.load()


def test_what_is_refused_says_why(spark, served):
    for options, message in (
        ({"table": "lineitem"}, 'Spark has no type for column "l_time"'),
        ({"table": "lineitem", "columns": "l_interval"}, 'Spark has no type for column "l_interval"'),
        ({"table": "nix"}, 'relation "nix" does not exist'),
        ({"table": "one", "columns": "m"}, 'column "m" does not exist'),
        ({"table": "one", "fetchsize": "5"}, "seracdb knows no option fetchsize"),
        ({"table": "one", "filter": "n < 5"}, "filter is a list"),
        ({"table": "one", "partitions": "many"}, "partitions is a number"),
        ({"table": "one", "partitions": "0"}, "is no number of partitions"),
        ({}, "either a table or a query"),
        ({"table": "one", "url": "127.0.0.1:1"}, "is no address"),
        ({"table": "one", "url": "grpc://127.0.0.1:1"}, "does not answer"),
    ):
        with pytest.raises(pyspark.errors.PySparkException, match=message):
            spark.read.format("seracdb").options(**{"url": served.url, **options}).load()
    with pytest.raises(pyspark.errors.PySparkException, match="no integer of 32 bits"):
        load(spark, served, table="one", filter='[["n", "=", 1.5]]').count()


SERVING = """
    import seracdb
    con = seracdb.connect()
    con.execute("CREATE TABLE t AS SELECT i, repeat('x', 1000) AS x FROM generate_series(1, 100000) AS g (i)")
    con.commit()
    server = con.serve(flight="127.0.0.1:0", token="secret")
    print(server.flight, flush=True)
    server.wait()
"""


def test_rows_are_counted_without_columns(spark, served):
    wanted = served.sql("SELECT count(*) FROM lineitem")
    assert [(load(spark, served, table="lineitem", columns="[]").count(),)] == wanted
    with remote.plan(served.url, table="lineitem", columns=[], partitions=3) as plan:
        assert [(seracdb.spark.read(spark, plan).count(),)] == wanted


def test_the_keeper_survives_what_is_no_lease(spark, served):
    for sent in (b"nonsense", pickle.dumps(5), pickle.dumps(None)):
        with connection.Client(seracdb.spark._keeper.address, "AF_UNIX") as stranger:
            stranger.send_bytes(sent)
    assert load(spark, served, table="lineitem", columns="l_small", partitions=2).count() > 0


def test_a_token_and_a_server_that_dies(spark):
    code = textwrap.dedent(SERVING)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            options = {"url": process.stdout.readline().strip(), "table": "t", "partitions": 3}
            with pytest.raises(pyspark.errors.PySparkException, match="wants a token"):
                spark.read.format("seracdb").options(**options).load()
            frame = spark.read.format("seracdb").options(**options, token="secret").load()
            assert frame.count() == 100_000
        finally:
            process.kill()
        process.wait(timeout=30)
        with pytest.raises(pyspark.errors.PySparkException, match="does not answer"):
            frame.count()


def test_a_worker_that_dies_costs_no_row(spark, served):
    frame = load(spark, served, table="lineitem", columns="l_orderkey", partitions=12)
    [(rows,)] = served.sql("SELECT count(*) FROM lineitem")
    assert frame.count() == rows
    served.con.execute("INSERT INTO lineitem (l_orderkey, l_linenumber) VALUES (-1, 0)")

    def slowly(batches):
        time.sleep(0.5)
        yield from batches

    killed = []

    def kill():
        listed = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True).stdout
        ours = f"--app-id {spark.sparkContext.applicationId}"
        workers = [int(line.split()[0]) for line in listed.splitlines() if ours in line and "ExecutorBackend" in line]
        os.kill(workers[0], signal.SIGKILL)
        killed.append(len(workers))

    killer = threading.Timer(1, kill)
    killer.start()
    # Other workers read its partitions again, of the same snapshot.
    assert frame.mapInArrow(slowly, frame.schema).count() == rows
    assert killed == [3]
    served.con.execute("DELETE FROM lineitem WHERE l_orderkey = -1")


def test_the_source_is_registered_by_its_own_function(spark, served):
    spark.dataSource.register(seracdb.spark.SeracDataSource)
    try:
        with pytest.raises(pyspark.errors.PySparkException, match=r"seracdb\.spark\.register\(spark\)"):
            load(spark, served, table="one").count()
    finally:
        seracdb.spark.register(spark)
    assert load(spark, served, table="one").count() == 1


def test_why_spark_is_asked_for_no_conditions(spark):
    """Spark 4.3.0 gives a frame the rows that an earlier query of it has left. Where this fails,
    Spark has been mended, and the source can take its conditions."""

    class Numbers(DataSource):
        @classmethod
        def name(cls):
            return "numbers"

        def schema(self):
            return "n BIGINT"

        def reader(self, schema):
            return Reader()

    class Reader(DataSourceReader):
        below = 10

        def pushFilters(self, filters):  # noqa: N802 - Spark's name
            for condition in filters:
                if isinstance(condition, LessThan):
                    self.below = condition.value
                else:
                    yield condition

        def partitions(self):
            return [InputPartition(None)]

        def read(self, partition):
            return iter([(n,) for n in range(self.below)])

    spark.dataSource.register(Numbers)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("numbers").load()
        assert frame.where("n < 5").count() == 5
        assert frame.count() == 5, "there are 10"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
