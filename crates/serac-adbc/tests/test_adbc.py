"""The driver through adbc_driver_manager: its DB-API, and the functions of ADBC below it."""

import datetime
import decimal
import threading
import time

import adbc_driver_manager
import pandas
import polars
import pyarrow
import pytest
from adbc_driver_manager import dbapi
from conftest import LIBRARY, connect


def rows(cur, query, parameters=None):
    cur.execute(query, parameters)
    return cur.fetchall()


# ---- queries


def test_rows_come_as_arrow_in_types_of_their_own(cur):
    cur.execute(
        "SELECT 1 AS i, 2.50::NUMERIC(5, 2) AS n, 'x' AS t, DATE '2024-02-29' AS d, TRUE AS b, "
        "TIMESTAMPTZ '2024-01-01 00:00:00Z' AS s, NULL::BIGINT AS z, 1e40::NUMERIC AS big"
    )
    table = cur.fetch_arrow_table()
    assert table.schema.field("i").type == pyarrow.int32()
    assert table.schema.field("n").type == pyarrow.decimal128(5, 2)
    assert pyarrow.types.is_timestamp(table.schema.field("s").type)
    row = table.to_pylist()[0]
    assert (row["i"], row["n"], row["t"], row["b"], row["z"]) == (1, decimal.Decimal("2.50"), "x", True, None)
    assert row["d"] == datetime.date(2024, 2, 29)
    # A number with digits of its own is a text.
    assert row["big"] == "1" + "0" * 40


def test_many_rows_are_streamed(cur):
    cur.execute("SELECT i FROM generate_series(1, 300000) AS g (i)")
    reader = cur.fetch_record_batch()
    assert sum(batch.num_rows for batch in reader) == 300_000


def test_results_outlive_the_next_statement(con):
    with con.cursor() as one, con.cursor() as other:
        one.execute("SELECT i FROM generate_series(1, 200000) AS g (i)")
        other.execute("SELECT 'between'")
        assert other.fetchone() == ("between",)
        assert one.fetch_arrow_table().num_rows == 200_000


def test_a_script_gives_its_last_result(cur):
    cur.adbc_statement.set_sql_query("CREATE TABLE t (a INT); INSERT INTO t VALUES (1); SELECT a + 1 FROM t")
    stream, _ = cur.adbc_statement.execute_query()
    assert pyarrow.RecordBatchReader.from_stream(stream).read_all().column(0).to_pylist() == [2]


def test_changes_tell_how_many_rows_they_changed(cur):
    cur.execute("CREATE TABLE t (a INT)")
    cur.execute("INSERT INTO t VALUES (1), (2), (3)")
    assert cur.rowcount == 3
    cur.execute("UPDATE t SET a = a + 1 WHERE a > 1")
    assert cur.rowcount == 2
    cur.execute("DELETE FROM t WHERE FALSE")
    assert cur.rowcount == 0
    cur.execute("SELECT a FROM t")
    assert cur.rowcount == -1
    assert rows(cur, "INSERT INTO t VALUES (9) RETURNING a * 2") == [(18,)]


def test_the_schema_of_a_query_is_known_before_it_runs(cur):
    schema = cur.adbc_execute_schema("SELECT 1 AS a, 'x' AS b")
    assert schema.names == ["a", "b"]


# ---- parameters


@pytest.mark.parametrize("mark", ["$1", "?", ":1"])
def test_parameters_are_bound(cur, mark):
    assert rows(cur, f"SELECT {mark} + 1", (41,)) == [(42,)]


def test_parameters_of_many_types(cur):
    cur.execute(
        "CREATE TABLE t (i INT, b BIGINT, d DOUBLE PRECISION, n NUMERIC(10, 3), t TEXT, y BYTEA, o BOOLEAN, "
        "a DATE, s TIMESTAMP, u UUID)"
    )
    moment = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456)
    uuid = "12345678-1234-5678-1234-567812345678"
    values = (1, 2**40, 0.5, decimal.Decimal("1.125"), "é", b"\0\xff", True, moment.date(), moment, uuid)
    marks = ", ".join(f"${i}" for i in range(1, 11))
    cur.execute(f"INSERT INTO t VALUES ({marks})", values)
    assert cur.rowcount == 1
    found = rows(cur, "SELECT i, b, d, n, t, y, o, a, s, u::TEXT FROM t")
    assert found == [values]
    cur.execute(f"INSERT INTO t VALUES ({marks})", (None,) * 10)
    assert rows(cur, "SELECT count(*) FROM t WHERE i IS NULL AND u IS NULL AND y IS NULL") == [(1,)]


def test_types_that_sql_does_not_have(con):
    table = pyarrow.table(
        {
            "u8": pyarrow.array([255], pyarrow.uint8()),
            "u32": pyarrow.array([2**32 - 1], pyarrow.uint32()),
            "u64": pyarrow.array([2**64 - 1], pyarrow.uint64()),
            "large": pyarrow.array(["x"], pyarrow.large_string()),
            "dictionary": pyarrow.array(["y"]).dictionary_encode(),
            "bytes": pyarrow.array([b"z"], pyarrow.large_binary()),
            "nanos": pyarrow.array([1_000_000_001_000], pyarrow.timestamp("ns")),
        }
    )
    with con.cursor() as cur:
        cur.execute("CREATE TABLE t (a INT, b BIGINT, c NUMERIC(20), d TEXT, e TEXT, f BYTEA, g TIMESTAMP)")
        cur.executemany("INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7)", table)
        (found,) = rows(cur, "SELECT * FROM t")
    moment = datetime.datetime(1970, 1, 1, 0, 16, 40, 1)
    assert found == (255, 2**32 - 1, decimal.Decimal(2**64 - 1), "x", "y", b"z", moment)


def test_many_rows_of_parameters_are_one_transaction(con):
    with con.cursor() as cur:
        cur.execute("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)")
        cur.executemany("INSERT INTO t VALUES ($1, $2)", [(i, f"n{i}") for i in range(500)])
        assert cur.rowcount == 500
        assert rows(cur, "SELECT count(*), max(name) FROM t") == [(500, "n99")]
        with pytest.raises(dbapi.IntegrityError) as caught:
            cur.executemany("INSERT INTO t VALUES ($1, $2)", [(1000, "new"), (1, "again")])
        assert caught.value.sqlstate == "23505"
        assert rows(cur, "SELECT count(*) FROM t WHERE id = 1000") == [(0,)]
        # No row: nothing happens.
        cur.executemany("INSERT INTO t VALUES ($1, $2)", pyarrow.table({"a": pyarrow.array([], "int32"), "b": pyarrow.array([], "string")}))
        assert rows(cur, "SELECT count(*) FROM t") == [(500,)]


def test_results_of_several_rows_of_parameters_follow_each_other(con):
    with con.cursor() as cur:
        statement = cur.adbc_statement
        statement.set_sql_query("SELECT $1 * 2 AS double")
        statement.prepare()
        assert pyarrow.schema(statement.get_parameter_schema()).names == ["0"]
        batch = pyarrow.record_batch({"x": pyarrow.array([1, 2, 3], "int32")})
        statement.bind(batch)
        stream, _ = statement.execute_query()
        table = pyarrow.RecordBatchReader.from_stream(stream).read_all()
        assert table.column(0).to_pylist() == [2, 4, 6]


class Rows:
    """An array for a driver manager, without the checks of a record batch."""

    def __init__(self, array):
        self.array = array

    def __arrow_c_array__(self, requested_schema=None):
        return self.array.__arrow_c_array__(requested_schema)


def test_rows_that_are_none_are_refused(con):
    with con.cursor() as cur:
        cur.execute("CREATE TABLE t (a INT, b TEXT)")
        statement = cur.adbc_statement
        columns = [pyarrow.array([1, 2], "int32"), pyarrow.array(["x", "y"])]
        null = pyarrow.StructArray.from_arrays(columns, ["a", "b"], mask=pyarrow.array([False, True]))
        no_text = pyarrow.StringArray.from_buffers(
            2, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pyarrow.py_buffer(b"\xff\xfe")
        )
        with pytest.raises(dbapi.ProgrammingError, match="NULL"):
            statement.bind(Rows(null))
        with pytest.raises(dbapi.ProgrammingError):
            statement.bind(Rows(columns[0]))
        statement.set_sql_query("INSERT INTO t VALUES ($1, $2)")
        statement.bind(Rows(pyarrow.StructArray.from_arrays([columns[0], no_text], ["a", "b"])))
        with pytest.raises(dbapi.DataError) as caught:
            statement.execute_update()
        assert caught.value.sqlstate == "22P03"
        with pytest.raises(dbapi.DataError) as caught:
            cur.adbc_ingest("t", pyarrow.table({"b": no_text}), mode="append")
        assert caught.value.sqlstate == "22P03"
        # The driver goes on.
        assert rows(cur, "SELECT count(*) FROM t") == [(0,)]


def test_parameters_have_types_of_their_own(cur):
    assert rows(cur, "SELECT $1", (2**40,)) == [(2**40,)]
    assert rows(cur, "SELECT $1", (1.5,)) == [(1.5,)]
    assert rows(cur, "SELECT $1", ("x",)) == [("x",)]
    assert rows(cur, "SELECT $1", (None,)) == [(None,)]


def test_a_wrong_number_of_parameters_is_refused(cur):
    with pytest.raises(dbapi.Error):
        cur.execute("SELECT $1 + $2", (1,))
    assert rows(cur, "SELECT 1") == [(1,)]


# ---- rows into tables


@pytest.fixture
def frame():
    return pyarrow.table({"id": pyarrow.array([1, 2, 3], "int64"), "name": ["a", None, "c"]})


def test_ingest_has_four_modes(con, frame):
    with con.cursor() as cur:
        with pytest.raises(dbapi.ProgrammingError) as caught:
            cur.adbc_ingest("t", frame, mode="append")
        assert caught.value.sqlstate == "42P01"
        assert cur.adbc_ingest("t", frame, mode="create") == 3
        with pytest.raises(dbapi.ProgrammingError) as caught:
            cur.adbc_ingest("t", frame, mode="create")
        assert caught.value.sqlstate == "42P07"
        assert caught.value.status_code == adbc_driver_manager.AdbcStatusCode.ALREADY_EXISTS
        assert cur.adbc_ingest("t", frame, mode="append") == 3
        assert cur.adbc_ingest("t", frame, mode="create_append") == 3
        assert rows(cur, "SELECT count(*), count(name) FROM t") == [(9, 6)]
        assert cur.adbc_ingest("t", frame.slice(0, 1), mode="replace") == 1
        assert cur.adbc_ingest("made", frame, mode="create_append") == 3
        assert rows(cur, "SELECT count(*) FROM t, made") == [(3,)]


def test_ingest_takes_streams_schemas_and_temporary_tables(con, frame):
    with con.cursor() as cur:
        cur.execute("CREATE SCHEMA s")
        many = pyarrow.table({"n": pyarrow.array(range(200_000), "int64")})
        reader = pyarrow.RecordBatchReader.from_batches(many.schema, many.to_batches(max_chunksize=10_000))
        assert cur.adbc_ingest("t", reader, mode="create", db_schema_name="s") == 200_000
        assert rows(cur, "SELECT sum(n) FROM s.t") == [(199_999 * 100_000,)]
        assert cur.adbc_ingest("own", frame, mode="create", temporary=True) == 3
        assert rows(cur, "SELECT count(*) FROM pg_temp.own") == [(3,)]
        with pytest.raises(dbapi.ProgrammingError):
            cur.adbc_ingest("t", frame, mode="create", catalog_name="elsewhere")


def test_an_ingest_that_fails_leaves_nothing(con):
    with con.cursor() as cur:
        cur.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        twice = pyarrow.table({"id": pyarrow.array([1, 2, 1], "int64")})
        with pytest.raises(dbapi.IntegrityError):
            cur.adbc_ingest("t", twice, mode="append")
        assert rows(cur, "SELECT count(*) FROM t") == [(0,)]
        wrong = pyarrow.table({"other": pyarrow.array([1], "int64")})
        with pytest.raises(dbapi.ProgrammingError) as caught:
            cur.adbc_ingest("t", wrong, mode="append")
        assert caught.value.sqlstate == "42703"


# ---- transactions


def test_transactions_are_committed_and_rolled_back():
    with connect() as con, con.cursor() as cur:
        cur.execute("CREATE TABLE t (a INT)")
        con.commit()
        cur.execute("INSERT INTO t VALUES (1)")
        con.rollback()
        assert rows(cur, "SELECT count(*) FROM t") == [(0,)]
        cur.execute("INSERT INTO t VALUES (2)")
        con.commit()
        with pytest.raises(dbapi.DataError) as caught:
            cur.execute("SELECT 1 / 0")
        assert caught.value.sqlstate == "22012"
        con.rollback()
        assert rows(cur, "SELECT a FROM t") == [(2,)]


def test_autocommit_is_an_option(con):
    native = con.adbc_connection
    assert native.get_option("adbc.connection.autocommit") == "true"
    with pytest.raises(adbc_driver_manager.Error):
        native.commit()
    native.set_autocommit(False)
    with con.cursor() as cur:
        cur.execute("CREATE TABLE t (a INT)")
        # Commits what is open.
        native.set_autocommit(True)
        native.set_autocommit(False)
        con.rollback()
        assert rows(cur, "SELECT count(*) FROM t") == [(0,)]


def test_isolation_and_reading_alone_are_options(con):
    native = con.adbc_connection
    level = "adbc.connection.transaction.isolation_level"
    before = native.get_option(level)
    for name in ("read_committed", "serializable", "snapshot"):
        native.set_options(**{level: f"adbc.connection.transaction.isolation.{name}"})
        assert native.get_option(level) == f"adbc.connection.transaction.isolation.{name}"
    native.set_options(**{level: "adbc.connection.transaction.isolation.default"})
    assert native.get_option(level) == before
    with pytest.raises(adbc_driver_manager.NotSupportedError):
        native.set_options(**{level: "adbc.connection.transaction.isolation.linearizable"})
    assert native.get_option("adbc.connection.readonly") == "false"
    native.set_options(**{"adbc.connection.readonly": "true"})
    with con.cursor() as cur, pytest.raises(dbapi.Error) as caught:
        cur.execute("CREATE TABLE t (a INT)")
    assert caught.value.sqlstate == "25006"


def test_conflicts_have_their_sqlstate(tmp_path):
    folder = str(tmp_path / "db")
    with connect(folder, autocommit=True) as one, connect(folder, autocommit=True) as other:
        with one.cursor() as cur:
            cur.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
            cur.execute("INSERT INTO t VALUES (1, 0)")
        one.adbc_connection.set_autocommit(False)
        with one.cursor() as cur, other.cursor() as beside:
            assert rows(cur, "SELECT n FROM t") == [(0,)]
            beside.execute("UPDATE t SET n = 1")
            with pytest.raises(dbapi.OperationalError) as caught:
                cur.execute("UPDATE t SET n = 2")
            assert caught.value.sqlstate == "40001"


# ---- databases


def test_a_folder_keeps_its_rows_and_may_be_opened_several_times(tmp_path):
    folder = tmp_path / "a b.db"
    with connect(f"seracdb:{folder}?durability=full&threads=1".replace(" ", "%20"), autocommit=True) as con:
        with con.cursor() as cur:
            cur.execute("CREATE TABLE t (a INT)")
            cur.execute("INSERT INTO t VALUES (7)")
        with connect(str(folder)) as other, other.cursor() as cur:
            assert rows(cur, "SELECT a FROM t") == [(7,)]
        with pytest.raises(dbapi.Error) as caught:
            connect(f"seracdb:{folder}?durability=off".replace(" ", "%20"))
        assert caught.value.sqlstate == "55006"
    assert folder.is_dir()
    with dbapi.connect(driver=LIBRARY, db_kwargs={"path": str(folder)}) as con, con.cursor() as cur:
        assert rows(cur, "SELECT a FROM t") == [(7,)]


@pytest.mark.parametrize(
    "options",
    [{"username": "me"}, {"colour": "green"}, {"adbc.seracdb.threads": "none"}, {"adbc.seracdb.colour": "green"}],
)
def test_options_that_are_not_there_are_refused(options):
    with pytest.raises(dbapi.Error):
        dbapi.connect(driver=LIBRARY, db_kwargs=options)


def test_a_connection_that_is_closed_rolls_back(tmp_path):
    folder = str(tmp_path / "db")
    with connect(folder, autocommit=True) as con, con.cursor() as cur:
        cur.execute("CREATE TABLE t (a INT)")
        with connect(folder) as other, other.cursor() as beside:
            beside.execute("INSERT INTO t VALUES (1)")
        assert rows(cur, "SELECT count(*) FROM t") == [(0,)]


# ---- errors


def test_errors_have_sqlstate_and_details(cur):
    with pytest.raises(dbapi.ProgrammingError) as caught:
        cur.execute("SELECT 1,\n  nothing")
    error = caught.value
    assert (error.sqlstate, error.status_code) == ("42703", adbc_driver_manager.AdbcStatusCode.NOT_FOUND)
    assert (b"position", b"2:3") in error.details
    cur.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    cur.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(dbapi.IntegrityError) as caught:
        cur.execute("INSERT INTO t VALUES (1)")
    assert (b"table", b"t") in caught.value.details
    with pytest.raises(dbapi.ProgrammingError) as caught:
        cur.execute("SELEC")
    assert caught.value.sqlstate == "42601"


def test_a_statement_is_cancelled_from_another_thread(con):
    with con.cursor() as cur:
        ended = threading.Event()

        def cancel():
            # Again and again: the first time the statement may not have begun.
            while not ended.wait(0.02):
                cur.adbc_cancel()

        thread = threading.Thread(target=cancel)
        thread.start()
        begun = time.monotonic()
        try:
            with pytest.raises(dbapi.OperationalError) as caught:
                cur.execute(
                    "SELECT sum(a.i * b.i % 7) FROM generate_series(1, 1000000) AS a (i), "
                    "generate_series(1, 1000000) AS b (i)"
                )
        finally:
            ended.set()
            thread.join()
        assert caught.value.sqlstate == "57014"
        assert caught.value.status_code == adbc_driver_manager.AdbcStatusCode.CANCELLED
        assert time.monotonic() - begun < 60
        assert rows(cur, "SELECT 1") == [(1,)]


# ---- metadata


@pytest.fixture
def objects(con):
    with con.cursor() as cur:
        for statement in (
            "CREATE SCHEMA s",
            "CREATE TABLE s.parent (id BIGINT PRIMARY KEY, n NUMERIC(10, 2) NOT NULL DEFAULT 1.5, "
            "t VARCHAR(20) UNIQUE, CONSTRAINT positive CHECK (n > 0))",
            "CREATE TABLE child (a INT GENERATED ALWAYS AS IDENTITY, b BIGINT REFERENCES s.parent (id), "
            "g INT GENERATED ALWAYS AS (1) STORED, at TIMESTAMPTZ)",
            "CREATE VIEW v AS SELECT 1 AS one",
            "CREATE TEMP TABLE own (x INT)",
        ):
            cur.execute(statement)
    return con


def catalog(con, **wanted):
    return con.adbc_get_objects(**wanted).read_all().to_pylist()


def test_objects_are_listed_down_to_columns_and_constraints(objects):
    (found,) = catalog(objects)
    assert found["catalog_name"] == "serac"
    schemas = {schema["db_schema_name"]: schema["db_schema_tables"] for schema in found["catalog_db_schemas"]}
    assert {"public", "s"} <= set(schemas) and "pg_catalog" not in schemas
    types = {table["table_name"]: table["table_type"] for tables in schemas.values() for table in tables}
    assert types == {"parent": "TABLE", "child": "TABLE", "v": "VIEW", "own": "LOCAL TEMPORARY"}
    (parent,) = schemas["s"]
    columns = {column["column_name"]: column for column in parent["table_columns"]}
    assert [column["ordinal_position"] for column in columns.values()] == [1, 2, 3]
    number = columns["n"]
    assert (number["xdbc_type_name"], number["xdbc_column_size"], number["xdbc_decimal_digits"]) == (
        "numeric(10,2)",
        10,
        2,
    )
    assert (number["xdbc_is_nullable"], number["xdbc_column_def"]) == ("NO", "1.5")
    assert columns["t"]["xdbc_column_size"] == 20
    constraints = {constraint["constraint_name"]: constraint for constraint in parent["table_constraints"]}
    assert constraints["parent_pkey"]["constraint_type"] == "PRIMARY KEY"
    assert constraints["parent_pkey"]["constraint_column_names"] == ["id"]
    assert constraints["positive"]["constraint_type"] == "CHECK"
    child = next(table for table in schemas["public"] if table["table_name"] == "child")
    columns = {column["column_name"]: column for column in child["table_columns"]}
    assert columns["a"]["xdbc_is_autoincrement"] and columns["g"]["xdbc_is_generatedcolumn"]
    assert (columns["at"]["xdbc_data_type"], columns["at"]["xdbc_sql_data_type"]) == (93, 9)
    (foreign,) = [own for own in child["table_constraints"] if own["constraint_type"] == "FOREIGN KEY"]
    assert foreign["constraint_column_usage"] == [
        {"fk_catalog": "serac", "fk_db_schema": "s", "fk_table": "parent", "fk_column_name": "id"}
    ]


def test_objects_are_filtered(objects):
    (found,) = catalog(objects, depth="catalogs")
    assert found == {"catalog_name": "serac", "catalog_db_schemas": None}
    (found,) = catalog(objects, depth="db_schemas", db_schema_filter="s%")
    assert found["catalog_db_schemas"] == [{"db_schema_name": "s", "db_schema_tables": None}]
    (found,) = catalog(objects, depth="tables", table_name_filter="%child%", table_types_filter=["TABLE"])
    tables = [table for schema in found["catalog_db_schemas"] for table in schema["db_schema_tables"]]
    assert tables == [
        {"table_name": "child", "table_type": "TABLE", "table_columns": None, "table_constraints": None}
    ]
    (found,) = catalog(objects, db_schema_filter="s", column_name_filter="n%")
    (table,) = found["catalog_db_schemas"][0]["db_schema_tables"]
    assert [column["column_name"] for column in table["table_columns"]] == ["n"]
    assert catalog(objects, catalog_filter="other") == []


def test_tables_tell_their_schema(objects):
    schema = objects.adbc_get_table_schema("parent", db_schema_filter="s")
    assert schema.names == ["id", "n", "t"]
    assert schema.field("n").type == pyarrow.decimal128(10, 2)
    assert objects.adbc_get_table_schema("v").names == ["one"]
    with pytest.raises(dbapi.ProgrammingError) as caught:
        objects.adbc_get_table_schema("parent")
    assert caught.value.sqlstate == "42P01"
    assert objects.adbc_get_table_types() == ["TABLE", "VIEW", "MATERIALIZED VIEW", "LOCAL TEMPORARY", "FOREIGN TABLE"]


def test_the_driver_tells_about_itself(con):
    info = con.adbc_get_info()
    assert info["vendor_name"] == "SeracDB"
    assert info["driver_adbc_version"] == 1_001_000
    assert info["driver_arrow_version"]


def test_the_current_schema_is_an_option(objects):
    native = objects.adbc_connection
    assert objects.adbc_current_catalog == "serac"
    assert objects.adbc_current_db_schema == "public"
    objects.adbc_current_db_schema = "s"
    with objects.cursor() as cur:
        assert rows(cur, "SELECT count(*) FROM parent") == [(0,)]
    with pytest.raises(adbc_driver_manager.Error):
        native.set_options(**{"adbc.connection.catalog": "other"})


def test_what_is_not_there_is_refused(con):
    with con.cursor() as cur:
        with pytest.raises(adbc_driver_manager.NotSupportedError):
            cur.adbc_statement.set_substrait_plan(b"")
        cur.adbc_statement.set_sql_query("SELECT 1")
        with pytest.raises(adbc_driver_manager.NotSupportedError):
            cur.adbc_statement.execute_partitions()
        with pytest.raises(adbc_driver_manager.NotSupportedError):
            cur.adbc_statement.set_options(**{"adbc.statement.exec.incremental": "true"})


# ---- frames


def test_pandas_reads_and_writes(con):
    frame = pandas.DataFrame({"id": [1, 2, 3], "name": ["a", "b", "c"], "half": [0.5, 1.0, 1.5]})
    assert frame.to_sql("t", con, index=False) == 3
    read = pandas.read_sql("SELECT id, name, half FROM t ORDER BY id", con)
    assert read.to_dict("list") == frame.to_dict("list")
    frame.to_sql("t", con, index=False, if_exists="append")
    assert pandas.read_sql("SELECT count(*) AS n FROM t", con)["n"].tolist() == [6]


def test_polars_reads_and_writes(con):
    frame = polars.DataFrame({"id": [1, 2, 3], "name": ["a", None, "c"]})
    assert frame.write_database("t", con, engine="adbc") == 3
    read = polars.read_database("SELECT id, name FROM t ORDER BY id", con)
    assert read.to_dict(as_series=False) == frame.to_dict(as_series=False)


def test_frames_come_from_cursors(cur):
    cur.execute("SELECT i AS n FROM generate_series(1, 5) AS g (i)")
    assert cur.fetch_df()["n"].tolist() == [1, 2, 3, 4, 5]
    cur.execute("SELECT i AS n FROM generate_series(1, 5) AS g (i)")
    assert cur.fetch_polars()["n"].to_list() == [1, 2, 3, 4, 5]


def test_threads_have_connections_of_their_own(tmp_path):
    folder = str(tmp_path / "db")
    with connect(folder, autocommit=True) as con, con.cursor() as cur:
        cur.execute("CREATE TABLE t (n BIGINT)")
        failures = []

        def work(number):
            try:
                with connect(folder, autocommit=True) as own, own.cursor() as cur:
                    for i in range(25):
                        cur.execute("INSERT INTO t VALUES ($1)", (number * 100 + i,))
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert rows(cur, "SELECT count(*), count(DISTINCT n) FROM t") == [(100, 100)]
