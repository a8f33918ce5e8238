"""PEP 249 in the order of its sections, a sentence a test. `test_dbapi.py` tests what goes
beyond."""

import datetime
import inspect
import itertools
import threading
import time

import pytest
import seracdb

EXCEPTIONS = [
    "Warning",
    "Error",
    "InterfaceError",
    "DatabaseError",
    "DataError",
    "OperationalError",
    "IntegrityError",
    "InternalError",
    "ProgrammingError",
    "NotSupportedError",
]


@pytest.fixture
def shop(tmp_path):
    """A connection as DB-API opens it, without autocommit, and a table of three committed rows."""
    con = seracdb.connect(tmp_path / "shop", durability="off")
    cursor = con.cursor()
    cursor.execute("CREATE TABLE drink (name VARCHAR(20), price NUMERIC(6, 2), made DATE, label BYTEA)")
    cursor.executemany(
        "INSERT INTO drink (name, price) VALUES (:name, :price)",
        [{"name": "water", "price": 1}, {"name": "tea", "price": 2}, {"name": "milk", "price": 3}],
    )
    con.commit()
    yield con
    con.close()


class TestModuleInterface:
    def test_connect_makes_a_connection(self):
        con = seracdb.connect()
        assert isinstance(con, seracdb.Connection)
        con.close()

    def test_the_globals(self):
        assert seracdb.apilevel == "2.0"
        assert seracdb.threadsafety == 2
        assert seracdb.paramstyle == "named"

    def test_threads_may_share_the_module_and_connections(self, shop):
        found = []

        def work(number):
            cursor = shop.cursor()
            cursor.execute("SELECT :number::int", {"number": number})
            found.append(cursor.fetchone() == (number,))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [True] * 8

    def test_exceptions_have_the_layout(self):
        assert seracdb.Warning.__base__ is Exception
        assert seracdb.Error.__base__ is Exception
        assert not issubclass(seracdb.Warning, seracdb.Error)
        assert seracdb.InterfaceError.__base__ is seracdb.Error
        assert seracdb.DatabaseError.__base__ is seracdb.Error
        for name in EXCEPTIONS[4:]:
            assert getattr(seracdb, name).__base__ is seracdb.DatabaseError

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("DataError", "SELECT 1 / 0"),
            ("DataError", "SELECT 40000::smallint"),
            ("IntegrityError", "INSERT INTO kept VALUES (1)"),
            ("ProgrammingError", "SELECT * FROM nowhere"),
            ("ProgrammingError", "SELEC 1"),
            ("ProgrammingError", "SELECT name FROM drink WHERE name = :name"),
            ("NotSupportedError", "CREATE TRIGGER t BEFORE INSERT ON drink EXECUTE FUNCTION f()"),
            ("OperationalError", "SET statement_timeout = 20; SELECT pg_sleep(60)"),
        ],
    )
    def test_each_is_raised_for_what_it_says(self, shop, name, text):
        shop.execute("CREATE TABLE kept (id INT PRIMARY KEY); INSERT INTO kept VALUES (1)")
        shop.commit()
        with pytest.raises(getattr(seracdb, name)):
            shop.execute(text)

    def test_an_internal_error_for_a_transaction_out_of_sync(self, shop):
        with pytest.raises(seracdb.DataError):
            shop.execute("INSERT INTO drink (price) VALUES (1 / 0)")
        with pytest.raises(seracdb.InternalError):
            shop.execute("SELECT 1")

    def test_an_interface_error_for_a_wrong_use(self, shop):
        shop.close()
        with pytest.raises(seracdb.InterfaceError):
            shop.cursor()


class TestConnection:
    def test_a_closed_connection_refuses_everything(self, shop):
        cursor = shop.cursor()
        cursor.execute("SELECT name FROM drink")
        shop.close()
        calls = [
            shop.commit,
            shop.rollback,
            shop.cursor,
            lambda: shop.execute("SELECT 1"),
            lambda: shop.executemany("SELECT 1", []),
            lambda: shop.prepare("SELECT 1"),
            lambda: shop.append("drink", None),
            lambda: shop.table("drink").scan(),
            lambda: shop.connect(),
            lambda: shop.transaction().__enter__(),
            shop.cancel,
            shop.notices,
            lambda: cursor.execute("SELECT 1"),
            lambda: cursor.executemany("SELECT 1", []),
            lambda: cursor.callproc("p"),
            cursor.fetchone,
            cursor.fetchmany,
            cursor.fetchall,
            lambda: next(cursor),
            cursor.__arrow_c_stream__,
        ]
        for call in calls:
            with pytest.raises(seracdb.InterfaceError):
                call()

    def test_it_may_be_closed_twice(self, shop):
        shop.close()
        shop.close()

    def test_closing_without_a_commit_rolls_back(self, tmp_path):
        with seracdb.connect(tmp_path / "db", autocommit=True) as watch:
            watch.execute("CREATE TABLE t (a INT)")
            con = seracdb.connect(tmp_path / "db")
            con.execute("INSERT INTO t VALUES (1)")
            con.close()
            assert watch.execute("SELECT count(*) FROM t").fetchone() == (0,)

    def test_autocommit_is_off_at_first(self, shop):
        assert shop.autocommit is False

    def test_a_commit_without_a_transaction_does_nothing(self, shop):
        shop.commit()
        shop.commit()

    def test_a_commit_makes_changes_last(self, shop):
        shop.execute("DELETE FROM drink WHERE name = 'tea'")
        other = shop.connect()
        assert other.execute("SELECT count(*) FROM drink").fetchone() == (3,)
        shop.commit()
        # Its transaction has one snapshot.
        assert other.execute("SELECT count(*) FROM drink").fetchone() == (3,)
        other.commit()
        assert other.execute("SELECT count(*) FROM drink").fetchone() == (2,)

    def test_a_rollback_goes_back_to_the_start(self, shop):
        shop.execute("DELETE FROM drink")
        shop.execute("CREATE TABLE more (a INT)")
        assert shop.execute("SELECT count(*) FROM drink").fetchone() == (0,)
        shop.rollback()
        assert shop.execute("SELECT count(*) FROM drink").fetchone() == (3,)
        with pytest.raises(seracdb.ProgrammingError):
            shop.execute("SELECT * FROM more")

    def test_exceptions_are_attributes(self, shop):
        for name in EXCEPTIONS:
            assert getattr(shop, name) is getattr(seracdb, name)

    def test_autocommit_can_be_read_and_set(self, shop):
        shop.autocommit = True
        assert shop.autocommit is True
        shop.execute("DELETE FROM drink")
        shop.rollback()
        assert shop.execute("SELECT count(*) FROM drink").fetchone() == (0,)


class TestCursor:
    def test_cursors_of_a_connection_are_not_isolated(self, shop):
        one, other = shop.cursor(), shop.cursor()
        one.execute("INSERT INTO drink (name) VALUES ('juice')")
        other.execute("SELECT count(*) FROM drink")
        assert other.fetchone() == (4,)

    def test_cursors_of_other_connections_are(self, shop):
        one, other = shop.cursor(), shop.connect().cursor()
        one.execute("INSERT INTO drink (name) VALUES ('juice')")
        other.execute("SELECT count(*) FROM drink")
        assert other.fetchone() == (3,)

    def test_description_has_seven_items_a_column(self, shop):
        assert shop.cursor().description is None
        columns = shop.execute("SELECT name, price, made, label, 1 AS id, now() AS at FROM drink").description
        assert isinstance(columns, list)
        assert [len(column) for column in columns] == [7] * 6
        assert [column[0] for column in columns] == ["name", "price", "made", "label", "id", "at"]
        types = [seracdb.STRING, seracdb.NUMBER, seracdb.DATETIME, seracdb.BINARY, seracdb.NUMBER, seracdb.DATETIME]
        for column, own in zip(columns, types, strict=True):
            assert column[1] == own
            others = {type.name for type in types} - {own.name}
            assert all(column[1] != type for type in types if type.name in others)
        assert columns[1][4:6] == (6, 2)

    def test_description_is_none_for_statements_without_rows(self, shop):
        cursor = shop.cursor()
        for statement in ["INSERT INTO drink (name) VALUES ('x')", "CREATE TABLE t (a INT)", "COMMIT", "DROP TABLE t"]:
            cursor.execute("SELECT 1")
            assert cursor.description is not None
            cursor.execute(statement)
            assert cursor.description is None, statement

    def test_rowcount_of_statements(self, shop):
        cursor = shop.cursor()
        assert cursor.rowcount == -1
        cursor.execute("INSERT INTO drink (name) VALUES ('x'), ('y')")
        assert cursor.rowcount == 2
        cursor.execute("UPDATE drink SET price = 9 WHERE name = :name", {"name": "x"})
        assert cursor.rowcount == 1
        cursor.execute("UPDATE drink SET price = 9 WHERE name = 'nothing'")
        assert cursor.rowcount == 0
        cursor.execute("DELETE FROM drink WHERE name IN ('x', 'y')")
        assert cursor.rowcount == 2
        cursor.execute("SELECT name FROM drink")
        cursor.fetchall()
        assert cursor.rowcount == 3
        cursor.execute("CREATE TABLE copied AS SELECT * FROM drink")
        assert cursor.rowcount == 3

    @pytest.mark.parametrize("parameters", [None, ()])
    def test_rowcount_of_what_counts_no_rows(self, shop, parameters):
        cursor = shop.cursor()
        for statement in ["CREATE TABLE t (a INT)", "DROP TABLE t", "SET work_mem = '4MB'", "COMMIT", "ROLLBACK", ""]:
            cursor.execute("DELETE FROM drink WHERE name = 'tea'")
            assert cursor.rowcount >= 0
            cursor.execute(statement, parameters)
            assert cursor.rowcount == -1, statement

    def test_rowcount_of_executemany_is_the_sum(self, shop):
        cursor = shop.cursor()
        cursor.executemany("UPDATE drink SET price = 1 WHERE price < :limit", [{"limit": 3}, {"limit": 100}])
        assert cursor.rowcount == 2 + 3

    def test_callproc_gives_back_a_copy_of_its_parameters(self, shop):
        given = [1, 2]
        with pytest.raises(seracdb.ProgrammingError, match="missing"):
            shop.cursor().callproc("missing", given)
        assert given == [1, 2]

    def test_a_closed_cursor_refuses_everything(self, shop):
        cursor = shop.cursor()
        cursor.execute("SELECT name FROM drink")
        cursor.close()
        cursor.close()
        calls = [
            lambda: cursor.execute("SELECT 1"),
            lambda: cursor.executemany("SELECT 1", []),
            lambda: cursor.callproc("p"),
            cursor.fetchone,
            cursor.fetchmany,
            cursor.fetchall,
            lambda: next(cursor),
            cursor.__arrow_c_stream__,
            cursor.arrow,
        ]
        for call in calls:
            with pytest.raises(seracdb.InterfaceError, match="cursor is closed"):
                call()
        assert shop.execute("SELECT 1").fetchone() == (1,)

    def test_parameters_may_be_any_sequence_or_mapping(self, shop):
        class Sequence:
            def __getitem__(self, at):
                return (7, 8)[at]

            def __len__(self):
                return 2

        class Mapping:
            def __getitem__(self, name):
                return {"a": 7, "b": 8}[name]

            def keys(self):
                return ["a", "b"]

        cursor = shop.cursor()
        for parameters in [(7, 8), [7, 8], Sequence(), range(7, 9)]:
            cursor.execute("SELECT :1::int, :2::int", parameters)
            assert cursor.fetchone() == (7, 8)
        for parameters in [{"a": 7, "b": 8}, Mapping()]:
            cursor.execute("SELECT :a::int, :b::int", parameters)
            assert cursor.fetchone() == (7, 8)

    def test_the_same_operation_again_is_not_parsed_again(self, shop):
        cursor = shop.cursor()
        for number in range(500):
            cursor.execute("SELECT :number::int", {"number": number})
            assert cursor.fetchone() == (number,)

    def test_executemany_takes_sequences_and_iterators(self, shop):
        cursor = shop.cursor()
        insert = "INSERT INTO drink (name) VALUES (:name)"
        cursor.executemany(insert, [{"name": "a"}])
        cursor.executemany(insert, ({"name": name} for name in "bc"))
        cursor.executemany(insert, [])
        cursor.executemany("INSERT INTO drink (name) VALUES (:1)", [("d",), ["e"]])
        cursor.execute("SELECT count(*) FROM drink WHERE length(name) = 1")
        assert cursor.fetchone() == (5,)

    @pytest.mark.parametrize("fetch", ["fetchone", "fetchmany", "fetchall", "__next__"])
    def test_fetching_without_a_result_is_an_error(self, shop, fetch):
        cursor = shop.cursor()
        with pytest.raises(seracdb.Error):
            getattr(cursor, fetch)()
        for statement in ["CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)", "COMMIT"]:
            cursor.execute(statement)
            with pytest.raises(seracdb.Error):
                getattr(cursor, fetch)()
        with pytest.raises(seracdb.ProgrammingError):
            cursor.execute("SELECT * FROM nowhere")
        with pytest.raises(seracdb.Error):
            getattr(cursor, fetch)()

    def test_fetchone(self, shop):
        cursor = shop.cursor()
        cursor.execute("SELECT name FROM drink WHERE false")
        assert cursor.fetchone() is None
        cursor.execute("SELECT name FROM drink ORDER BY price")
        assert [cursor.fetchone() for _ in range(5)] == [("water",), ("tea",), ("milk",), None, None]

    def test_fetchmany(self, shop):
        cursor = shop.cursor()
        assert cursor.arraysize == 1
        cursor.execute("SELECT i FROM generate_series(1, 10) AS g (i)")
        assert cursor.fetchmany() == [(1,)]
        assert cursor.fetchmany(size=3) == [(2,), (3,), (4,)]
        assert cursor.arraysize == 1
        cursor.arraysize = 4
        assert cursor.fetchmany() == [(5,), (6,), (7,), (8,)]
        assert cursor.fetchmany(5) == [(9,), (10,)]
        assert cursor.fetchmany() == []
        assert cursor.arraysize == 4

    def test_fetchall_gives_the_rest(self, shop):
        cursor = shop.cursor()
        cursor.execute("SELECT i FROM generate_series(1, 5) AS g (i)")
        cursor.fetchone()
        cursor.fetchmany(2)
        assert cursor.fetchall() == [(4,), (5,)]
        assert cursor.fetchall() == []

    def test_rows_are_sequences(self, shop):
        (row,) = shop.execute("SELECT 1, 'a', NULL").fetchall()
        assert row == (1, "a", None) and row[1] == "a" and len(row) == 3

    def test_sizes_may_be_set_and_mean_nothing(self, shop):
        cursor = shop.cursor()
        cursor.setinputsizes([seracdb.STRING, 20, None])
        cursor.setoutputsize(1 << 20)
        cursor.setoutputsize(1 << 20, 0)
        cursor.execute("SELECT :name::text", {"name": "x" * 100})
        assert cursor.fetchone() == ("x" * 100,)


class TestTypes:
    def test_dates_and_times(self, con):
        when = (2002, 12, 25, 13, 45, 30)
        for value, type in [
            (seracdb.Date(*when[:3]), "date"),
            (seracdb.Time(*when[3:]), "time"),
            (seracdb.Timestamp(*when), "timestamp"),
        ]:
            cursor = con.execute(f"SELECT :value::{type}", {"value": value})
            assert cursor.description[0][1] == seracdb.DATETIME
            assert cursor.fetchone() == (value,)

    def test_ticks_are_local_time(self):
        ticks = time.mktime((2002, 12, 25, 13, 45, 30, 0, 0, -1))
        assert seracdb.DateFromTicks(ticks) == datetime.date(2002, 12, 25)
        assert seracdb.TimeFromTicks(ticks) == datetime.time(13, 45, 30)
        assert seracdb.TimestampFromTicks(ticks) == datetime.datetime(2002, 12, 25, 13, 45, 30)

    def test_binary(self, con):
        for value in [b"", b"text", bytes(range(256))]:
            cursor = con.execute("SELECT :value", {"value": seracdb.Binary(value)})
            assert cursor.description[0][1] == seracdb.BINARY
            assert cursor.fetchone() == (value,)

    def test_null_is_none(self, con):
        for type in ["int", "text", "bytea", "date", "numeric", "int[]"]:
            cursor = con.execute(f"SELECT :value::{type}", {"value": None})
            assert cursor.fetchone() == (None,)

    def test_type_objects_are_distinct(self):
        types = [seracdb.STRING, seracdb.BINARY, seracdb.NUMBER, seracdb.DATETIME, seracdb.ROWID]
        for one, other in itertools.combinations(types, 2):
            assert one != other and not one.codes & other.codes
        assert all(type == type and hash(type) == hash(type) for type in types)


class TestOptionalExtensions:
    def test_cursors_tell_their_connection_and_row(self, shop):
        cursor = shop.cursor()
        assert cursor.connection is shop
        assert cursor.rownumber is None
        cursor.execute("SELECT i FROM generate_series(1, 3) AS g (i)")
        assert cursor.rownumber == 0
        cursor.fetchone()
        assert cursor.rownumber == 1
        cursor.fetchall()
        assert cursor.rownumber == 3

    def test_a_cursor_is_its_own_iterator(self, shop):
        cursor = shop.execute("SELECT i FROM generate_series(1, 3) AS g (i)")
        assert iter(cursor) is cursor
        assert next(cursor) == (1,)
        assert list(cursor) == [(2,), (3,)]
        with pytest.raises(StopIteration):
            next(cursor)

    def test_extensions_that_are_not_there_are_absent(self, shop):
        """A program finds out by `hasattr` what an interface cannot do."""
        cursor = shop.cursor()
        assert not any(hasattr(cursor, name) for name in ["nextset", "scroll", "lastrowid"])
        assert not any(hasattr(shop, name) for name in ["xid", "tpc_begin", "tpc_prepare", "tpc_commit"])

    def test_the_methods_have_dbapis_parameters(self):
        def names(method):
            return [name for name in inspect.signature(method).parameters if name != "self"]

        assert names(seracdb.Cursor.execute) == ["operation", "parameters"]
        assert names(seracdb.Cursor.executemany) == ["operation", "seq_of_parameters"]
        assert names(seracdb.Cursor.callproc) == ["procname", "parameters"]
        assert names(seracdb.Cursor.fetchmany) == ["size"]
        assert names(seracdb.Cursor.setinputsizes) == ["sizes"]
        assert names(seracdb.Cursor.setoutputsize) == ["size", "column"]
