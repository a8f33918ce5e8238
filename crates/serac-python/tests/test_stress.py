"""Threads at random beside an oracle that knows what must come out.

`SERACDB_STRESS_SECONDS=60` makes each storm longer, `SERACDB_STRESS_SEED=7` repeats one: the seed
is printed after a failure. What the threads choose is repeated, not how they meet.
"""

import faulthandler
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import polars
import pyarrow
import pytest
import seracdb

SECONDS = float(os.environ.get("SERACDB_STRESS_SECONDS", "2"))
# No thread may wait for ever: one that has not ended so long after the end has met a deadlock.
PATIENCE = 120.0


class Storm:
    """Threads that run until the time is over, or one of them fails."""

    def __init__(self) -> None:
        self.seed = int(os.environ.get("SERACDB_STRESS_SEED") or random.randrange(2**32))
        print(f"SERACDB_STRESS_SEED={self.seed}")
        self.over = threading.Event()
        self.failures: list[BaseException] = []
        self.threads: list[threading.Thread] = []

    def start(self, work: Callable[[random.Random], Any], *, times: int = 1) -> None:
        """Starts threads that call `work` again and again, each with numbers of its own."""
        for _ in range(times):
            numbers = random.Random(self.seed + len(self.threads))
            self.threads.append(threading.Thread(target=self._repeat, args=(work, numbers), daemon=True))

    def _repeat(self, work: Callable[[random.Random], Any], numbers: random.Random) -> None:
        try:
            while not self.over.is_set():
                work(numbers)
        except BaseException as failure:
            self.failures.append(failure)
            self.over.set()

    def run(self, seconds: float = SECONDS) -> None:
        interval = sys.getswitchinterval()
        # Threads meet more often than Python lets them.
        sys.setswitchinterval(0.0005)
        try:
            for thread in self.threads:
                thread.start()
            self.over.wait(seconds)
            self.over.set()
            end = time.monotonic() + PATIENCE
            for thread in self.threads:
                thread.join(max(0.0, end - time.monotonic()))
            if any(thread.is_alive() for thread in self.threads):
                faulthandler.dump_traceback(all_threads=True)
                pytest.fail("threads wait for ever")
        finally:
            sys.setswitchinterval(interval)
        if self.failures:
            raise self.failures[0]


@pytest.fixture
def storm():
    return Storm()


ACCOUNTS = 12
START = 1000


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_a_bank(storm, where, tmp_path):
    """Each transfer writes to two accounts and to a ledger. So at each moment the accounts are
    what the ledger says; what was told to be committed is in it, and what was told to have
    failed is not."""
    path = ":memory:" if where == "memory" else tmp_path / "bank"
    con = seracdb.connect(path, durability="relaxed" if where == "folder" else None, autocommit=True)
    con.execute("CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL CHECK (balance >= 0))")
    con.execute("CREATE TABLE ledger (id BIGINT PRIMARY KEY, source INT, target INT, amount BIGINT)")
    con.executemany("INSERT INTO account VALUES ($1, $2)", [(i, START) for i in range(ACCOUNTS)])
    lock = threading.Lock()
    committed: set[int] = set()
    failed: set[int] = set()
    opened: dict[int, seracdb.Connection] = {}
    numbers_of_transfers = iter(range(10**9))

    def connection() -> seracdb.Connection:
        own = opened.get(threading.get_ident())
        if own is None:
            own = opened[threading.get_ident()] = con.connect(autocommit=random.random() < 0.5)
        return own

    def transfer(numbers: random.Random) -> None:
        own = connection()
        source, target = numbers.sample(range(ACCOUNTS), 2)
        amount, manner = numbers.randrange(1, 400), numbers.randrange(5)
        with lock:
            number = next(numbers_of_transfers)

        def move(con: seracdb.Connection) -> None:
            if manner == 0:
                with con.transaction():
                    con.execute("UPDATE account SET balance = 0")
                    raise seracdb.Rollback
            con.execute("UPDATE account SET balance = balance - $2 WHERE id = $1", (source, amount))
            if manner == 1:
                con.execute(f"UPDATE account SET balance = balance + {amount} WHERE id = {target}")
            else:
                con.prepare("UPDATE account SET balance = balance + :more WHERE id = :id")(more=amount, id=target)
            row = (number, source, target, amount)
            if manner == 2:
                names = ["id", "source", "target", "amount"]
                con.append("ledger", polars.DataFrame({name: [value] for name, value in zip(names, row, strict=True)}))
            else:
                con.execute("INSERT INTO ledger VALUES ($1, $2, $3, $4)", row)
            if manner == 3:
                raise seracdb.Rollback

        try:
            own.transact(move, attempts=1000)
        except (seracdb.CheckViolation, seracdb.QueryCanceled):
            with lock:
                failed.add(number)
        else:
            with lock:
                (failed if manner == 3 else committed).add(number)

    def look(numbers: random.Random) -> None:
        own = connection()
        with own.transaction("READ ONLY"):
            try:
                balances = expected = None
                if numbers.random() < 0.5:
                    balances = dict(own.execute("SELECT id, balance FROM account").fetchall())
                    ledger = own.execute("SELECT source, target, amount FROM ledger").fetchall()
                else:
                    table = own.table("account").scan(["id", "balance"]).arrow()
                    balances = dict(zip(table["id"].to_pylist(), table["balance"].to_pylist(), strict=True))
                    frame = own.execute("SELECT source, target, amount FROM ledger").arrow()
                    ledger = list(zip(*(column.to_pylist() for column in frame.columns), strict=True))
                expected = Counter(dict.fromkeys(range(ACCOUNTS), START))
                for source, target, amount in ledger:
                    expected[source] -= amount
                    expected[target] += amount
                assert balances == expected
            except seracdb.QueryCanceled:
                raise seracdb.Rollback from None

    def cancel(numbers: random.Random) -> None:
        time.sleep(numbers.random() / 100)
        for own in list(opened.values()):
            if numbers.random() < 0.2:
                own.cancel()

    def freeze(numbers: random.Random) -> None:
        time.sleep(numbers.random() / 10)
        try:
            con.execute("FREEZE TABLE ledger")
        except seracdb.OperationalError as error:
            assert str(error.sqlstate)[:2] in ("40", "55"), error

    storm.start(transfer, times=3)
    storm.start(look)
    storm.start(cancel)
    storm.start(freeze)
    storm.run()
    for own in opened.values():
        own.close()
    con.execute("SELECT 1")
    if where == "folder":
        con.close()
        con = seracdb.connect(path, autocommit=True)
    ledger = {row[0]: row[1:] for row in con.execute("SELECT * FROM ledger")}
    assert committed <= ledger.keys() and not failed & ledger.keys()
    expected = Counter(dict.fromkeys(range(ACCOUNTS), START))
    for source, target, amount in ledger.values():
        expected[source] -= amount
        expected[target] += amount
    assert dict(con.execute("SELECT id, balance FROM account").fetchall()) == expected
    assert committed
    con.close()


def test_cursors_of_one_connection(storm, con):
    """Rows of each thread's query stay its own, however the threads take turns."""
    con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
    con.execute("INSERT INTO t SELECT i, i * 3 FROM generate_series(0, 999) AS g (i)")
    select = con.prepare("SELECT id, n FROM t WHERE id = $1")

    def query(numbers: random.Random) -> None:
        first, count = numbers.randrange(10**6), numbers.choice([0, 1, 10, 3000, 20_000])
        cursor = con.execute("SELECT $1::bigint + i FROM generate_series(1, $2) AS g (i)", (first, count))
        manner, rows = numbers.randrange(5), []
        if manner == 0:
            rows = cursor.fetchall()
        elif manner == 1:
            while part := cursor.fetchmany(numbers.randrange(1, 5000)):
                rows += part
        elif manner == 2:
            rows = [cursor.fetchone() for _ in range(min(count, 5))] + [(v,) for v in cursor.arrow().column(0).to_pylist()]
        elif manner == 3:
            reader = cursor.reader()
            rows = [(value,) for batch in reader for value in batch.column(0).to_pylist()]
        else:
            # Left in the middle.
            assert cursor.fetchmany(2) == [(first + i,) for i in range(1, min(count, 2) + 1)]
            return
        assert rows == [(first + i,) for i in range(1, count + 1)]

    def key(numbers: random.Random) -> None:
        at = numbers.randrange(1100)
        assert select(at) == ([(at, at * 3)] if at < 1000 else [])

    storm.start(query, times=3)
    storm.start(key, times=2)
    storm.run()


def test_one_cursor_of_many_threads(storm, con):
    """A cursor gives each row once, or tells that another thread reads."""
    given: list[int] = []
    cursor = con.execute("SELECT i FROM generate_series(1, 1000000) AS g (i)")

    def read(numbers: random.Random) -> None:
        try:
            given.extend(value for (value,) in cursor.fetchmany(numbers.randrange(1, 300)))
        except seracdb.InterfaceError as error:
            assert "another thread reads" in str(error), error

    storm.start(read, times=4)
    storm.run(min(SECONDS, 5))
    # Compared first: pytest would show how two long lists differ.
    is_whole = sorted(given) == list(range(1, len(given) + 1))
    assert is_whole


def test_closing_in_the_middle(storm, con):
    """Whoever uses a connection that another thread closes is told so, and gets no wrong rows."""
    con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
    con.execute("INSERT INTO t SELECT i, i FROM generate_series(0, 999) AS g (i)")
    shared = [con.connect(autocommit=True)]

    def use(numbers: random.Random) -> None:
        own = shared[0]
        try:
            manner = numbers.randrange(6)
            if manner == 0:
                assert own.execute("SELECT sum(n) FROM t").fetchone() == (499_500,)
            elif manner == 1:
                assert own.prepare("SELECT n FROM t WHERE id = $1")(7) == [(7,)]
            elif manner == 2:
                rows = own.execute("SELECT i FROM generate_series(1, 30000) AS g (i)")
                assert [row[0] for row in rows] == list(range(1, 30_001))
            elif manner == 3:
                table = own.execute("SELECT i FROM generate_series(1, 30000) AS g (i)").reader().read_all()
                assert table.num_rows == 30_000
            elif manner == 4:
                with own.transaction():
                    own.execute("UPDATE t SET n = n WHERE id = 5")
                    raise seracdb.Rollback
            else:
                assert own.table("t").scan().arrow().num_rows == 1000
        except (seracdb.InterfaceError, pyarrow.ArrowException) as error:
            assert own.closed or "closed" in str(error), error
        except (seracdb.InternalError, seracdb.ProgrammingError, seracdb.OperationalError) as error:
            # Threads that share a connection share its transaction, too.
            assert error.sqlstate in ("25P01", "25P02", "25001", "3B001", "57014", "40001"), error

    def close(numbers: random.Random) -> None:
        time.sleep(numbers.random() / 20)
        old, shared[0] = shared[0], con.connect(autocommit=True)
        if numbers.random() < 0.5:
            old.cancel()
        old.close()

    storm.start(use, times=4)
    storm.start(close)
    storm.run()
    assert con.execute("SELECT sum(n) FROM t").fetchone() == (499_500,)


def test_a_folder_that_is_opened_and_closed(storm, tmp_path):
    """The last connection of many closes the database, the next one opens it: nothing is lost."""
    path = tmp_path / "db"
    with seracdb.connect(path, autocommit=True) as con:
        con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    keys = iter(range(10**9))
    kept: list[int] = []
    lock = threading.Lock()

    def use(numbers: random.Random) -> None:
        with lock:
            key = next(keys)
        con = seracdb.connect(path, autocommit=True)
        con.execute("INSERT INTO t VALUES ($1)", (key,))
        kept.append(key)
        if numbers.random() < 0.5:
            con.close()

    storm.start(use, times=3)
    storm.run()
    with seracdb.connect(path) as con:
        assert sorted(key for (key,) in con.execute("SELECT id FROM t")) == sorted(kept)


def test_connections_that_append_each_others_rows(storm, con):
    """Each has its session while it reads the other's rows."""
    con.execute("CREATE TABLE t (id BIGINT)")
    pair = [con.connect(autocommit=True), con.connect(autocommit=True)]

    def append(numbers: random.Random) -> None:
        one, other = numbers.sample(pair, 2)
        count = numbers.choice([10, 5000, 50_000])
        rows = one.execute("SELECT i::bigint AS id FROM generate_series(1, $1) AS g (i)", (count,))
        assert other.append("t", rows) == count

    storm.start(append, times=3)
    storm.run()


def test_frames_are_made_with_other_connections(con):
    """The code that makes a frame may ask the database, but not by the connection that waits for
    it."""
    con.execute("CREATE TABLE t (id BIGINT)")
    other = con.connect(autocommit=True)
    schema = pyarrow.schema([("id", pyarrow.int64())])

    def batches(source: seracdb.Connection):
        for start in range(0, 3000, 1000):
            ((first,),) = source.execute("SELECT $1::bigint", (start,)).fetchall()
            rows = source.execute("SELECT i::bigint FROM generate_series($1::int, $1::int + 999) AS g (i)", (first,))
            yield pyarrow.record_batch([pyarrow.array([i for (i,) in rows], pyarrow.int64())], schema=schema)

    def frame(source: seracdb.Connection) -> pyarrow.RecordBatchReader:
        return pyarrow.RecordBatchReader.from_batches(schema, batches(source))

    def both() -> None:
        assert con.append("t", frame(other)) == 3000
        with pytest.raises(seracdb.Error, match="waits for the code that uses it"):
            con.append("t", frame(con))

    # In the main thread, whose statements run in another one, and in one of its own.
    both()
    failures: list[BaseException] = []

    def in_thread() -> None:
        try:
            both()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=in_thread, daemon=True)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive() and not failures, failures
    assert con.execute("SELECT count(*), sum(id) FROM t").fetchone() == (6000, 2 * sum(range(3000)))


def test_statements_that_threads_share(storm, tmp_path):
    """A thread that waits for its commit to be on the disk does not keep the statement from
    others."""
    con = seracdb.connect(tmp_path / "db", autocommit=True)
    con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
    insert = con.prepare("INSERT INTO t VALUES ($1, 0)")
    keys = iter(range(10**9))
    kept: list[int] = []
    lock = threading.Lock()

    def use(numbers: random.Random) -> None:
        with lock:
            key = next(keys)
        insert(key)
        con.execute("UPDATE t SET n = n + $2 WHERE id = $1", (key, key))
        kept.append(key)

    storm.start(use, times=3)
    storm.run()
    assert con.execute("SELECT count(*), sum(n) FROM t").fetchone() == (len(kept), sum(kept))
    con.close()
