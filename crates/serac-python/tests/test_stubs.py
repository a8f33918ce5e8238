"""What type checkers know of the package. mypy and pyright check this file as well, and pytest runs
it: so each type is what a program has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import seracdb

if TYPE_CHECKING:
    from typing_extensions import assert_type
else:

    def assert_type(value: Any, _: Any) -> Any:
        return value


Row = tuple[Any, ...]


def test_connections(tmp_path: Path) -> None:
    con = seracdb.connect(tmp_path / "db", durability="off", memory_limit=1 << 30, threads=1, autocommit=True)
    assert_type(con, seracdb.Connection)
    assert_type(con.autocommit, bool)
    assert_type(con.closed, bool)
    assert_type(con.transaction_status, str)
    assert_type(con.cursor(), seracdb.Cursor)
    assert_type(con.notices(), list[tuple[str, str, str]])
    assert_type(con.connect(read_only=True), seracdb.Connection)
    with con.connect() as other:
        assert_type(other, seracdb.Connection)
        other.commit()
        other.rollback()
        other.cancel()
    con.close()


def test_cursors() -> None:
    con = seracdb.connect(autocommit=True)
    cursor = con.execute("SELECT i FROM generate_series(1, 9) AS g (i)")
    assert_type(cursor, seracdb.Cursor)
    assert_type(cursor.rowcount, int)
    assert_type(cursor.rownumber, int | None)
    assert_type(cursor.arraysize, int)
    assert_type(cursor.fetchone(), Row | None)
    assert_type(cursor.fetchmany(2), list[Row])
    assert_type(next(cursor), Row)
    for row in cursor:
        assert_type(row, Row)
    assert_type(cursor.fetchall(), list[Row])
    assert_type(con.executemany("SELECT $1::int", [(1,)]), seracdb.Cursor)
    assert_type(cursor.execute("SELECT :a::int", {"a": 1}), seracdb.Cursor)
    columns = cursor.description
    assert columns is not None
    assert_type(columns[0][0], str)
    assert_type(columns[0][1], int)
    if columns[0][1] == seracdb.NUMBER:
        assert_type(seracdb.NUMBER, seracdb.DBAPIType)
    frame: Any = cursor.arrow()
    assert frame.num_rows == 1
    with con.cursor() as closed:
        parameters: Sequence[Any] = [1]
        assert parameters
        closed.setinputsizes(parameters)
    con.close()


def test_statements_and_tables() -> None:
    con = seracdb.connect(autocommit=True)
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    statement = con.prepare("SELECT n FROM t WHERE id = $1")
    assert_type(statement, seracdb.Statement)
    assert_type(statement(1), list[Row] | int)
    assert_type(statement.one(1), Row | None)
    assert_type(statement.sql, str)
    assert_type(statement.is_point, bool)
    table = con.table("t")
    assert_type(table, seracdb.Table)
    scan = table.scan(["id"], [("n", ">", 1)])
    assert_type(scan, seracdb.Scan)
    assert_type(con.append("t", scan), int)
    assert_type(table.append(scan), int)
    con.close()


def test_frames_functions_and_files(tmp_path: Path) -> None:
    con = seracdb.connect(autocommit=True, scan_variables=False)
    assert_type(con.scan_variables, bool)
    con.scan_variables = True
    con.execute("CREATE TABLE t (a BIGINT)")
    assert_type(con.register("lent", con.table("t").scan()), seracdb.Connection)
    assert_type(con.unregister("lent"), seracdb.Connection)

    def twice(x: int) -> int:
        return 2 * x

    class Total:
        def __init__(self) -> None:
            self.total = 0

        def step(self, value: int) -> None:
            self.total += value

        def finish(self) -> int:
            return self.total

    assert_type(con.create_function("twice", twice), seracdb.Connection)
    assert_type(con.create_function("one", lambda: 1, [], "bigint", volatility="stable"), seracdb.Connection)
    assert_type(con.create_aggregate("total", Total), seracdb.Connection)
    assert_type(con.create_table_function("lines", lambda: [(1,)], [], {"n": int}), seracdb.Connection)
    assert con.execute("SELECT total(twice(n)) FROM lines()").fetchone() == (2,)
    assert_type(con.remove_function("twice"), seracdb.Connection)
    (tmp_path / "t.csv").write_text("a\n1\n")
    assert_type(con.ingest(tmp_path / "t.csv", progress=False, header=True), int)
    con.close()


def test_transactions_and_errors() -> None:
    con = seracdb.connect()

    def work(con: seracdb.Connection) -> str:
        return str(con.transaction_status)

    assert_type(con.transact(work), str | None)
    with con.transaction() as transaction:
        assert_type(transaction, seracdb.Transaction)
    try:
        con.execute("SELEC")
    except con.ProgrammingError as error:
        assert_type(error, seracdb.ProgrammingError)
        assert_type(error.sqlstate, str | None)
        assert_type(error.position, tuple[int, int] | None)
    con.close()


def test_values() -> None:
    interval = seracdb.Interval(months=1)
    assert_type(interval.days, int)
    assert_type(seracdb.Json([1]).value, Any)
    assert_type(seracdb.paramstyle, str)
    assert seracdb.Binary(b"x") == b"x"


def test_procedures_and_rows() -> None:
    con = seracdb.connect(autocommit=True)
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")

    @con.create_procedure("add", parameters={"id": int}, returns={"n": int})
    def add(tx: seracdb.RowTransaction, id: int) -> int:  # noqa: A002
        table = tx.table("t")
        assert_type(table, seracdb.RowTable)
        assert_type(table.insert({"id": id, "n": 1}), None)
        return id

    assert_type(con.execute("CALL add(1)").fetchone(), Row | None)

    def other(tx: seracdb.RowTransaction) -> None:
        assert tx.table("t").get(1) is not None

    assert_type(con.create_procedure("other", other), seracdb.Connection)
    assert_type(con.drop_procedure("other"), seracdb.Connection)
    with con.transaction() as tx:
        table = tx.table("t")
        assert_type(table.name, str)
        assert_type(table.insert({"id": 2}, returning=["id"]), dict[str, Any])
        assert_type(table.get(1, columns=["n"]), dict[str, Any] | None)
        assert_type(table.update(1, {"n": 2}), bool)
        assert_type(table.delete(2), bool)
        assert_type(table.scan(1, 5, limit=3), list[dict[str, Any]])
    con.close()
