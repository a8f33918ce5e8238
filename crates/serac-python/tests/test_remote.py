"""Tables of a server in parts: what Spark, Ray, Dask and Daft stand on."""

import datetime as dt
import gc
import multiprocessing
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from decimal import Decimal
from typing import Any

import pandas
import pyarrow
import pytest
import seracdb
from pyarrow import flight
from seracdb import remote

UTC = dt.timezone.utc
#: The snapshots that a server holds at a time.
MOST_LEASES = 64

EVERY = """CREATE TABLE every (id BIGINT NOT NULL, b BOOLEAN, s SMALLINT, i INTEGER, r REAL, d DOUBLE PRECISION,
    n NUMERIC(12,3), big NUMERIC(30,5), any_digits NUMERIC, dt DATE, tm TIME, ts TIMESTAMP, tz TIMESTAMPTZ,
    iv INTERVAL, c CHAR(5), v VARCHAR(20), x TEXT, y BYTEA, u UUID, j JSON, jb JSONB, "All big" INT)"""
#: Rows from $1 to $2. Each tenth has NULL in all columns but the key.
ROWS = """INSERT INTO every SELECT i, i % 2 = 0, i % 1000 - 500, i - 5000, i / 8.0, i / 7.0::float8 - 100, i / 8.0 - 50,
    i * 1000000000::numeric, i / 3.0, '2020-01-01'::date + i % 500, '00:00'::time + i * interval '1 s 3 us',
    '2020-01-01'::timestamp + i * interval '1 h', '2020-01-01 00:00+02'::timestamptz + i * interval '1 h',
    i * interval '1 d', left('c' || i % 7, 5), 'v' || i, 'text ü ' || i, ('x' || i)::bytea, gen_random_uuid(),
    ('{"a": ' || i || '}')::json, ('{"a":' || i || '}')::jsonb, i
    FROM generate_series($1::int, $2::int) AS g (i) WHERE i % 10 <> 9"""
NULLS = "INSERT INTO every (id) SELECT i FROM generate_series($1::int, $2::int) AS g (i) WHERE i % 10 = 9"
#: The columns as texts, in SQL and of what comes.
TEXTS = """SELECT u::text AS u, j::text AS j, jb::text AS jb, any_digits::text AS any_digits
    FROM every ORDER BY id"""


@pytest.fixture
def every(con):
    """A table with every type, of frozen blocks and hot ones."""
    con.execute(EVERY)
    for statement in (ROWS, NULLS):
        con.execute(statement, (0, 50_000))
    con.freeze("every")
    for statement in (ROWS, NULLS):
        con.execute(statement, (50_001, 60_000))
    con.execute("DELETE FROM every WHERE id % 100 = 7")
    con.execute("UPDATE every SET x = 'changed to something long', n = NULL WHERE id % 1000 = 3")
    con.execute("INSERT INTO every (id, d) VALUES (-1, 'NaN'), (-2, 'inf'), (-3, '-inf'), (-4, '-0'), (-5, '0')")
    with con.serve(flight="127.0.0.1:0") as server:
        yield con, server.flight


def free_leases(url):
    """How many snapshots the server would hold now."""
    plans: list[remote.Plan] = []
    try:
        while len(plans) <= MOST_LEASES:
            plans.append(remote.plan(url, table="pg_free", columns=["n"]))
    except seracdb.OperationalError as error:
        assert error.sqlstate == "53000", error
    for plan in plans:
        plan.close()
    return len(plans)


@pytest.fixture
def url(con):
    con.execute("CREATE TABLE pg_free AS SELECT 1 AS n")
    with con.serve(flight="127.0.0.1:0") as server:
        yield server.flight


def in_sql(con, query):
    return con.execute(query).fetchall()


def sorted_rows(table, column="id"):
    return table.sort_by(column)


def test_rows_of_all_types_are_those_of_sql(every):
    con, url = every
    with remote.plan(url, table="every", partitions=5) as plan:
        assert len(plan.partitions) == 5 and "5 partitions, open" in repr(plan)
        table = sorted_rows(plan.read())
        assert table.schema.equals(plan.schema) and not plan.schema.field("id").nullable
        sql = con.execute("SELECT * FROM every ORDER BY id").arrow()
        assert table.num_rows == sql.num_rows and table.column_names == sql.column_names
        texts = con.execute(TEXTS).arrow()
        for name in table.column_names:
            found, wanted = table[name], (texts if name in texts.column_names else sql)[name].cast(table[name].type)
            # NaN, in the first rows, is not equal to itself.
            first = 5 if name == "d" else 0
            assert found.slice(first).equals(wanted.slice(first)), name
    assert plan.closed and "closed" in repr(plan)


def test_each_partition_is_read_anywhere_and_again(every):
    con, url = every
    with remote.plan(url, table="every", columns=["id", "x", 'All big'], partitions=4) as plan:
        assert plan.schema.names == ["id", "x", 'All big']
        sent = pickle.loads(pickle.dumps(plan.partitions))
        assert sent == plan.partitions
        with multiprocessing.get_context("spawn").Pool(2) as workers:
            counts = workers.map(count, [*sent, *reversed(sent)])
        assert counts[:4] == counts[:3:-1] and min(counts) > 0
        assert [(sum(counts[:4]),)] == in_sql(con, "SELECT count(*) FROM every")
        with pytest.raises(TypeError, match="send its partitions"):
            pickle.dumps(plan)
        # A reader that stops early leaves nothing behind.
        for _ in range(3):
            batches = plan.partitions[0].read()
            assert next(batches).num_rows > 0
            batches.close()
        # One that has begun goes on to its end.
        batches = plan.partitions[0].read()
        first = next(batches).num_rows
    assert first + sum(batch.num_rows for batch in batches) == counts[0]


def count(partition):
    return sum(batch.num_rows for batch in partition.read())


def test_uuids_of_a_part_of_an_array():
    values = [uuid.uuid4() for _ in range(5)]
    bytes_of_all = [None if at == 2 else value.bytes for at, value in enumerate(values)]
    batch = pyarrow.record_batch({"u": pyarrow.array(bytes_of_all, pyarrow.binary(16))})
    for first, rows in ((0, 5), (1, 3), (2, 1), (3, 2), (5, 0)):
        part = batch.slice(first, rows)
        found = remote.plain(part, remote.plain_schema(part.schema))["u"]
        wanted = [None if at == 2 else str(value) for at, value in enumerate(values)][first : first + rows]
        assert found.to_pylist() == wanted and found.type == pyarrow.string()


CONDITIONS = [
    (("id", ">=", 49_990), "id >= 49990"),
    (("b", "=", True), "b"),
    (("s", "<>", -3), "s <> -3"),
    (("i", "<", "-4990"), "i < -4990"),
    (("r", "=", 12.125), "r = 12.125"),
    (("d", ">", 3.5), "d > 3.5"),
    (("d", "=", 0), "d = 0"),
    (("d", "=", -0.0), "d = 0"),
    (("d", "<>", 0), "d <> 0"),
    (("r", "<>", -0.0), "r <> 0"),
    (("d", "<", 0), "d < 0"),
    (("d", "<=", 0), "d <= 0"),
    (("d", ">", 0), "d > 0"),
    (("d", ">=", 0), "d >= 0"),
    (("n", "<=", Decimal("-12.375")), "n <= -12.375"),
    (("n", "=", 0.5), "n = 0.5"),
    (("n", ">", 99), "n > 99"),
    (("big", ">", Decimal("40000000000000")), "big > 40000000000000"),
    (("dt", "<", dt.date(2020, 2, 1)), "dt < '2020-02-01'"),
    (("dt", ">=", "2021-05-01"), "dt >= '2021-05-01'"),
    (("tm", "<", dt.time(0, 10, 0, 5)), "tm < '00:10:00.000005'"),
    (("ts", "=", dt.datetime(2020, 1, 3, 4)), "ts = '2020-01-03 04:00'"),
    (("tz", "=", dt.datetime(2020, 1, 3, 4, tzinfo=UTC)), "tz = '2020-01-03 04:00+00'"),
    (("tz", "<", dt.datetime(2020, 1, 3, 4, tzinfo=dt.timezone(dt.timedelta(hours=-5)))), "tz < '2020-01-03 04:00-05'"),
    (("tz", ">", "2020-01-03T04:00:00Z"), "tz > '2020-01-03 04:00+00'"),
    (("big", "<=", Decimal("1234567890123456789012345.00000")), "big <= 1234567890123456789012345"),
    (("c", "=", "c3"), "c = 'c3'"),
    (("c", "=", "c3  "), "c = 'c3  '"),
    (("c", "<=", "c3       "), "c <= 'c3       '"),
    (("v", ">", "v5"), "v > 'v5'"),
    (("x", ">=", "text ü 5"), "x >= 'text ü 5'"),
    (("x", "=", "changed to something long"), "x = 'changed to something long'"),
    (('All big', "<", 100), '"All big" < 100'),
]


def test_conditions_are_those_of_sql(every):
    con, url = every
    for condition, sql in CONDITIONS:
        with remote.plan(url, table="every", columns=["id"], filter=[condition], partitions=3) as plan:
            found = sorted_rows(plan.read())["id"].to_pylist()
        wanted = [id for (id,) in in_sql(con, f"SELECT id FROM every WHERE {sql} ORDER BY id")]
        assert found == wanted, condition
        assert 0 < len(found) < 60_000, condition
    both = [("id", ">", 1000), ("dt", "<", "2020-01-20")]
    with remote.plan(url, table="every", filter=both, columns=["x"]) as plan:
        wanted = in_sql(con, "SELECT count(*) FROM every WHERE id > 1000 AND dt < '2020-01-20'")
        assert [(plan.read().num_rows,)] == wanted


def test_conditions_without_an_exact_meaning_are_refused(every):
    _, url = every
    for condition, error, message in (
        (("i", "<", 2**31), seracdb.DataError, "no integer of 32 bits"),
        (("i", "<", 1.5), seracdb.DataError, "no integer of 32 bits"),
        (("i", "=", True), seracdb.DataError, "a boolean"),
        (("b", "=", 1), seracdb.NotSupportedError, "compares no values of its type"),
        (("n", "=", Decimal("1.0005")), seracdb.DataError, "more digits"),
        (("n", "=", Decimal(10) ** 9), seracdb.DataError, "more digits"),
        # As many digits as Python's context would round.
        (("big", "=", Decimal("1234567890123456789012345.0000001")), seracdb.DataError, "more digits"),
        (("big", "=", Decimal("1e-1000")), seracdb.DataError, "more digits"),
        (("n", "=", "nix"), seracdb.DataError, "no number"),
        (("n", "=", float("nan")), seracdb.DataError, "not finite"),
        (("r", "=", 0.1), seracdb.DataError, "more digits than 32 bits"),
        (("d", "<", float("inf")), seracdb.DataError, "not finite"),
        (("d", "=", 2**53 + 1), seracdb.DataError, "too many digits"),
        (("dt", "=", dt.datetime(2020, 1, 1)), seracdb.DataError, "no date"),
        (("tm", "=", dt.time(1, tzinfo=UTC)), seracdb.DataError, "with a time zone"),
        (("ts", "=", dt.datetime(2020, 1, 1, tzinfo=UTC)), seracdb.DataError, "it has a time zone"),
        (("tz", "=", dt.datetime(2020, 1, 1)), seracdb.DataError, "it has no time zone"),
        (("ts", "<", pandas.Timestamp("2020-01-01 00:00:00.000001001")), seracdb.DataError, "finer than a microsecond"),
        (("ts", "<", "2020-01-01 00:00:00.0000010010"), seracdb.DataError, "finer than a microsecond"),
        (("tm", "<", "00:00:00.0000011"), seracdb.DataError, "finer than a microsecond"),
        (("ts", "<", pandas.NaT), seracdb.DataError, "no datetime"),
        (("x", "=", 5), seracdb.DataError, "no text"),
        (("x", "=", None), seracdb.DataError, "compared with NULL"),
        (("any_digits", "=", 5), seracdb.NotSupportedError, "any_digits"),
        (("u", "=", "123e4567-e89b-12d3-a456-426614174000"), seracdb.NotSupportedError, "u"),
        (("iv", "=", "1 d"), seracdb.NotSupportedError, "iv"),
        (("j", "=", "{}"), seracdb.NotSupportedError, "j"),
        (("y", "=", "x"), seracdb.NotSupportedError, "y"),
        (("x", "LIKE", "x"), seracdb.ProgrammingError, "none of the operators"),
        (("nix", "=", 1), seracdb.ProgrammingError, 'column "nix" does not exist'),
    ):
        with pytest.raises(error, match=message):
            remote.plan(url, table="every", filter=[condition])


def test_all_partitions_read_one_snapshot_beside_a_writer(con):
    con.execute("CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)")
    con.execute("INSERT INTO account SELECT i, 10 FROM generate_series(0, 99999) AS g (i)")
    con.freeze("account")
    stop, rounds = threading.Event(), 0

    def transfer():
        nonlocal rounds
        with con.cursor() as writer:
            while not stop.is_set():
                # From the first block to the last; and rows come in pairs that sum to nothing.
                writer.execute(
                    "WITH taken AS (UPDATE account SET balance = balance - 1 WHERE id = $1), "
                    "given AS (UPDATE account SET balance = balance + 1 WHERE id = $2) "
                    "INSERT INTO account VALUES ($3, -7), ($3 + 1, 7)",
                    (rounds % 1000, 99_000 + rounds % 1000, 200_000 + 2 * rounds),
                )
                rounds += 1

    writer = threading.Thread(target=transfer)
    with con.serve(flight="127.0.0.1:0") as server:
        writer.start()
        try:
            rows = []
            for _ in range(5):
                with remote.plan(server.flight, table="account", partitions=3) as plan:
                    tables = []
                    for partition in reversed(plan.partitions):
                        time.sleep(0.02)
                        tables.append(pyarrow.Table.from_batches(partition.read(), schema=plan.schema))
                    assert sum(pyarrow.concat_tables(tables)["balance"].to_pylist()) == 1_000_000
                    rows.append(sum(table.num_rows for table in tables))
                    # Later, the same.
                    assert plan.read().num_rows == rows[-1]
        finally:
            stop.set()
            writer.join(timeout=30)
    assert rounds > 5 and rows[-1] > rows[0] and all(n % 2 == 0 for n in rows), (rounds, rows)


def test_snapshots_are_let_go(url):
    assert free_leases(url) == MOST_LEASES
    plans = [remote.plan(url, table="pg_free") for _ in range(3)]
    assert free_leases(url) == MOST_LEASES - 3
    plans[0].close()
    plans[0].close()
    assert free_leases(url) == MOST_LEASES - 2
    partition = plans[0].partitions[0]
    with pytest.raises(seracdb.OperationalError, match="has let go of the snapshot") as caught:
        list(partition.read())
    assert caught.value.sqlstate == "72000" and "Plan again" in str(caught.value)
    # One that nobody has any more.
    del plans[1:]
    gc.collect()
    assert free_leases(url) == MOST_LEASES
    # One that is left open when the program ends.
    code = f"from seracdb import remote; plan = remote.plan({url!r}, table='pg_free'); print(plan)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "open" in done.stdout and free_leases(url) == MOST_LEASES
    # More than the server holds.
    plans = [remote.plan(url, table="pg_free") for _ in range(MOST_LEASES)]
    with pytest.raises(seracdb.OperationalError, match="holds 64 snapshots already"):
        remote.plan(url, table="pg_free")
    for plan in plans:
        plan.close()


def renewing():
    return [thread for thread in threading.enumerate() if thread.name == "seracdb-renew"]


def test_snapshots_are_renewed_while_they_are_there(url, monkeypatch):
    monkeypatch.setattr(remote, "_RENEWAL_SECONDS", (0.02, 0.02))
    renewals = []
    renew = remote.Lease.renew

    def counted(lease, client):
        renew(lease, client)
        renewals.append(lease.seconds)

    monkeypatch.setattr(remote.Lease, "renew", counted)
    with remote.plan(url, table="pg_free") as plan:
        end = time.monotonic() + 30
        while len(renewals) < 5:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert all(0 < seconds <= 61 for seconds in renewals)
        assert len(renewing()) == 1 and plan.read().num_rows == 1
        # Where the server has let it go, the thread gives up.
        plan._leases[0].release()
        while renewing():
            assert time.monotonic() < end
            time.sleep(0.01)
        with pytest.raises(seracdb.OperationalError, match="has let go of the snapshot"):
            plan.read()
    with remote.plan(url, table="pg_free"):
        assert renewing()
    while renewing():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_queries(every):
    con, url = every
    query = "SELECT i % 3 AS k, count(*) AS n, u FROM every WHERE id < 1000 GROUP BY 1, 3 ORDER BY 1, 2, 3"
    plan = remote.plan(url, query=query)
    assert len(plan.partitions) == 1 and plan.schema.names == ["k", "n", "u"]
    wanted = [(k, n, None if u is None else str(u)) for k, n, u in in_sql(con, query)]
    assert [tuple(row.values()) for row in plan.read().to_pylist()] == wanted
    # Each read runs it anew.
    con.execute("DELETE FROM every")
    assert plan.read().num_rows == 0
    with pytest.raises(seracdb.ProgrammingError, match='42703: column "nix" does not exist') as unknown:
        remote.plan(url, query="SELECT nix FROM every")
    assert unknown.value.sqlstate == "42703"
    failing = remote.plan(url, query="SELECT 1 / (count(*) - count(*)) AS n FROM every")
    with pytest.raises(seracdb.DataError, match="22012: division by zero") as failed:
        failing.read()
    assert failed.value.sqlstate == "22012"
    with pytest.raises(seracdb.ProgrammingError, match="no rows to give"):
        remote.plan(url, query="CREATE TABLE another (n INT)").read()


def test_a_table_on_several_servers(con):
    with seracdb.connect(autocommit=True) as other:
        for at, database in enumerate((con, other)):
            database.execute("CREATE TABLE shard (id BIGINT)")
            database.execute(f"INSERT INTO shard SELECT i * 2 + {at} FROM generate_series(0, 999) AS g (i)")
            database.execute("CREATE TABLE pg_free AS SELECT 1 AS n")
        other.execute("CREATE TABLE unlike (id INT)")
        con.execute("CREATE TABLE unlike (id BIGINT)")
        with con.serve(flight="127.0.0.1:0") as one, other.serve(flight="127.0.0.1:0") as two:
            urls = [one.flight, two.flight]
            with remote.plan(urls, table="shard") as plan:
                assert {partition.server.url for partition in plan.partitions} == set(urls)
                assert sorted(plan.read()["id"].to_pylist()) == list(range(2000))
            with pytest.raises(seracdb.ProgrammingError, match="has other columns"):
                remote.plan(urls, table="unlike")
            assert [free_leases(url) for url in urls] == [MOST_LEASES, MOST_LEASES]
        with pytest.raises(seracdb.OperationalError, match="does not answer"):
            remote.plan(urls, table="shard")


def certificate(folder):
    """A certificate of this machine and its key."""
    files = folder / "server.crt", folder / "server.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    return files


def test_tokens_and_tls(con, tmp_path):
    con.execute("CREATE TABLE t AS SELECT 1 AS n")
    cert, key = certificate(tmp_path)
    with con.serve(flight="127.0.0.1:0", token="secret", tls_cert=cert, tls_key=key) as server:
        url = "grpc+tls://{}:{}".format(*server.addresses["flight"])
        assert "secret" not in repr(remote.Server(url, "secret"))
        for roots in (cert, str(cert), cert.read_bytes()):
            with remote.plan(url, table="t", token="secret", tls_roots=roots) as plan:
                assert pickle.loads(pickle.dumps(plan.partitions[0])) == plan.partitions[0]
                assert plan.read().to_pydict() == {"n": [1]}
        for token in (None, "wrong"):
            with pytest.raises(seracdb.OperationalError) as caught:
                remote.plan(url, table="t", token=token, tls_roots=cert)
            assert caught.value.sqlstate == "28000"
        # A certificate that nobody trusts, and no TLS at all.
        with pytest.raises(seracdb.OperationalError, match="does not answer"):
            remote.plan(url, table="t", token="secret")
        with pytest.raises(seracdb.OperationalError, match="does not answer"):
            remote.plan(url.replace("+tls", ""), table="t", token="secret")


SERVING = """
    import seracdb
    con = seracdb.connect()
    con.execute("CREATE TABLE t AS SELECT i, repeat('x', 1000) AS x FROM generate_series(1, 100000) AS g (i)")
    con.commit()
    server = con.serve(flight="127.0.0.1:0")
    print(server.flight, flush=True)
    server.wait()
"""


def test_a_server_that_dies():
    code = textwrap.dedent(SERVING)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            plan = remote.plan(url, table="t", partitions=3)
            batches = plan.partitions[0].read()
            next(batches)
        finally:
            process.kill()
        process.wait(timeout=30)
        # In the middle of a stream, and before one.
        for reader in (batches, plan.partitions[1].read()):
            with pytest.raises(seracdb.DatabaseError) as caught:
                list(reader)
            assert caught.value.sqlstate == "08006" and url in str(caught.value), caught.value
        began = time.monotonic()
        plan.close()
        assert time.monotonic() - began < 10


def test_wrong_requests(url):
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({}, seracdb.InterfaceError, "either a table or a query"),
        ({"table": "t", "query": "SELECT 1"}, seracdb.InterfaceError, "either a table or a query"),
        ({"query": "SELECT 1", "columns": ["n"]}, seracdb.InterfaceError, "says its columns"),
        ({"table": "pg_free", "partitions": 0}, seracdb.InterfaceError, "no number of partitions"),
        ({"table": "pg_free", "partitions": "2"}, seracdb.InterfaceError, "'2' is no number of partitions"),
        ({"table": "pg_free", "partitions": True}, seracdb.InterfaceError, "no number of partitions"),
        ({"table": "pg_free", "columns": "n"}, seracdb.InterfaceError, "several names"),
        ({"table": "pg_free", "filter": ["n=1"]}, seracdb.InterfaceError, "no condition"),
        ({"table": "pg_free", "filter": [("n", "=")]}, seracdb.InterfaceError, "no condition"),
        ({"table": "pg_free", "filter": [(1, "=", 1)]}, seracdb.InterfaceError, "no condition"),
        ({"table": "nix"}, seracdb.ProgrammingError, 'relation "nix" does not exist'),
        ({"table": "pg_free", "schema": "nix"}, seracdb.ProgrammingError, 'schema "nix" does not exist'),
        ({"table": "pg_free", "columns": ["nix"]}, seracdb.ProgrammingError, 'column "nix" does not exist'),
        ({"table": "pg_free", "tls_roots": "/no/such/file"}, FileNotFoundError, "No such file"),
    ]
    for options, error, message in wrong:
        with pytest.raises(error, match=message):
            remote.plan(url, **options)
    with pytest.raises(seracdb.InterfaceError, match="is no address"):
        remote.plan("127.0.0.1:8815", table="t")
    with pytest.raises(seracdb.InterfaceError, match="say an address"):
        remote.plan([], table="t")
    with remote.plan(url, table="pg_free", columns=[]) as plan:
        assert sum(batch.num_rows for part in plan.partitions for batch in part.read()) == 1
    with pytest.raises(seracdb.InterfaceError, match="the plan is closed"):
        remote.plan_of(plan, {})
    with remote.plan(url, table="pg_free") as plan, pytest.raises(seracdb.InterfaceError, match="takes no options"):
        remote.plan_of(plan, {"table": "t"})


class Naming(flight.FlightServerBase):  # type: ignore[misc]
    """A server whose endpoints have these locations. It notes the tokens of those who read here."""

    SCHEMA = pyarrow.schema([("n", pyarrow.int64())])

    def __init__(self, host, locations=(), *, fails=False):
        super().__init__(f"grpc://{host}:0", middleware={"token": Tokens()})
        self.url = f"grpc://{host}:{self.port}"
        self.locations, self.fails, self.tokens = list(locations), fails, []

    def get_flight_info(self, context, descriptor):
        endpoints = [flight.FlightEndpoint(flight.Ticket(b"2"), self.locations) for _ in range(2)]
        return flight.FlightInfo(self.SCHEMA, descriptor, endpoints, -1, -1)

    def do_get(self, context, ticket):
        self.tokens.append(context.get_middleware("token").token)
        if self.fails:
            raise flight.FlightServerError("not here")
        rows = list(range(int(ticket.ticket)))
        return flight.RecordBatchStream(pyarrow.table({"n": rows}, schema=self.SCHEMA))

    def do_action(self, context, action):
        return []


class Tokens(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def start_call(self, info, headers):
        return Token(headers.get("authorization", [None])[0])


class Token(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, token):
        self.token = token


def test_streams_are_read_at_locations_that_are_allowed():
    other_host = "127.0.0.2"
    with Naming("127.0.0.1") as beside, Naming(other_host) as elsewhere, Naming("127.0.0.1", fails=True) as broken:
        strangers = [elsewhere.url, f"grpc+tls://{other_host}:{elsewhere.port}", f"http://127.0.0.1:{beside.port}"]
        strangers += [f"grpc://127.0.0.1@{other_host}:{elsewhere.port}", "grpc+unix:///tmp/nowhere"]
        for locations, reads in [
            ([], "asked"),
            (["arrow-flight-reuse-connection://?"], "asked"),
            ([beside.url], "beside"),
            ([beside.url, *strangers], "beside"),
            (strangers * 1000, "asked"),
            ([broken.url], "asked"),
            # Nobody listens there.
            (["grpc://127.0.0.1:1"], "asked"),
        ]:
            with Naming("127.0.0.1", locations) as asked:
                with remote.plan(asked.url, table="t", token="a-secret") as plan:
                    assert plan.read()["n"].to_pylist() == [0, 1, 0, 1], locations
                read = {"asked": asked, "beside": beside}[reads]
                assert read.tokens == ["Bearer a-secret"] * 2, locations
                beside.tokens.clear()
        assert len(broken.tokens) == 2 and not elsewhere.tokens
        with Naming("127.0.0.1", [elsewhere.url]) as asked:
            with remote.plan(asked.url, table="t", token="a-secret", locations=[elsewhere.url]) as plan:
                assert plan.read().num_rows == 4
                assert pickle.loads(pickle.dumps(plan.partitions)) == plan.partitions
            assert len(elsewhere.tokens) == 2 and not asked.tokens


def test_which_locations_get_the_token():
    plain, secret = remote.Server("grpc://db:1"), remote.Server("grpc+tls://DB:1", locations=("grpc://replica:2",))
    for location, by_plain, by_secret in [
        ("grpc://db:9", True, False),
        ("grpc+tls://db:9", True, True),
        ("grpc://replica:2", False, True),
        ("grpc+tcp://Replica:2", False, True),
        ("grpc://replica:3", False, False),
        ("grpc+tls://replica:2", False, False),
        ("grpc://db@elsewhere:1", False, False),
        ("grpc://elsewhere:1#db:1", False, False),
        ("grpc://db.elsewhere:1", False, False),
        ("grpc://db:0", False, False),
        ("grpc://db:٣", False, False),
        ("grpc://db:1\n", False, False),
        ("grpc+unix:///db:1", False, False),
        ("", False, False),
    ]:
        assert (plain.allows(location), secret.allows(location)) == (by_plain, by_secret), location
    # A socket is on no host.
    socket = remote.Server("grpc+unix:///run/db", locations=("grpc://db:1",))
    assert socket.allows("grpc://db:1") and not socket.allows("grpc://db:9")
    for wrong in ("grpc://replica", "replica:2", "http://replica:2"):
        with pytest.raises(seracdb.InterfaceError, match="is no location"):
            remote.plan("grpc://127.0.0.1:1", table="t", locations=[wrong])
