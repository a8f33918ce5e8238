"""ADBC's driver for Flight SQL, with pandas and Polars, against the server. Arguments: which of
the checks, the server's URI, and what they need."""

import datetime as dt
import decimal
import json
import sys
import threading
import time

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi as adbc
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.flight as flight

CHECKS, URI, *MORE = sys.argv[1:]
OPTIONS = adbc_driver_flightsql.DatabaseOptions
COOKIES = {OPTIONS.WITH_COOKIE_MIDDLEWARE.value: "true"}


def connect(autocommit=True, **options):
    return adbc.connect(URI, db_kwargs=options, autocommit=autocommit)


def raises(kind, run, *texts):
    try:
        run()
    except kind as error:
        assert all(text in str(error) for text in texts), error
        return error
    raise AssertionError(f"{kind.__name__} was expected")


def rows_of(connection, sql, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


def rows_of_nothing(connection, sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)


def statements():
    """Cursors: queries, changes, parameters, errors."""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, price NUMERIC(12,2), day DATE)")
        cursor.execute("INSERT INTO t VALUES (1, 'one', 1.50, DATE '2024-02-29'), (2, NULL, NULL, NULL)")
        assert cursor.rowcount == 2, cursor.rowcount
        cursor.execute("SELECT * FROM t ORDER BY id")
        assert cursor.fetchall() == [(1, "one", decimal.Decimal("1.50"), dt.date(2024, 2, 29)), (2, None, None, None)]
        assert [column[0] for column in cursor.description] == ["id", "name", "price", "day"]
        # Marks are parameters, and so are numbers. Values become of their columns' types.
        rows = [(3, "three?", decimal.Decimal("3"), dt.date(2000, 1, 1)), (4, "ü 🧊", None, None)]
        cursor.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        assert rows_of(connection, "SELECT id, name FROM t WHERE id = ?", (3,)) == [(3, "three?")]
        assert rows_of(connection, "SELECT id FROM t WHERE name = $1 AND day IS NULL", ("ü 🧊",)) == [(4,)]
        assert rows_of(connection, "SELECT ? + 1, '?'", (41,)) == [(42, "?")]
        many = [(i, f"row {i}", decimal.Decimal(i), None) for i in range(10, 1_010)]
        cursor.executemany("INSERT INTO t VALUES ($1, $2, $3, $4)", many)
        assert cursor.rowcount == 1_000, cursor.rowcount
        # The same statement with other values, and with several rows of them.
        cursor.execute("SELECT name FROM t WHERE id = ?", (10,))
        assert cursor.fetchall() == [("row 10",)]
        cursor.execute("SELECT name FROM t WHERE id = ?", (11,))
        assert cursor.fetchall() == [("row 11",)]
        cursor.execute("SELECT name FROM t WHERE id = ?", pa.record_batch([pa.array([12, 13, 99_999])], ["id"]))
        assert cursor.fetchall() == [("row 12",), ("row 13",)]
        cursor.execute("UPDATE t SET price = price + ? WHERE id BETWEEN ? AND ?", (1, 10, 19))
        assert cursor.rowcount == 10, cursor.rowcount
        cursor.execute("DELETE FROM t WHERE id = 11 RETURNING id, price")
        assert cursor.fetchall() == [(11, decimal.Decimal("12.00"))]
        # A batch of rows of which one is wrong does nothing.
        duplicate = [(5_000, "a", None, None), (1, "again", None, None)]
        raises(Exception, lambda: cursor.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", duplicate), "23505")
        assert rows_of(connection, "SELECT count(*) FROM t WHERE id = 5000") == [(0,)]
    with connect() as connection:
        for sql, sqlstate in [
            ("SELECT * FROM nothing", "42P01"),
            ("SELEKT 1", "42601"),
            ("SELECT 1 / 0", "22012"),
            ("SELECT 1; SELECT 2", "42601"),
            (";", "42601"),
            ("INSERT INTO t (id) VALUES (1)", "23505"),
            ("CREATE TABLE t (a INTEGER)", "42P07"),
            ("BEGIN", "0A000"),
            ("SET timezone = 'UTC'", "0A000"),
            ("CREATE TEMPORARY TABLE own (a INTEGER)", "0A000"),
            ("COPY t FROM STDIN", "0A000"),
            ("LISTEN channel", "0A000"),
        ]:
            raises(adbc.Error, lambda: rows_of(connection, sql), sqlstate)
        raises(adbc.Error, lambda: rows_of(connection, "SELECT id FROM t WHERE id = ?", (1, 2)), "08P01")
        raises(adbc.Error, lambda: rows_of(connection, "SELECT id FROM t WHERE id = ?", ("x",)), "22P02")
        raises(adbc.Error, lambda: rows_of(connection, "SELECT id FROM t WHERE id = ?"), "08P01")
        raises(adbc.NotSupportedError, lambda: rows_of(connection, "CREATE DATABASE x"))
        # What is not in a table: nested types, NULL of no type, many columns of one name.
        lists = rows_of(connection, "SELECT array_agg(name ORDER BY id), NULL, 1 AS a, 2 AS a FROM t WHERE id < 4")
        assert lists == [(["one", None, "three?"], None, 1, 2)], lists
    types()


def forms():
    """Texts and short decimals in the types that the client says it knows, also where they are
    parameters."""
    values = [("a text of more than twelve bytes", b"\x00\x01", decimal.Decimal("-12.34"), decimal.Decimal("5")), (None,) * 4]
    usual = [pa.string_view(), pa.binary_view(), pa.decimal128(12, 2), pa.decimal128(38, 4)]
    short = {2: pa.decimal64(12, 2)}
    offsets = {0: pa.string(), 1: pa.binary()}
    for headers, changed in [
        ({}, {}),
        ({"serac-decimals": "decimal64"}, short),
        ({"serac-strings": "utf8"}, offsets),
        ({"serac-decimals": "decimal64", "serac-strings": "utf8"}, short | offsets),
        ({"serac-decimals": "decimal128", "serac-strings": "view"}, {}),
    ]:
        options = {f"adbc.flight.sql.rpc.call_header.{name}": value for name, value in headers.items()}
        with connect(**options) as connection, connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS f")
            cursor.execute("CREATE TABLE f (t TEXT, b BYTEA, short NUMERIC(12,2), long NUMERIC(38,4))")
            cursor.executemany("INSERT INTO f VALUES (?, ?, ?, ?)", values)
            wanted = [changed.get(i, usual_type) for i, usual_type in enumerate(usual)]
            for sql, parameters in [("SELECT * FROM f", None), ("SELECT * FROM f WHERE short = ? OR t IS NULL", (decimal.Decimal("-12.34"),))]:
                cursor.execute(sql, parameters)
                table = cursor.fetch_arrow_table()
                assert [field.type for field in table.schema] == wanted, (headers, table.schema)
                assert [tuple(row.values()) for row in table.to_pylist()] == values, table
            # Columns of a table as they are, and what is computed of them.
            cursor.execute("SELECT b, short AS again, short + short AS twice, short FROM f WHERE t IS NOT NULL")
            again = cursor.fetch_arrow_table()
            twice = pa.decimal64(13, 2) if 2 in changed else pa.decimal128(13, 2)
            assert [field.type for field in again.schema] == [wanted[1], wanted[2], twice, wanted[2]], (headers, again.schema)
            assert [tuple(row.values())[1:3] for row in again.to_pylist()] == [(decimal.Decimal("-12.34"), decimal.Decimal("-24.68"))]
            cursor.execute("SELECT again FROM (SELECT short AS again, t FROM f LIMIT 2) ORDER BY t NULLS LAST")
            assert cursor.fetchall() == [(decimal.Decimal("-12.34"),), (None,)]
            # What has come goes back.
            assert cursor.adbc_ingest("g", table, mode="replace" if headers else "create") == 2
            assert rows_of(connection, "SELECT count(*) FROM f JOIN g ON f.short = g.short AND f.long = g.long") == [(1,)]


    dictionaries()


def dictionaries():
    """Texts of few different values as dictionaries, whatever comes later."""
    options = {"adbc.flight.sql.rpc.call_header.serac-strings": "dictionary"}
    few, words = (pa.dictionary(code, pa.string()) for code in (pa.uint8(), pa.uint16()))
    with connect(**options) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE d (id BIGINT PRIMARY KEY, short TEXT, long TEXT, own TEXT, later TEXT, more TEXT)")
        cursor.execute(
            "INSERT INTO d SELECT i, CASE i % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'bc' END, 'the same text is long, but for ' || i % 5, "
            "'row ' || i, CASE WHEN i < 150000 THEN 'early' ELSE 'late ' || i END, 'one of ' || i % 100 FROM generate_series(0, 299999) AS g(i)"
        )
        cursor.execute("SELECT * FROM d ORDER BY id")
        table = cursor.fetch_arrow_table()
        assert [field.type for field in table.schema] == [pa.int64(), few, few, pa.string(), few, words], table.schema
        want = {
            "short": lambda i: ("a", "bc", None)[i % 3],
            "long": lambda i: f"the same text is long, but for {i % 5}",
            "own": lambda i: f"row {i}",
            "later": lambda i: "early" if i < 150_000 else f"late {i}",
            "more": lambda i: f"one of {i % 100}",
        }
        frame = table.to_pandas()
        assert str(frame["short"].dtype) == str(frame["long"].dtype) == "category", frame.dtypes
        for name, of in want.items():
            expected = [of(i) for i in range(300_000)]
            assert table[name].to_pylist() == expected, name
            assert pl.from_arrow(table)[name].cast(pl.String).to_list() == expected, name
        # Few rows, or none, are no dictionaries; other results are what they were.
        cursor.execute("SELECT short FROM d WHERE id < 4 ORDER BY id")
        assert cursor.fetchall() == [("a",), ("bc",), (None,), ("a",)]
        cursor.execute("SELECT short FROM d WHERE id < 0")
        assert cursor.fetchall() == []
        cursor.execute("DELETE FROM d WHERE id = 3 RETURNING short")
        assert cursor.fetchall() == [("a",)]
        assert connection.adbc_get_table_schema("d").field("short").type == pa.string()
        # What there is comes in Flight SQL's own columns, however many rows share a name.
        for i in range(100):
            rows_of_nothing(connection, f"CREATE TABLE of_many_{i} (id BIGINT)")
        schemas = connection.adbc_get_objects(depth="tables", table_name_filter="of_many_%").read_all()["catalog_db_schemas"][0].as_py()
        assert sum(len(schema["db_schema_tables"] or []) for schema in schemas) == 100
        for i in range(100):
            rows_of_nothing(connection, f"DROP TABLE of_many_{i}")


def types():
    values = {
        "BOOLEAN": pa.array([True, None, False]),
        "SMALLINT": pa.array([-32768, None, 7], pa.int16()),
        "INTEGER": pa.array([-(2**31), None, 12], pa.int32()),
        "BIGINT": pa.array([2**63 - 1, None, -5]),
        "REAL": pa.array([0.5, None, -1.25], pa.float32()),
        "DOUBLE PRECISION": pa.array([0.1, None, 1e300]),
        "NUMERIC(12,2)": pa.array([decimal.Decimal("0.05"), None, decimal.Decimal("-1234567890.12")], pa.decimal128(12, 2)),
        "NUMERIC(38,10)": pa.array([decimal.Decimal("1.0000000001"), None, None], pa.decimal128(38, 10)),
        "TEXT": pa.array(["", None, "a text that is longer than twelve bytes 🧊"]),
        "BYTEA": pa.array([b"", None, bytes(range(256))]),
        "DATE": pa.array([dt.date(2024, 2, 29), None, dt.date(1, 1, 1)]),
        "TIME": pa.array([dt.time(0, 0), None, dt.time(23, 59, 59, 999999)]),
        "TIMESTAMP": pa.array([dt.datetime(1999, 12, 31, 23, 59, 59, 1), None, dt.datetime(1, 1, 1)]),
        "TIMESTAMPTZ": pa.array([dt.datetime(2026, 11, 21, tzinfo=dt.timezone.utc), None, None], pa.timestamp("us", "UTC")),
        "UUID": pa.array([bytes(16), None, bytes(range(16))], pa.binary(16)),
    }
    with connect() as connection, connection.cursor() as cursor:
        columns = ", ".join(f"c{i} {name}" for i, name in enumerate(values))
        cursor.execute(f"CREATE TABLE types (n INTEGER, {columns})")
        table = pa.table({"n": pa.array([0, 1, 2], pa.int32()), **{f"c{i}": v for i, v in enumerate(values.values())}})
        # By parameters, and as batches.
        marks = ", ".join("?" for _ in range(len(values) + 1))
        cursor.executemany(f"INSERT INTO types VALUES ({marks})", table)
        assert cursor.adbc_ingest("types", table, mode="append") == 3
        for half in (0, 1):
            cursor.execute(f"SELECT * FROM types ORDER BY n LIMIT 6")
            got = cursor.fetch_arrow_table()
            for i, (name, wanted) in enumerate(values.items()):
                assert got.column(f"c{i}").to_pylist()[half::2] == wanted.to_pylist(), (name, got.column(f"c{i}"))
        made = rows_of(connection, "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'types'")
        assert len(made) == len(values) + 1, made
        # Documents are Arrow's extension type for JSON.
        cursor.execute("CREATE TABLE documents (id INTEGER PRIMARY KEY, doc JSONB)")
        cursor.executemany("INSERT INTO documents VALUES (?, ?)", pa.table({"id": pa.array([1, 2], pa.int32()), "doc": ['{"b":1,"a":2}', None]}))
        assert cursor.adbc_ingest("documents", pa.table({"id": pa.array([3], pa.int32()), "doc": pa.array(["[1,  2]"], pa.large_string())}), mode="append") == 1
        cursor.execute("SELECT doc, id FROM documents ORDER BY id")
        got = cursor.fetch_arrow_table()
        assert got.column("doc").type == pa.json_(pa.large_string()), got.schema
        assert [value and json.loads(value) for value in got.column("doc").to_pylist()] == [{"a": 2, "b": 1}, None, [1, 2]], got
        assert cursor.adbc_ingest("documents_again", got, mode="create") == 3
        assert rows_of(connection, "SELECT pg_typeof(doc), doc ->> 'a' FROM documents_again WHERE id = 1") == [("jsonb", "2")]
        raises(adbc.Error, lambda: cursor.adbc_ingest("documents", pa.table({"id": pa.array([4], pa.int32()), "doc": ["{"]}), mode="append"), "22P02")
        # Types that no table has become those that hold them.
        odd = pa.table({
            "Big": pa.array([2**64 - 1, None], pa.uint64()),
            "tiny": pa.array([-1, 2], pa.int8()),
            "words": pa.array(["a", "b"]).dictionary_encode(),
            "large": pa.array(["x" * 20, None], pa.large_string()),
            "nanos": pa.array([1_000, 2_000], pa.timestamp("ns")),
        })
        assert cursor.adbc_ingest("odd", odd, mode="create") == 2
        got = rows_of(connection, 'SELECT "Big", tiny, words, large, nanos FROM odd ORDER BY tiny')
        second, third = dt.datetime(1970, 1, 1, 0, 0, 0, 1), dt.datetime(1970, 1, 1, 0, 0, 0, 2)
        assert got == [(decimal.Decimal(2**64 - 1), -1, "a", "x" * 20, second), (None, 2, "b", None, third)], got


def transactions():
    """Autocommit off: commits, rollbacks, conflicts, prepared statements that outlive their
    transaction."""
    with connect() as setup:
        rows_of(setup, "CREATE TABLE a (id BIGINT PRIMARY KEY, v BIGINT)")
        rows_of(setup, "INSERT INTO a VALUES (1, 0), (2, 0)")
        with connect(autocommit=False) as one, connect(autocommit=False) as two:
            first, second = one.cursor(), two.cursor()
            second.execute("SELECT v FROM a WHERE id = 1")
            assert second.fetchall() == [(0,)]
            first.execute("UPDATE a SET v = v + 1 WHERE id = 1")
            second.execute("SELECT v FROM a WHERE id = 1")
            assert second.fetchall() == [(0,)]
            one.commit()
            raises(adbc.Error, lambda: second.execute("UPDATE a SET v = v + 10 WHERE id = 1"), "40001")
            # The transaction has failed, up to its end.
            raises(adbc.Error, lambda: second.execute("SELECT 1"), "25P02")
            # The next one begins at once, and sees what is there then.
            two.rollback()
            second.execute("SELECT v FROM a WHERE id = 1")
            assert second.fetchall() == [(1,)]
            # One cursor, one statement, several transactions.
            insert = one.cursor()
            for i in range(10, 14):
                insert.execute("INSERT INTO a VALUES (?, ?)", (i, i))
                one.commit() if i % 2 == 0 else one.rollback()
            assert rows_of(setup, "SELECT id FROM a WHERE id >= 10 ORDER BY id") == [(10,), (12,)]
            # Temporary tables live in the session of the transaction.
            rows_of(one, "CREATE TEMPORARY TABLE own (x BIGINT)")
            rows_of(one, "INSERT INTO own VALUES (7)")
            assert rows_of(one, "SELECT x FROM own") == [(7,)]
            one.commit()
        # A connection that goes away takes its transaction with it, after a while.
        assert rows_of(setup, "SELECT count(*) FROM a") == [(4,)]


def sessions():
    """A client that keeps cookies has a session."""
    with connect(**COOKIES) as connection, connect(**COOKIES) as other:
        rows_of(connection, "SELECT 1")
        rows_of(other, "SELECT 1")
        cursor = connection.cursor()
        assert cursor.adbc_ingest("own", pa.table({"x": [1, 2, 3]}), mode="create", temporary=True) == 3
        assert rows_of(connection, "SELECT sum(x) FROM own") == [(6,)]
        raises(adbc.Error, lambda: rows_of(other, "SELECT sum(x) FROM own"), "42P01")
        rows_of(connection, "BEGIN")
        rows_of(connection, "CREATE TABLE made (a BIGINT)")
        raises(adbc.Error, lambda: rows_of(other, "SELECT * FROM made"), "42P01")
        rows_of(connection, "ROLLBACK")
        raises(adbc.Error, lambda: rows_of(connection, "SELECT * FROM made"), "42P01")
        # The driver ingests without naming its transaction: in a session it is in the transaction
        # all the same.
        with connect(autocommit=False, **COOKIES) as third:
            third.cursor().adbc_ingest("b", pa.table({"x": [1, 2, 3]}), mode="create")
            assert rows_of(third, "SELECT count(*) FROM b") == [(3,)]
            raises(adbc.Error, lambda: rows_of(other, "SELECT count(*) FROM b"), "42P01")
            third.rollback()
            raises(adbc.Error, lambda: rows_of(third, "SELECT count(*) FROM b"), "42P01")
        # Two results of one session, read in turns: neither waits for the other.
        n = 1_000_000
        slow, quick = connection.cursor(), connection.cursor()
        slow.execute(f"SELECT value, value + 1 FROM generate_series(1, {n}) AS g (value)")
        readers = [slow.fetch_record_batch()]
        quick.execute(f"SELECT value FROM generate_series(1, {n}) AS g (value)")
        readers.append(quick.fetch_record_batch())
        counts = [0, 0]
        ended = [False, False]
        while not all(ended):
            for i, reader in enumerate(readers):
                if not ended[i]:
                    try:
                        counts[i] += reader.read_next_batch().num_rows
                    except StopIteration:
                        ended[i] = True
        assert counts == [n, n], counts


def ingest():
    """Batches into tables, new ones and others."""
    n = 200_000
    table = pa.table({"id": range(n), "text": [f"text number {i % 1000}" for i in range(n)], "half": [i / 2 for i in range(n)]})
    with connect() as connection, connection.cursor() as cursor:
        assert cursor.adbc_ingest("big", table, mode="create") == n
        raises(adbc.Error, lambda: cursor.adbc_ingest("big", table, mode="create"), "42P07")
        raises(adbc.Error, lambda: cursor.adbc_ingest("nothing", table, mode="append"), "42P01")
        assert cursor.adbc_ingest("big", table.slice(0, 10), mode="replace") == 10
        assert cursor.adbc_ingest("big", table.to_reader(max_chunksize=1_000), mode="create_append") == n
        assert rows_of(connection, "SELECT count(*), sum(id), count(DISTINCT text) FROM big") == [
            (n + 10, sum(range(n)) + 45, 1_000)
        ]
        # Columns by their names; what is not brought takes its default.
        cursor.execute("CREATE TABLE named (id BIGSERIAL PRIMARY KEY, a BIGINT DEFAULT 7, b TEXT NOT NULL, CHECK (a > 0))")
        assert cursor.adbc_ingest("named", pa.table({"b": ["x", "y"]}), mode="append") == 2
        assert cursor.adbc_ingest("named", pa.table({"b": ["z"], "a": [1]}), mode="append", db_schema_name="public") == 1
        assert rows_of(connection, "SELECT id, a, b FROM named ORDER BY id") == [(1, 7, "x"), (2, 7, "y"), (3, 1, "z")]
        # A cursor keeps what it was told once.
        append = lambda table, **more: lambda: connection.cursor().adbc_ingest("named", pa.table(table), mode="append", **more)
        raises(adbc.Error, append({"b": ["x"], "nothing": [1]}), "42703")
        raises(adbc.Error, append({"a": [1]}), "23502")
        raises(adbc.Error, append({"b": ["x", "y"], "a": [5, 0]}), "23514")
        raises(adbc.Error, append({"b": ["x"], "a": ["no number"]}), "22")
        raises(adbc.Error, append({"b": ["x"]}, catalog_name="other"), "3D000")
        raises(adbc.Error, append({"b": ["x"]}, db_schema_name="other"), "42P01")
        assert rows_of(connection, "SELECT count(*) FROM named") == [(3,)]
        cursor.execute("CREATE SCHEMA s")
        other = connection.cursor()
        assert other.adbc_ingest("t", pa.table({"a": [1]}), mode="create", db_schema_name="s", catalog_name="serac") == 1
        assert rows_of(connection, "SELECT a FROM s.t") == [(1,)]


def frames():
    """pandas and Polars."""
    with connect() as connection:
        frame = pd.DataFrame({"id": [1, 2, 3], "name": ["a", "b", None], "value": [0.5, 1.5, 2.5]})
        assert frame.to_sql("frame", connection, index=False) == 3
        read = pd.read_sql("SELECT * FROM frame ORDER BY id", connection)
        assert read["name"].tolist()[:2] == ["a", "b"] and read["value"].sum() == 4.5, read
        with connection.cursor() as cursor:
            cursor.execute("SELECT name, count(*) AS n FROM frame GROUP BY name ORDER BY n, name")
            assert len(cursor.fetch_df()) == 3
        polars = pl.DataFrame({"id": [10, 20], "when": [dt.date(2020, 1, 1), None], "word": ["x", "y"]})
        assert polars.write_database("polars", connection, engine="adbc") == 2
        assert polars.write_database("polars", connection, engine="adbc", if_table_exists="append") == 2
        back = pl.read_database("SELECT * FROM polars ORDER BY id", connection)
        assert back.equals(pl.concat([polars, polars]).sort("id")), back
        one = pl.read_database("SELECT id FROM polars WHERE id > ?", connection, execute_options={"parameters": [15]})
        assert one["id"].to_list() == [20, 20]


def metadata():
    """What drivers ask of a catalog."""
    with connect() as connection, connection.cursor() as cursor:
        for sql in [
            "CREATE SCHEMA shop",
            "CREATE TABLE shop.parents (a BIGINT, b TEXT, v NUMERIC(10,2), PRIMARY KEY (b, a))",
            "CREATE TABLE shop.children (id BIGINT PRIMARY KEY, a BIGINT, b TEXT, "
            "CONSTRAINT to_parent FOREIGN KEY (a, b) REFERENCES shop.parents (a, b) ON DELETE CASCADE)",
            "CREATE VIEW shop.seen AS SELECT id, b AS name FROM shop.children",
        ]:
            cursor.execute(sql)
        info = connection.adbc_get_info()
        assert info["vendor_name"] == "SeracDB" and info["vendor_arrow_version"], info
        assert connection.adbc_get_table_types() == ["FOREIGN TABLE", "LOCAL TEMPORARY", "TABLE", "VIEW"]
        objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        (catalog,) = objects
        assert catalog["catalog_name"] == "serac"
        schemas = {schema["db_schema_name"]: schema["db_schema_tables"] for schema in catalog["catalog_db_schemas"]}
        assert set(schemas) == {"public", "shop"}, schemas
        tables = {table["table_name"]: table for table in schemas["shop"]}
        assert {(name, table["table_type"]) for name, table in tables.items()} == {
            ("parents", "TABLE"), ("children", "TABLE"), ("seen", "VIEW"),
        }
        columns = [column["column_name"] for column in tables["parents"]["table_columns"]]
        assert columns == ["a", "b", "v"], columns
        assert [column["column_name"] for column in tables["seen"]["table_columns"]] == ["id", "name"]
        only = connection.adbc_get_objects(depth="tables", db_schema_filter="sh%", table_name_filter="ch_ldren")
        (catalog,) = only.read_all().to_pylist()
        assert [t["table_name"] for s in catalog["catalog_db_schemas"] for t in s["db_schema_tables"] or []] == ["children"]
        schema = connection.adbc_get_table_schema("parents", db_schema_filter="shop")
        assert schema.field("v").type == pa.decimal128(10, 2) and not schema.field("a").nullable, schema
        raises(adbc.Error, lambda: connection.adbc_get_table_schema("nothing"))
    plain = flight.FlightClient(URI)
    # The tables' own flights are where they were.
    assert [f.descriptor.path for f in plain.list_flights()] == [[b"shop", b"children"], [b"shop", b"parents"]]
    plain_info = plain.get_flight_info(flight.FlightDescriptor.for_path("shop", "parents"))
    assert plain.do_get(plain_info.endpoints[0].ticket).read_all().num_rows == 0
    actions = {action.type for action in plain.list_actions()}
    assert {"CancelFlightInfo", "RenewFlightEndpoint", "BeginTransaction", "CreatePreparedStatement"} <= actions


def cancelling():
    """A statement that is cancelled, and a client that leaves."""
    endless = "SELECT count(*) FROM generate_series(1, 100000000000) a"
    with connect() as connection:
        for _ in range(2):
            cursor = connection.cursor()
            timer = threading.Timer(0.5, cursor.adbc_cancel)
            timer.start()
            started = time.monotonic()
            raises(adbc.Error, lambda: (cursor.execute(endless), cursor.fetchall()))
            assert time.monotonic() - started < 20
            timer.join()
        # What is left alone ends, and the connection goes on.
        cursor = connection.cursor()
        cursor.execute("SELECT value FROM generate_series(1::BIGINT, 50000000) AS g (value)")
        assert cursor.fetchone() == (1,)
        cursor.close()
        assert rows_of(connection, "SELECT 1") == [(1,)]


def passwords():
    """User and password become a token; the wrong ones become nothing."""
    (user, password) = MORE
    with connect(username=user, password=password) as connection:
        assert rows_of(connection, "SELECT current_user") == [(user,)]
    raises(Exception, lambda: connect(username=user, password="wrong").close(), "28P01")
    raises(Exception, lambda: connect(username="nobody", password=password).close(), "28P01")
    with raises_context():
        with connect() as connection:
            rows_of(connection, "SELECT 1")
    client = flight.FlightClient(URI)
    header = client.authenticate_basic_token(user, password)
    options = flight.FlightCallOptions(headers=[header])
    assert [list(client.list_flights(options=options))] == [[]]
    raises(flight.FlightUnauthenticatedError, lambda: list(client.list_flights()))
    other = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer 0123456789abcdef0123456789abcdef")])
    raises(flight.FlightUnauthenticatedError, lambda: list(client.list_flights(options=other)))


def roles():
    """What a role may not read it does not get: not by statements, views, indexes and system
    views, and not as a flight; and it writes nothing."""
    # From the first password on, everybody must show one: the connection that sets it cannot even
    # close its statement.
    with raises_context(), connect() as first:
        rows_of_nothing(first, "CREATE ROLE owner SUPERUSER LOGIN PASSWORD 'root'")
    with connect(username="owner", password="root") as owner:
        for statement in (
            "CREATE TABLE secret (id BIGINT PRIMARY KEY, kind BIGINT, word TEXT)",
            "CREATE INDEX secret_kind ON secret USING bitmap (kind)",
            "INSERT INTO secret SELECT v, v % 3, 'word ' || v FROM generate_series(1, 5000) AS g (v)",
            "CREATE TABLE open (id BIGINT PRIMARY KEY)",
            "INSERT INTO open VALUES (1)",
            "CREATE VIEW lent AS SELECT count(*) AS n FROM secret",
            "CREATE VIEW kept AS SELECT * FROM secret",
            "CREATE ROLE reader LOGIN",
            "GRANT SELECT ON open, lent TO reader",
            "ALTER ROLE reader PASSWORD 'pass'",
        ):
            rows_of_nothing(owner, statement)
    raises(Exception, lambda: connect(username="reader", password="root").close(), "28P01")
    denied = lambda run: raises(Exception, run, "42501")
    plain = lambda user, password: flight.FlightCallOptions(headers=[client.authenticate_basic_token(user, password)])
    client = flight.FlightClient(URI)
    (as_reader, as_owner) = (plain("reader", "pass"), plain("owner", "root"))
    paths = lambda options: [f.descriptor.path[-1] for f in client.list_flights(options=options)]
    with connect(username="owner", password="root") as owner, connect(username="reader", password="pass") as reader:
        assert rows_of(reader, "SELECT current_user") == [("reader",)]
        assert rows_of(reader, "SELECT id FROM open") == [(1,)]
        assert rows_of(reader, "SELECT n FROM lent") == [(5000,)]
        for query in (
            "SELECT * FROM secret",
            "SELECT word FROM secret WHERE id = 7",
            "SELECT count(*) FROM secret WHERE kind = 1",
            "SELECT kind, count(*) FROM secret GROUP BY kind",
            "SELECT open.id FROM open JOIN secret ON secret.id = open.id",
            "SELECT id FROM open WHERE EXISTS (SELECT 1 FROM secret)",
            "SELECT * FROM kept",
            "SELECT max(id) FROM kept",
            "EXPLAIN ANALYZE SELECT * FROM secret",
            "CREATE TABLE copied AS SELECT * FROM secret",
            "INSERT INTO open SELECT id FROM secret WHERE id > 1",
            "INSERT INTO open VALUES (2)",
            "UPDATE open SET id = 3",
            "DELETE FROM secret",
            "TRUNCATE open",
            "DROP TABLE open",
            "ALTER TABLE secret ADD COLUMN x BIGINT",
            "CREATE INDEX secret_word ON secret (word)",
            "GRANT SELECT ON secret TO reader",
            "ALTER ROLE reader SUPERUSER",
        ):
            denied(lambda: rows_of(reader, query))
        # A session of one statement would forget it at once.
        raises(Exception, lambda: rows_of(reader, "SET ROLE owner"), "0A000", "needs a session")
        # The parameters of a prepared statement, too.
        denied(lambda: rows_of(reader, "SELECT word FROM secret WHERE id = ?", (7,)))
        for view in ("serac_blocks", "serac_indexes"):
            assert rows_of(reader, f"SELECT * FROM {view} WHERE table_name = 'secret'") == []
            assert rows_of(owner, f"SELECT * FROM {view} WHERE table_name = 'secret'") != []
        # Flights of whole tables.
        assert (paths(as_reader), paths(as_owner)) == ([b"open"], [b"open", b"secret"])
        assert client.do_get(client.get_flight_info(flight.FlightDescriptor.for_path("open"), as_reader).endpoints[0].ticket, as_reader).read_all().num_rows == 1
        info = client.get_flight_info(flight.FlightDescriptor.for_path("secret"), as_owner)
        assert sum(client.do_get(end.ticket, as_owner).read_all().num_rows for end in info.endpoints) == 5000
        refused = lambda run: raises(Exception, run, "unauthorized", "permission denied for table secret")
        refused(lambda: client.get_flight_info(flight.FlightDescriptor.for_path("secret"), as_reader))
        refused(lambda: client.get_schema(flight.FlightDescriptor.for_path("secret"), as_reader))
        # Somebody else's ticket is no key.
        raises(flight.FlightError, lambda: [client.do_get(end.ticket, as_reader).read_all() for end in info.endpoints])
        batch = pa.table({"id": [9]})
        with reader.cursor() as cursor:
            denied(lambda: cursor.adbc_ingest("open", batch, mode="append"))
            denied(lambda: cursor.adbc_ingest("open", batch, mode="replace"))
        # What is granted and revoked is felt at once, by statements that are prepared already, too.
        with reader.cursor() as cursor:
            query = "SELECT word FROM secret WHERE id = ?"
            rows_of_nothing(owner, "GRANT SELECT ON secret TO reader")
            cursor.execute(query, (7,))
            assert cursor.fetchall() == [("word 7",)]
            rows_of_nothing(owner, "REVOKE SELECT ON secret FROM reader")
            denied(lambda: (cursor.execute(query, (7,)), cursor.fetchall()))
        assert rows_of(owner, "SELECT count(*), min(id) FROM open") == [(1, 1)]
        assert rows_of(owner, "SELECT count(*) FROM secret") == [(5000,)]


class raises_context:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        assert kind is not None and "28000" in str(error), error
        return True


def encrypted():
    """TLS, with the certificate that the server has."""
    certificate = open(MORE[0]).read()
    with connect(**{OPTIONS.TLS_ROOT_CERTS.value: certificate}) as connection:
        assert rows_of(connection, "SELECT 1") == [(1,)]
        cursor = connection.cursor()
        assert cursor.adbc_ingest("t", pa.table({"a": range(100_000)}), mode="create") == 100_000
        cursor.execute("SELECT * FROM t")
        assert cursor.fetch_arrow_table().num_rows == 100_000
    raises(Exception, lambda: connect().cursor().execute("SELECT 1"))


for check in CHECKS.split(","):
    globals()[check]()
print("done")
