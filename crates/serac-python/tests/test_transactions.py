"""Transactions as contexts, savepoints, and transactions that run again."""

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
