"""Threads, signals, forks, and what happens at import."""

import subprocess
import sys
import textwrap
import threading
import time

import pyarrow
import pytest
import seracdb

# Runs for minutes, on one thread, in the pieces that a query is made of.
LONG = "SELECT count(*) FROM generate_series(1, 2000000000) AS a (i) WHERE i % 7 = 8"


def run(code, *, timeout=120):
    """The output of a Python process."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_nothing_starts_at_import():
    done = run(
        """
        import os, sys, threading
        before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else None
        import seracdb
        if before is not None:
            assert len(os.listdir("/proc/self/task")) == before
        assert threading.active_count() == 1
        assert not {"pyarrow", "pandas", "polars", "numpy"} & set(sys.modules)
        con = seracdb.connect()
        con.execute("SELECT 1").fetchall()
        print("done")
        """
    )
    assert done.stdout == "done\n", done.stderr


def test_python_goes_on_while_a_statement_runs(con):
    ticks = 0
    finished = threading.Event()

    def work():
        try:
            con.execute(LONG).fetchall()
        except seracdb.QueryCanceled:
            finished.set()

    thread = threading.Thread(target=work)
    thread.start()
    end = time.monotonic() + 1
    while time.monotonic() < end:
        ticks += 1
    assert ticks > 10_000 and not finished.is_set()
    con.cancel()
    thread.join(timeout=30)
    assert finished.is_set()
    assert con.execute("SELECT 1").fetchone() == (1,)


def test_threads_share_a_connection(con):
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    failures = []

    def work(number):
        try:
            insert = con.prepare("INSERT INTO t VALUES ($1, $2)")
            for at in range(200):
                insert(number * 200 + at, at)
                rows = con.execute("SELECT i FROM generate_series(1, 3000) AS g (i)").fetchall()
                assert len(rows) == 3_000
                assert con.execute("SELECT n FROM t WHERE id = $1", (number * 200 + at,)).fetchall() == [(at,)]
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert con.execute("SELECT count(*) FROM t").fetchone() == (800,)


def test_threads_with_connections_of_their_own(con):
    con.execute("CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL)")
    con.executemany("INSERT INTO account VALUES ($1, 1000)", [(i,) for i in range(20)])
    stop = threading.Event()
    failures = []

    def transfer(seed):
        try:
            with con.connect() as own:
                move = own.prepare("UPDATE account SET balance = balance + $2 WHERE id = $1")
                at = seed
                while not stop.is_set():
                    at = (at * 7 + 3) % 20
                    other = (at + 1 + seed) % 20

                    def both(_, at=at, other=other):
                        move(at, -1)
                        move(other, 1)

                    own.transact(both, attempts=10_000)
        except BaseException as failure:
            failures.append(failure)

    def read():
        try:
            with con.connect() as own:
                while not stop.is_set():
                    assert own.execute("SELECT sum(balance) FROM account").fetchone() == (20_000,)
                    balances = own.table("account").scan(["balance"]).arrow()["balance"]
                    assert sum(balances.to_pylist()) == 20_000
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=transfer, args=(seed,)) for seed in range(3)]
    threads.append(threading.Thread(target=read))
    for thread in threads:
        thread.start()
    time.sleep(2)
    stop.set()
    for thread in threads:
        thread.join(timeout=60)
    assert not failures, failures


def test_a_frame_made_by_python_code_is_appended_beside_other_threads(con):
    """The thread that appends needs Python's lock while it has the session."""
    con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    schema = pyarrow.schema([("id", pyarrow.int64())])

    def batches():
        for start in range(0, 20_000, 1000):
            time.sleep(0.001)
            yield pyarrow.record_batch({"id": list(range(start, start + 1000))})

    appending = threading.Thread(
        target=lambda: con.append("t", pyarrow.RecordBatchReader.from_batches(schema, batches()))
    )
    appending.start()
    select = con.prepare("SELECT id FROM t WHERE id = $1")
    while appending.is_alive():
        assert select(5) in ([], [(5,)])
        reader = con.execute("SELECT i FROM generate_series(1, 30000) AS g (i)").reader()
        assert sum(batch.num_rows for batch in reader) == 30_000
    assert con.execute("SELECT count(*) FROM t").fetchone() == (20_000,)


@pytest.mark.parametrize(
    "statement",
    [
        f"con.execute({LONG!r}).fetchall()",
        f"con.prepare({LONG.replace('8', '$1')!r})(8)",
        "con.execute('CREATE TABLE t AS SELECT i FROM generate_series(1, 2000000000) AS g (i)')",
        "con.executemany('SELECT pg_sleep(100)', [()])",
        "locked.execute('UPDATE u SET n = 2')",
    ],
)
def test_control_c_cancels(statement):
    done = run(
        f"""
        import os, signal, threading, time, seracdb
        con = seracdb.connect(autocommit=True)
        con.execute("CREATE TABLE u (n INT); INSERT INTO u VALUES (1)")
        holder, locked = con.connect(autocommit=False), con.connect(autocommit=True)
        holder.execute("UPDATE u SET n = 3")
        locked.execute("SET default_transaction_isolation = 'read committed'")
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        try:
            {statement}
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begun < 20)
        print(con.execute("SELECT 1").fetchall(), locked.execute("SELECT 1").fetchall())
        """
    )
    assert done.stdout == "interrupted True\n[(1,)] [(1,)]\n", done.stderr


def test_control_c_cancels_a_frame():
    done = run(
        f"""
        import os, signal, threading, pyarrow, seracdb
        con = seracdb.connect(autocommit=True)
        cursor = con.execute("SELECT i FROM generate_series(1, 2000000000) AS g (i) WHERE i < 20000 OR i % 7 = 8")
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            cursor.reader().read_all()
        except (KeyboardInterrupt, pyarrow.ArrowInvalid):  # a stream hands on texts of errors alone
            print("interrupted")
        print(con.execute("SELECT 1").fetchall())
        """
    )
    assert done.stdout == "interrupted\n[(1,)]\n", done.stderr


def test_a_fork_is_refused(tmp_path):
    done = run(
        f"""
        import os, seracdb
        con = seracdb.connect({str(tmp_path / "db")!r}, autocommit=True)
        con.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
        cursor = con.execute("SELECT i FROM generate_series(1, 100000) AS g (i)")
        statement = con.prepare("SELECT a FROM t WHERE a = $1")
        frame = con.table("t").scan()
        child = os.fork()
        if child == 0:
            for use in [lambda: con.execute("SELECT 1"), cursor.fetchone, lambda: statement(1), con.commit, con.cancel]:
                try:
                    use()
                except seracdb.InterfaceError as error:
                    assert "forked" in str(error), error
                else:
                    os._exit(1)
            # The child has databases of its own.
            own = seracdb.connect(autocommit=True)
            assert own.execute("SELECT 2").fetchall() == [(2,)]
            own.close()
            del con, cursor, statement, own
            raise SystemExit(7)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        print(cursor.fetchone(), con.execute("SELECT a FROM t").fetchall())
        con.close()
        """
    )
    assert done.stdout == "7\n(1,) [(1,)]\n", done.stderr
    with seracdb.connect(tmp_path / "db") as con:
        assert con.execute("SELECT a FROM t").fetchall() == [(1,)]


def test_the_end_of_the_process_keeps_what_was_committed(tmp_path):
    done = run(
        f"""
        import seracdb
        con = seracdb.connect({str(tmp_path / "db")!r}, durability="off", autocommit=True)
        con.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
        reader = con.execute("SELECT i FROM generate_series(1, 100000) AS g (i)")
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    with seracdb.connect(tmp_path / "db") as con:
        assert con.execute("SELECT a FROM t").fetchall() == [(1,)]


def test_a_statement_does_not_wait_for_itself():
    # An iterator that a statement reads, in the main thread and in another one; a finalizer; the
    # handler of a signal while a statement waits.
    done = run(
        """
        import gc, pyarrow, seracdb, signal, threading
        con = seracdb.connect(autocommit=True)
        con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 1)")
        seen = []

        def use():
            for use in [lambda: con.execute("SELECT 1"), lambda: con.prepare("SELECT 1"), con.close, con.table("t").scan]:
                try:
                    use()
                except seracdb.OperationalError as error:
                    assert error.sqlstate == "55006", error
                    seen.append(1)

        def batches():
            use()
            own = con.connect()
            yield from own.execute("SELECT id + 10 AS id FROM t").reader()
            own.close()

        schema = pyarrow.schema([("id", pyarrow.int64())])
        frame = lambda: pyarrow.RecordBatchReader.from_batches(schema, batches())
        assert con.append("t", frame()) == 1
        thread = threading.Thread(target=lambda: con.append("t", frame()))
        thread.start()
        thread.join()
        print(len(seen))

        class Finalized:
            def __del__(self):
                con.execute("SELECT 1").fetchall()

        gc.set_threshold(1)
        for _ in range(50):
            cycle = [Finalized()]
            cycle.append(cycle)
            del cycle
            try:
                con.execute("INSERT INTO t VALUES ($1, 0)", (1,))
            except seracdb.UniqueViolation:
                pass
        gc.set_threshold(700)

        seen.clear()
        other = con.connect()
        other.execute("BEGIN; UPDATE t SET n = 2 WHERE id = 1")
        con.execute("SET default_transaction_isolation = 'read committed'")
        def handle(*_):
            use()
            other.rollback()
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        con.execute("UPDATE t SET n = 3 WHERE id = $1", (1,))
        print(len(seen), con.execute("SELECT n FROM t WHERE id = 1").fetchall())
        """
    )
    assert done.stdout == "8\n4 [(3,)]\n", (done.stdout, done.stderr)


def test_a_busy_connection_gives_another(con):
    thread = threading.Thread(target=lambda: pytest.raises(seracdb.QueryCanceled, lambda: con.execute(LONG).fetchall()))
    thread.start()
    time.sleep(0.2)
    with con.connect() as other:
        assert other.execute("SELECT 1").fetchall() == [(1,)]
    con.cancel()
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_a_fork_beside_a_thread_that_opens_a_database(tmp_path):
    done = run(
        f"""
        import os, seracdb, signal, threading, time
        stop = threading.Event()

        def open_and_close():
            while not stop.is_set():
                seracdb.connect({str(tmp_path / "parent")!r}).close()

        thread = threading.Thread(target=open_and_close)
        thread.start()
        for at in range(10):
            time.sleep(0.01)
            child = os.fork()
            if child == 0:
                # Ends a child that waits.
                signal.alarm(20)
                seracdb.connect({str(tmp_path)!r} + f"/child{{at}}").close()
                os._exit(0)
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), end="")
        stop.set()
        thread.join()
        """
    )
    assert done.stdout == "0" * 10, done.stderr


def test_a_cursor_in_use_is_refused_elsewhere(con):
    # Its first rows come at once, the next one after minutes.
    cursor = con.execute("SELECT i FROM generate_series(1, 2000000000) AS g (i) WHERE i < 20000 OR i % 7 = 8")
    assert cursor.fetchone() == (1,)
    seen = []

    def read():
        try:
            cursor.fetchall()
        except seracdb.QueryCanceled as error:
            seen.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.5)
    with pytest.raises(seracdb.InterfaceError, match="another thread"):
        cursor.fetchone()
    con.cancel()
    thread.join(timeout=30)
    assert len(seen) == 1
