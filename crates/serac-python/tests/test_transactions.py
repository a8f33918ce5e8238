"""Transactions as contexts, savepoints, and transactions that run again."""

import datetime
import decimal
import threading

import pytest
import seracdb


@pytest.fixture
def t(con):
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL)")
    con.execute("INSERT INTO t VALUES (1, 0), (2, 0)")
    return con


def values(con):
    return [n for (n,) in con.execute("SELECT n FROM t ORDER BY id")]


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_block_commits_or_rolls_back(t, autocommit):
    con = t.connect(autocommit=autocommit)
    with con.transaction():
        con.execute("UPDATE t SET n = 1 WHERE id = 1")
    assert con.transaction_status == "idle"
    with pytest.raises(ZeroDivisionError), con.transaction():
        con.execute("UPDATE t SET n = 2")
        raise ZeroDivisionError
    assert con.transaction_status == "idle"
    assert values(t) == [1, 0]


def test_blocks_nest_by_savepoints(t):
    with t.transaction():
        t.execute("UPDATE t SET n = 1 WHERE id = 1")
        with pytest.raises(seracdb.UniqueViolation), t.transaction():
            t.execute("UPDATE t SET n = 5")
            with t.transaction():
                t.execute("INSERT INTO t VALUES (3, 3)")
            t.execute("INSERT INTO t VALUES (1, 1)")
        with t.transaction():
            t.execute("UPDATE t SET n = 2 WHERE id = 2")
        assert values(t) == [1, 2]
    assert values(t) == [1, 2]


def test_rollback_leaves_a_block(t):
    with t.transaction():
        t.execute("UPDATE t SET n = 1")
        raise seracdb.Rollback
    with t.transaction() as outer:
        t.execute("UPDATE t SET n = 2")
        with t.transaction():
            t.execute("UPDATE t SET n = 3")
            raise seracdb.Rollback
        assert values(t) == [2, 2]
        with t.transaction():
            raise seracdb.Rollback(outer)
    assert values(t) == [0, 0]


def test_modes(t):
    with t.transaction("READ ONLY"):
        with pytest.raises(seracdb.InternalError):
            t.execute("UPDATE t SET n = 1")
        t.rollback()
    with t.transaction("ISOLATION LEVEL SERIALIZABLE"):
        assert t.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
        with pytest.raises(seracdb.ProgrammingError, match="inside another"), t.transaction("READ ONLY"):
            pass


def test_a_caught_error_in_a_block_is_told_at_its_end(t):
    with pytest.raises(seracdb.InternalError, match="rolled back"), t.transaction():
        with pytest.raises(seracdb.DataError):
            t.execute("SELECT 1 / 0")
    assert t.transaction_status == "idle"


def test_transact_runs_again_after_conflicts(t):
    runs = []

    def add(con):
        (n,) = con.execute("SELECT n FROM t WHERE id = $1", (1,)).fetchone()
        con.execute("UPDATE t SET n = $2 WHERE id = $1", (1, n + 1))
        runs.append(n)
        return n + 1

    def work():
        with t.connect() as con:
            for _ in range(50):
                con.transact(add, attempts=1000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values(t) == [200, 0]
    assert t.transact(add) == 201


def test_transact_gives_up_and_passes_other_errors_on(t):
    other = t.connect()
    runs = []

    def conflict(con):
        runs.append(con.execute("SELECT n FROM t WHERE id = 1").fetchone())
        other.execute("UPDATE t SET n = n + 1 WHERE id = 1")
        con.execute("UPDATE t SET n = 7 WHERE id = 1")

    other.autocommit = True
    with pytest.raises(seracdb.SerializationFailure) as caught:
        t.transact(conflict, attempts=3)
    assert caught.value.sqlstate == "40001" and len(runs) == 3
    with pytest.raises(seracdb.DataError):
        t.transact(lambda con: con.execute("SELECT 1 / 0"))
    with t.transaction(), pytest.raises(seracdb.ProgrammingError, match="inside another"):
        t.transact(lambda con: None)
    assert values(t) == [3, 0]


def test_rows_take_what_sql_assigns(con):
    con.execute("CREATE TABLE r (i INT, d DATE, ts TIMESTAMP, b BOOLEAN, x BYTEA, n NUMERIC, t TEXT)")
    wrong = [("d", 10), ("ts", 1_577_836_800), ("b", 2.5), ("b", 1), ("i", True), ("x", decimal.Decimal("2.5"))]
    for column, value in wrong:
        with con.transaction() as tx, pytest.raises(seracdb.ProgrammingError, match=f'column "{column}" is of type') as e:
            tx.table("r").insert({column: value})
        assert e.value.sqlstate == "42804"
    assert con.execute("SELECT count(*) FROM r").fetchone() == (0,)
    day = datetime.date(2020, 1, 2)
    with con.transaction() as tx:
        tx.table("r").insert({"i": 2.6, "d": "2020-01-02", "ts": day, "b": "yes", "x": b"1", "n": 1.5, "t": 5})
    row = (3, day, datetime.datetime(2020, 1, 2), True, b"1", decimal.Decimal("1.5"), "5")
    assert con.execute("SELECT * FROM r").fetchall() == [row]


def test_a_row_that_cannot_be_returned_is_not_inserted(con):
    con.execute("CREATE TABLE r (id INT PRIMARY KEY, d DATE DEFAULT 'infinity', ts TIMESTAMP, t TIME)")

    @con.create_procedure("inserts")
    def inserts(tx):
        for row in [{"id": 1}, {"id": 2, "d": None, "ts": "-infinity"}, {"id": 3, "d": None, "t": "24:00"}]:
            with pytest.raises(seracdb.DataError) as error:
                tx.table("r").insert(row, returning=["id", "d", "ts", "t"])
            assert error.value.sqlstate == "22008"
        assert tx.table("r").insert({"id": 4}, returning=["id"]) == {"id": 4}

    con.execute("CALL inserts()")
    with pytest.raises(seracdb.DataError), con.transaction() as tx:
        tx.table("r").insert({"id": 5}, returning=["d"])
    assert con.execute("SELECT id FROM r").fetchall() == [(4,)]
