"""psycopg against the server. Arguments: which of the checks, and the port."""

import datetime as dt
import decimal
import faulthandler
import sys
import threading
import time
import uuid

import psycopg
from psycopg import errors, sql
from psycopg.types.json import Json, Jsonb

# Nothing here takes long: what hangs is ended, and says where.
faulthandler.dump_traceback_later(120, exit=True)
CHECKS, PORT = sys.argv[1], int(sys.argv[2])


def connect(**options):
    given = {"host": "127.0.0.1", "port": PORT, "user": "ada", "dbname": "db", "connect_timeout": 10, **options}
    return psycopg.connect(**given)


def raises(kind, run):
    try:
        run()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected")


VALUES = {
    "BOOLEAN": [True, False],
    "SMALLINT": [-32768, 0, 7],
    "INTEGER": [-(2**31), 12],
    "BIGINT": [2**63 - 1, -5],
    "REAL": [0.5, -1.25],
    "DOUBLE PRECISION": [0.1, 1e300, -2.5e-10],
    "NUMERIC(12,2)": [decimal.Decimal("0.05"), decimal.Decimal("-1234567890.12")],
    "NUMERIC(38,10)": [decimal.Decimal("1.0000000001"), decimal.Decimal("-12345678901234567890.5000000000")],
    "TEXT": ["", "ünïcode 🧊", "tab\tnewline\nbackslash\\ quote'"],
    "BYTEA": [b"", b"\x00\xff\\", bytes(range(256))],
    "DATE": [dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(1969, 12, 31)],
    "TIME": [dt.time(0, 0), dt.time(23, 59, 59, 999999)],
    "TIMESTAMP": [dt.datetime(2000, 1, 1), dt.datetime(1999, 12, 31, 23, 59, 59, 1)],
    "TIMESTAMPTZ": [dt.datetime(2026, 11, 21, 12, 30, tzinfo=dt.timezone.utc)],
    "INTERVAL": [dt.timedelta(days=3, seconds=5, microseconds=7), dt.timedelta(0)],
    "UUID": [uuid.UUID(int=0), uuid.UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")],
}


def types():
    """Every type, as parameter and as result, in both formats, and through COPY."""
    with connect(autocommit=True) as connection:
        for i, (name, values) in enumerate(VALUES.items()):
            table = sql.Identifier(f"types_{i}")
            connection.execute(sql.SQL("CREATE TABLE {} (id INTEGER PRIMARY KEY, v " + name + ")").format(table))
            for binary in (False, True):
                mark = "%b" if binary else "%t"
                cursor = connection.cursor(binary=binary)
                cursor.execute(sql.SQL("DELETE FROM {}").format(table))
                insert = sql.SQL("INSERT INTO {} VALUES (%s, " + mark + ")").format(table)
                cursor.executemany(insert, list(enumerate([*values, None])))
                rows = cursor.execute(sql.SQL("SELECT v FROM {} ORDER BY id").format(table)).fetchall()
                assert [row[0] for row in rows] == [*values, None], (name, binary, rows)
                for n, value in enumerate(values):
                    select = sql.SQL("SELECT v FROM {} WHERE id = %s").format(table)
                    assert cursor.execute(select, (n,)).fetchone()[0] == value, (name, binary)
            copied = "types_copied_%d" % i
            connection.execute(f"CREATE TABLE {copied} (id INTEGER, v {name})")
            for options in ("", "WITH (FORMAT csv)", "WITH (FORMAT binary)"):
                connection.execute(f"DELETE FROM {copied}")
                with connection.cursor() as cursor:
                    with cursor.copy(sql.SQL("COPY {} TO STDOUT " + options).format(table)) as out:
                        data = b"".join(bytes(piece) for piece in out)
                    if not options:
                        assert len(data.splitlines()) == len(values) + 1
                    with cursor.copy(f"COPY {copied} FROM STDIN {options}") as copy:
                        for at in range(0, len(data), 7):
                            copy.write(data[at : at + 7])
                rows = connection.execute(f"SELECT v FROM {copied} ORDER BY id").fetchall()
                # In CSV, an empty text without quotes is NULL.
                if not (name in ("TEXT", "BYTEA") and options == "WITH (FORMAT csv)"):
                    assert [row[0] for row in rows] == [*values, None], (name, options, rows)


def documents():
    """JSON as psycopg has it: values of Python, as parameters, results, elements of arrays, and
    through COPY."""
    values = [{"name": "Ann", "tags": ["a", None, 1.5]}, [1, {"x": True}], "text", 7, None]
    with connect(autocommit=True) as c:
        c.execute("CREATE TABLE documents (id INTEGER PRIMARY KEY, doc JSONB, plain JSON)")
        for binary in (False, True):
            cursor = c.cursor(binary=binary)
            cursor.execute("DELETE FROM documents")
            rows = [(i, Jsonb(value), Json(value)) for i, value in enumerate(values)] + [(len(values), None, None)]
            cursor.executemany("INSERT INTO documents VALUES (%s, %s, %s)", rows)
            # Through the plans of statements that a session sees again, and others.
            for n, value in enumerate([*values, None]):
                got = cursor.execute("SELECT doc, plain FROM documents WHERE id = %s", (n,)).fetchone()
                assert got == (value, value), (binary, n, got)
            got = cursor.execute("SELECT array_agg(doc ORDER BY id), jsonb_agg(doc ORDER BY id) FROM documents").fetchone()
            assert got == ([*values, None], [*values, None]), (binary, got)
            got = cursor.execute("SELECT id FROM documents WHERE doc @> %s", (Jsonb({"tags": ["a"]}),)).fetchall()
            assert got == [(0,)], (binary, got)
            got = cursor.execute("SELECT %s, %s->>'a', %s::jsonb || '{\"b\":2}'", (Jsonb([1]), Jsonb({"a": 1}), '{"a":1}')).fetchone()
            assert got == ([1], "1", {"a": 1, "b": 2}), (binary, got)
            cursor.execute("UPDATE documents SET doc = %s WHERE id = %s RETURNING doc ->> 'k'", (Jsonb({"k": "v"}), 3))
            assert cursor.fetchone() == ("v",)
            assert cursor.execute("SELECT coalesce(json_agg(id), '[]') FROM documents WHERE id > 99").fetchone() == ([],)
            # The two types have numbers and binary forms of their own, alone and in arrays, on
            # either path.
            one = "FROM documents WHERE id = 1"
            got = cursor.execute(f"SELECT plain, doc, plain -> 0, to_json(id), ARRAY[plain], ARRAY[doc] {one}")
            assert [column.type_code for column in got.description] == [114, 3802, 114, 114, 199, 3807], binary
            assert got.fetchone() == (values[1], values[1], 1, 1, [values[1]], [values[1]]), binary
            got = cursor.execute("SELECT plain, doc FROM documents WHERE id = %s", (1,))
            assert [column.type_code for column in got.description] == [114, 3802], binary
            assert got.fetchone() == (values[1], values[1]), binary
            got = cursor.execute("SELECT %s::json::text, pg_typeof(%s)::text", ('{"b" :1,"a": 2}', Json(1)))
            assert got.fetchone() == ('{"b" :1,"a": 2}', "json"), binary
        error = raises(errors.InvalidTextRepresentation, lambda: c.execute("INSERT INTO documents VALUES (9, %s)", ("{",)))
        assert "invalid input syntax for type json" in str(error), error
        for options in ("", "WITH (FORMAT csv)", "WITH (FORMAT binary)"):
            with c.cursor() as cursor:
                with cursor.copy(f"COPY documents (id, doc) TO STDOUT {options}") as out:
                    data = b"".join(bytes(piece) for piece in out)
                cursor.execute("CREATE TABLE copied_documents (id INTEGER, doc JSONB)")
                with cursor.copy(f"COPY copied_documents FROM STDIN {options}") as copy:
                    copy.write(data)
                same = "SELECT count(*) FROM documents AS a JOIN copied_documents AS b ON a.id = b.id AND a.doc IS NOT DISTINCT FROM b.doc"
                assert cursor.execute(same).fetchone() == (len(values) + 1,), options
                cursor.execute("DROP TABLE copied_documents")


def parameters():
    """A parameter alone is of the type that the client has named, in both formats; keys in
    errors are readable."""
    values = [1, 40_000, 2**40, "a", 1.5, True, decimal.Decimal("1.50"), dt.date(2020, 1, 1), dt.datetime(2020, 1, 1),
              dt.timedelta(days=1), dt.time(1, 2), uuid.UUID(int=3), b"x", [1, 2], [uuid.UUID(int=4)], None]  # fmt: skip
    with connect(autocommit=True) as c:
        for value in values:
            for binary in (False, True):
                for text in ("SELECT %s", "SELECT x FROM (SELECT %s AS x) q", "SELECT CASE WHEN true THEN %s END"):
                    got = c.cursor(binary=binary).execute(text, (value,)).fetchone()[0]
                    assert got == value and type(got) is type(value), (text, binary, value, got)
        c.execute("CREATE TABLE keyed (u UUID, n NUMERIC(10,2), d DATE, PRIMARY KEY (u, n, d))")
        insert = "INSERT INTO keyed VALUES (%s, %s, %s)"
        row = (uuid.UUID(int=3), decimal.Decimal("1.5"), dt.date(2020, 1, 1))
        c.execute(insert, row)
        error = raises(errors.UniqueViolation, lambda: c.execute(insert, row))
        shown = "Key (u, n, d)=(00000000-0000-0000-0000-000000000003, 1.50, 2020-01-01) already exists."
        assert error.diag.message_detail == shown, error.diag.message_detail


def transactions():
    """Blocks, savepoints, errors, conflicts, disconnects, pipelines."""
    with connect(autocommit=True) as c:
        c.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER CHECK (balance >= 0))")
        c.execute("INSERT INTO account VALUES (1, 10), (2, 20)")
    with connect() as c:
        assert c.info.transaction_status.name == "IDLE"
        c.execute("UPDATE account SET balance = balance - 1 WHERE id = 1")
        assert c.info.transaction_status.name == "INTRANS"
        with c.transaction():
            c.execute("UPDATE account SET balance = 0 WHERE id = 2")
            raises(errors.CheckViolation, lambda: c.execute("SELECT 1") and nested_failure(c))
        assert c.execute("SELECT balance FROM account ORDER BY id").fetchall() == [(9,), (0,)]
        error = raises(errors.UniqueViolation, lambda: c.execute("INSERT INTO account VALUES (1, 1)"))
        assert error.diag.constraint_name == "account_pkey" and "already exists" in error.diag.message_detail
        assert c.info.transaction_status.name == "INERROR"
        raises(errors.InFailedSqlTransaction, lambda: c.execute("SELECT 1"))
        c.rollback()
        error = raises(errors.UndefinedTable, lambda: c.execute("SELECT *\nFROM nowhere"))
        assert error.diag.statement_position == "15", error.diag.statement_position
        c.rollback()
    with connect() as a, connect() as b:
        a.isolation_level = b.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        a.execute("UPDATE account SET balance = 5 WHERE id = 1")
        b.execute("SELECT 1")
        b.execute("SET lock_timeout = 20")
        raises(errors.LockNotAvailable, lambda: b.execute("UPDATE account SET balance = 6 WHERE id = 1"))
        b.rollback()
        b.execute("SELECT balance FROM account WHERE id = 1")
        a.commit()
        raises(errors.SerializationFailure, lambda: b.execute("UPDATE account SET balance = 6 WHERE id = 1"))
        b.rollback()
        assert b.execute("SELECT balance FROM account WHERE id = 1").fetchone() == (5,)
    gone = connect()
    gone.execute("UPDATE account SET balance = 77 WHERE id = 2")
    gone.pgconn.finish()
    for _ in range(100):
        try:
            with connect() as c:
                c.execute("UPDATE account SET balance = 21 WHERE id = 2")
            break
        except errors.SerializationFailure:
            time.sleep(0.05)
    else:
        raise AssertionError("the transaction of a client that has gone is still open")
    with connect(autocommit=True) as c:
        # What is in one pipeline between two Syncs is one transaction.
        try:
            with c.pipeline():
                c.execute("INSERT INTO account VALUES (3, 1)")
                c.execute("INSERT INTO account VALUES (4, -1)")
        except errors.CheckViolation:
            pass
        assert c.execute("SELECT count(*) FROM account").fetchone() == (2,)
        with c.pipeline():
            for i in range(3, 50):
                c.execute("INSERT INTO account VALUES (%s, 1)", (i,))
        assert c.execute("SELECT count(*) FROM account").fetchone() == (49,)
        c.execute("SELECT 1; INSERT INTO account VALUES (50, 1); SELECT 2")
        raises(errors.UniqueViolation, lambda: c.execute("DELETE FROM account WHERE id = 50; INSERT INTO account VALUES (1, 1)"))
        assert c.execute("SELECT count(*) FROM account WHERE id = 50").fetchone() == (1,)


def nested_failure(connection):
    with connection.transaction():
        connection.execute("UPDATE account SET balance = -1 WHERE id = 2")


def statements():
    """Prepared statements, portals, large results, cancellation, COPY's errors."""
    with connect(autocommit=True, prepare_threshold=0) as c:
        c.execute("CREATE TABLE numbers (n BIGINT PRIMARY KEY, t TEXT)")
        c.execute("INSERT INTO numbers SELECT v, 'number ' || v FROM generate_series(1, 100000) AS g(v)")
        for i in (1, 77, 100_000, 100_001):
            row = c.execute("SELECT t FROM numbers WHERE n = %s", (i,)).fetchone()
            assert row == (None if i > 100_000 else (f"number {i}",)), row
        assert c.execute("UPDATE numbers SET t = %s WHERE n = %s", ("x", 5)).rowcount == 1
        assert c.execute("DELETE FROM numbers WHERE n > %s", (99_990,)).rowcount == 10
        assert c.execute("SELECT sum(n) FROM numbers WHERE n %% %s = %s", (3, 1)).fetchone() is not None
        rows = c.execute("SELECT n, t FROM numbers ORDER BY n").fetchall()
        assert len(rows) == 99_990 and rows[4] == (5, "x")
        with c.cursor() as cursor:
            assert sum(1 for _ in cursor.stream("SELECT n FROM numbers")) == 99_990
        assert c.execute("SELECT 1 AS a, 'x' AS b WHERE false").description[1].name == "b"
        raises(errors.SyntaxError, lambda: c.execute("SELEC 1"))
        raises(errors.NumericValueOutOfRange, lambda: c.execute("INSERT INTO numbers VALUES (%t, 'x')", (2**70,)))
        timer = threading.Timer(0.3, c.cancel_safe)
        timer.start()
        started = time.monotonic()
        raises(
            errors.QueryCanceled,
            lambda: c.execute("SELECT count(*) FROM numbers a, numbers b WHERE a.t || b.t LIKE '%nothing%'"),
        )
        assert time.monotonic() - started < 20
        timer = threading.Timer(0.3, c.cancel_safe)
        timer.start()
        raises(errors.QueryCanceled, lambda: c.execute("SELECT pg_sleep(1000)"))
        assert c.execute("SELECT 1").fetchone() == (1,)
        # Numbers of rows and lengths are integers, and what is calculated of times is an interval.
        row = c.execute(
            "SELECT row_number() OVER (), array_length(ARRAY[1, 2], 1), %s::timestamp - TIMESTAMP '2020-01-01 10:00', "
            "INTERVAL '1 day' * %s, INTERVAL '1 day 02:00' > %s, TIME '10:00' = %s",
            (dt.datetime(2020, 1, 2), 2, dt.timedelta(hours=25), dt.time(10)),
        ).fetchone()
        assert row == (1, 2, dt.timedelta(hours=14), dt.timedelta(days=2), True, True), row
        assert [type(number) for number in row[:2]] == [int, int]

        def bad_copy():
            with c.cursor() as cursor, cursor.copy("COPY numbers FROM STDIN") as copy:
                copy.write(b"200001\tgood\n200002\tgood\nbad\tworse\n")

        error = raises(errors.DataError, bad_copy)
        assert "bad" in str(error), error

        def short_copy():
            with c.cursor() as cursor, cursor.copy("COPY numbers FROM STDIN") as copy:
                copy.write(b"200001\tgood\n200002\n")

        error = raises(errors.BadCopyFileFormat, short_copy)
        assert "line 2" in error.diag.message_detail, error.diag.message_detail

        def given_up():
            with c.cursor() as cursor, cursor.copy("COPY numbers FROM STDIN") as copy:
                copy.write(b"200001\tgood\n")
                raise KeyError("the client's own trouble")

        raises(KeyError, given_up)
        assert c.execute("SELECT count(*) FROM numbers WHERE n > 100000").fetchone() == (0,)
        assert c.execute("SELECT current_database(), current_user").fetchone() == ("db", "ada")
        c.execute("SET application_name = 'tests'")
        assert c.execute("SHOW application_name").fetchone() == ("tests",)
        raises(errors.InvalidParameterValue, lambda: c.execute("SET client_encoding = 'latin1'"))


def names():
    """Columns that the query does not name have PostgreSQL's names, and tags say what was done."""
    with connect(autocommit=True) as c:
        c.execute("CREATE TABLE named (a INTEGER PRIMARY KEY, b INTEGER)")
        for text, names, tag in [
            ("SELECT 1", ["?column?"], "SELECT 1"),
            ("SELECT count(*), max(a)::bigint, a + 1, 'x', b AS y FROM named GROUP BY a, b", ["count", "max", "?column?", "?column?", "y"], "SELECT 0"),
            ("SELECT *, a, b + 1 FROM named", ["a", "b", "a", "?column?"], "SELECT 0"),
            ("SELECT 1::int, CASE WHEN true THEN 1 END, version(), true", ["int4", "case", "version", "?column?"], "SELECT 1"),
            ("INSERT INTO named VALUES (1, 2), (3, 4) RETURNING a, a + b, *", ["a", "?column?", "a", "b"], "INSERT 0 2"),
            ("INSERT INTO named VALUES (5, 6) RETURNING a + b", ["?column?"], "INSERT 0 1"),
            ("UPDATE named SET b = 0 WHERE a = 1 RETURNING coalesce(b, a)", ["coalesce"], "UPDATE 1"),
            ("SELECT a + 1, b FROM named WHERE a = 1", ["?column?", "b"], "SELECT 1"),
            ("SELECT count(*) FROM named WHERE a = 1", ["count"], "SELECT 1"),
            ("DELETE FROM named RETURNING a", ["a"], "DELETE 3"),
            ("SHOW transaction_isolation", ["transaction_isolation"], "SHOW"),
        ]:
            for prepare in (False, True):
                for _ in range(3 if text.startswith("SELECT") else 1):
                    cursor = c.execute(text, prepare=prepare)
                    got = [column.name for column in cursor.description], cursor.statusmessage
                    assert got == (names, tag), (text, prepare, got)
                if not text.startswith(("SELECT", "SHOW")):
                    break


def others():
    """Who is connected is seen, cancelled and ended; the limits of a session."""
    other = connect(application_name="watched")
    with connect(autocommit=True, application_name="watcher") as c:
        (pid,) = c.execute("SELECT pid FROM serac_activity WHERE application_name = 'watched'").fetchone()
        assert pid == other.info.backend_pid
        me = c.execute("SELECT user_name, database, client_address, state, query FROM serac_activity WHERE pid = pg_backend_pid()").fetchone()
        assert me[:4] == ("ada", "db", "127.0.0.1", "active") and "pg_backend_pid" in me[4], me
        other.execute("SELECT 1")
        state = "SELECT state, wait_event, query FROM pg_stat_activity WHERE pid = %s"
        assert c.execute(state, (pid,)).fetchone() == ("idle in transaction", "ClientRead", "SELECT 1")
        other.commit()
        other.execute("SET application_name = 'renamed'")
        assert c.execute("SELECT application_name FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() == ("renamed",)
        other.commit()
        for function, kind in (("pg_cancel_backend", errors.QueryCanceled), ("pg_terminate_backend", psycopg.OperationalError)):
            outcome = []
            endless = "SELECT count(*) FROM generate_series(1, 1000000000000) AS a (x) WHERE x %% 1000003 = 7"
            thread = threading.Thread(target=lambda: outcome.append(raises(kind, lambda: other.execute(endless, ()))))
            thread.start()
            begun = "SELECT count(*) FROM serac_activity WHERE pid = %s AND state = 'active' AND query LIKE '%%1000003%%'"
            while c.execute(begun, (pid,)).fetchone() != (1,):
                time.sleep(0.02)
            assert c.execute(f"SELECT {function}({pid})").fetchone() == (True,)
            thread.join(20)
            assert outcome, function
            if function == "pg_cancel_backend":
                other.rollback()
                assert other.execute("SELECT 1").fetchone() == (1,)
                other.rollback()
        other.close()
        assert c.execute("SELECT pg_terminate_backend(2147483647)").fetchone() == (False,)
        names = {row[0] for row in c.execute("SELECT DISTINCT name FROM serac_metrics").fetchall()}
        assert {"serac_transactions_committed_total", "serac_statement_duration_seconds_bucket", "serac_undo_bytes"} <= names, names
        assert c.execute("SELECT value >= 1 FROM serac_metrics WHERE name = 'serac_transactions_aborted_total' AND labels = 'cause=\"57\"'").fetchone() == (True,)
    with connect(autocommit=True, options="-c statement_timeout=200 -c work_mem=256kB") as c:
        assert c.execute("SHOW statement_timeout").fetchone() == ("200ms",)
        raises(errors.QueryCanceled, lambda: c.execute("SELECT count(*) FROM generate_series(1, 1000000000000) AS a (x) WHERE x % 1000003 = 7"))
        c.execute("SET statement_timeout = DEFAULT")
        assert c.execute("SHOW statement_timeout").fetchone() == ("200ms",)
        c.execute("SET statement_timeout = 0")
        assert c.execute("SHOW work_mem").fetchone() == ("256kB",)
        c.execute("CREATE TABLE many AS SELECT x, 'number ' || x AS t FROM generate_series(1, 100000) AS a (x)")
        assert c.execute("SELECT count(*) FROM many AS a JOIN many AS b ON a.t = b.t").fetchone() == (100_000,)
        # A window over all rows, which must be in memory together.
        memory = "SELECT count(*) FROM (SELECT t, sum(x) OVER () AS total FROM many) AS q WHERE total > 0"
        raises(errors.OutOfMemory, lambda: c.execute(memory))
        c.execute("SET work_mem = '1GB'")
        assert c.execute(memory).fetchone() == (100_000,)
        for wrong in ("work_mem = '1 cow'", "statement_timeout = '-1'", "idle_session_timeout = 'soon'"):
            raises(errors.InvalidParameterValue, lambda: c.execute(f"SET {wrong}"))
    assert "unrecognized" in str(raises(psycopg.OperationalError, lambda: connect(options="-c nonsense=1")))


def cursors():
    """Cursors of the server's, which psycopg declares, describes and fetches from."""
    with connect() as c:
        c.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, name TEXT)")
        c.execute("INSERT INTO rows SELECT v, 'row ' || v FROM generate_series(1, 5000) AS g(v)")
        for binary in (False, True):
            with c.cursor(name="some rows", binary=binary) as cursor:
                cursor.execute("SELECT id, name FROM rows WHERE id > %s ORDER BY id", (10,))
                assert [column.name for column in cursor.description] == ["id", "name"], cursor.description
                assert cursor.fetchone() == (11, "row 11")
                assert cursor.fetchmany(2) == [(12, "row 12"), (13, "row 13")]
                cursor.scroll(1)
                assert cursor.fetchone() == (15, "row 15")
                cursor.scroll(-5)
                assert cursor.fetchone() == (11, "row 11")
                cursor.itersize = 700
                assert sum(id for id, _ in cursor) == sum(range(12, 5001))
                assert cursor.fetchall() == []
        assert c.execute("SELECT count(*) FROM pg_cursors").fetchone() == (0,)
        held = c.cursor(name="held", withhold=True)
        held.execute("SELECT id FROM rows WHERE id < 4 ORDER BY id")
        c.commit()
        assert [id for id, in held] == [1, 2, 3]
        held.close()
        with c.cursor(name="forward", scrollable=False) as cursor:
            cursor.execute("SELECT id FROM rows ORDER BY id")
            cursor.fetchmany(3)
            raises(errors.ObjectNotInPrerequisiteState, lambda: cursor.scroll(-1))
        c.rollback()


def pools():
    """What statements say beside their results, and what pools do before they give a connection
    to somebody else."""
    said = []
    with connect(autocommit=True) as c:
        c.add_notice_handler(lambda notice: said.append((notice.severity_nonlocalized, notice.sqlstate, notice.message_primary)))
        c.execute("DROP TABLE IF EXISTS nowhere")
        c.execute("COMMIT")
        c.execute("BEGIN")
        c.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        assert c.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
        c.execute("ROLLBACK")
        assert said == [
            ("NOTICE", "00000", 'table "nowhere" does not exist, skipping'),
            ("WARNING", "25P01", "there is no transaction in progress"),
            ("WARNING", "25001", "there is already a transaction in progress"),
        ], said
        for end in ("DEALLOCATE ALL", "DISCARD ALL", "DEALLOCATE one"):
            c.pgconn.prepare(b"one", b"SELECT $1::int")
            assert c.pgconn.exec_prepared(b"one", [b"7"]).get_value(0, 0) == b"7"
            c.execute(end)
            gone = c.pgconn.exec_prepared(b"one", [b"7"])
            assert gone.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"26000", gone.error_message
        raises(errors.InvalidSqlStatementName, lambda: c.execute("DEALLOCATE one"))
        c.execute("CREATE TEMP TABLE mine (a INTEGER)")
        c.execute("DISCARD ALL")
        raises(errors.UndefinedTable, lambda: c.execute("SELECT * FROM mine"))
    # More statements than psycopg keeps prepared.
    with connect(autocommit=True, prepare_threshold=0) as c:
        c.prepared_max = 5
        for n in range(20):
            assert c.execute(f"SELECT {n} + %s", (1,)).fetchone() == (n + 1,)


def queues():
    """Workers that take jobs: claims inside an UPDATE, and jobs that move to another table, with
    parameters in all parts."""
    take = "UPDATE queue SET worker = %s WHERE id = (SELECT id FROM queue WHERE worker IS NULL AND kind = %s ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
    with connect() as c, connect() as d:
        c.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, kind TEXT, worker TEXT)")
        c.execute("CREATE TABLE archive (id INTEGER, kind TEXT, worker TEXT)")
        c.execute("INSERT INTO queue SELECT i, CASE WHEN i % 2 = 0 THEN 'even' ELSE 'odd' END FROM generate_series(1, 8) AS g(i)")
        c.commit()
        # Neither waits for the other.
        d.execute("SET lock_timeout = '5s'")
        assert [c.execute(take, ("c", "even")).fetchall() for _ in range(2)] == [[(2,)], [(4,)]]
        assert [d.execute(take, ("d", "even")).fetchall() for _ in range(3)] == [[(6,)], [(8,)], []]
        d.rollback()
        c.commit()
        moved = c.execute(
            "WITH gone AS (DELETE FROM queue WHERE worker = %s RETURNING *), kept AS (INSERT INTO archive SELECT id, kind, %s FROM gone RETURNING id, worker) "
            "SELECT kept.id, kept.worker, gone.worker AS was FROM kept JOIN gone ON gone.id = kept.id WHERE kept.id > %s ORDER BY 1",
            ("c", "archived", 0), prepare=True,
        )
        assert [column.name for column in moved.description] == ["id", "worker", "was"]
        assert moved.fetchall() == [(2, "archived", "c"), (4, "archived", "c")]
        changed = c.execute("WITH few AS (SELECT id FROM queue WHERE id < %s) UPDATE queue SET kind = %s FROM few WHERE few.id = queue.id", (4, "low"))
        assert changed.rowcount == 2 and changed.statusmessage == "UPDATE 2", changed.statusmessage
        both = c.execute("WITH n AS (INSERT INTO queue VALUES (99) RETURNING id) SELECT * FROM n UNION ALL SELECT id FROM queue")
        assert sorted(both.fetchall()) == [(n,) for n in (1, 3, 5, 6, 7, 8, 99)]
        c.rollback()
        assert c.execute("SELECT (SELECT count(*) FROM archive), (SELECT count(*) FROM queue)").fetchone() == (0, 8)
        c.execute("DROP TABLE queue, archive")
        c.commit()


def channels():
    """LISTEN and NOTIFY: told while it waits, and at the end of a transaction of its own."""
    with connect(autocommit=True) as c, connect() as d:
        c.execute("LISTEN jobs")
        d.execute("SELECT pg_notify(%s, %s)", ("jobs", "ünï 🧊"))
        d.execute("NOTIFY jobs, 'two'")
        assert list(c.notifies(timeout=0.2)) == []
        d.commit()
        got = list(c.notifies(timeout=20, stop_after=2))
        assert [(n.channel, n.payload, n.pid) for n in got] == [("jobs", text, d.info.backend_pid) for text in ("ünï 🧊", "two")], got
        heard = []
        c.add_notify_handler(lambda notify: heard.append(notify.payload))
        c.execute("BEGIN")
        for text in ("three", "four"):
            d.execute(sql.SQL("NOTIFY jobs, {}").format(sql.Literal(text)))
            d.commit()
        assert c.execute("SELECT 1").fetchone() == (1,) and heard == []
        c.execute("COMMIT")
        assert heard == ["three", "four"], heard
        c.execute("NOTIFY jobs, 'own'")
        assert heard == ["three", "four", "own"], heard
        c.execute("UNLISTEN *")
        d.execute("NOTIFY jobs")
        d.commit()
        assert list(c.notifies(timeout=0.2)) == [] and len(heard) == 3
        raises(errors.InvalidParameterValue, lambda: d.execute("SELECT pg_notify('', 'x')"))


def concurrency():
    """Several clients add up to what each of them did."""
    with connect(autocommit=True) as c:
        c.execute("CREATE TABLE counter (id INTEGER PRIMARY KEY, n INTEGER)")
        c.execute("INSERT INTO counter VALUES (1, 0)")

    def work():
        with connect(autocommit=True) as c:
            done = 0
            while done < 200:
                c.execute("UPDATE counter SET n = n + 1 WHERE id = %s", (1,))
                done += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    with connect() as c:
        assert c.execute("SELECT n FROM counter").fetchone() == (800,)


def passwords():
    with connect(password="secret") as c:
        assert c.execute("SELECT current_user").fetchone() == ("ada",)
    for options in ({"password": "wrong"}, {"user": "eve", "password": "secret"}):
        error = raises(psycopg.OperationalError, lambda: connect(**options))
        assert "password authentication failed" in str(error), error
    raises(psycopg.OperationalError, lambda: connect(password=""))


def roles():
    # As long as there are no roles of the database's own, every name is the bootstrap role.
    with connect(user="anybody") as c:
        c.autocommit = True
        assert c.execute("SELECT current_user, session_user").fetchone() == ("anybody", "anybody")
        for statement in (
            "CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT)",
            "INSERT INTO t VALUES (1, 'one')",
            "CREATE ROLE reader LOGIN",
            "GRANT SELECT ON t TO reader",
        ):
            c.execute(statement)
        # From now on names are roles.
        assert 'role "eve" does not exist' in str(raises(psycopg.OperationalError, lambda: connect(user="eve")))
        with connect(user="reader") as r:
            r.autocommit = True
            assert r.execute("SELECT current_user").fetchone() == ("reader",)
            assert r.info.parameter_status("is_superuser") == "off"
            for _ in range(6):
                assert r.execute("SELECT v FROM t WHERE k = %s", (1,)).fetchone() == ("one",)
            error = raises(psycopg.errors.InsufficientPrivilege, lambda: r.execute("DELETE FROM t"))
            assert error.diag.message_primary == "permission denied for table t", error
            raises(psycopg.errors.InsufficientPrivilege, lambda: r.execute("COPY t TO '/tmp/never_written.csv'"))
            with r.cursor().copy("COPY t TO STDOUT") as copy:
                assert list(copy.rows()) == [("1", "one")]
            c.execute("REVOKE SELECT ON t FROM reader")
            raises(psycopg.errors.InsufficientPrivilege, lambda: r.execute("SELECT v FROM t WHERE k = %s", (1,)))
            raises(psycopg.errors.InsufficientPrivilege, lambda: list(r.cursor().copy("COPY t TO STDOUT").__enter__()))
        c.execute("ALTER ROLE reader PASSWORD 'it''s secret'")
    # From now on everybody must show a password.
    for options in ({"user": "reader"}, {"user": "serac"}, {"user": "reader", "password": "wrong"}):
        raises(psycopg.OperationalError, lambda: connect(**options))
    with connect(user="reader", password="it's secret") as r:
        r.autocommit = True
        r.execute("ALTER ROLE reader PASSWORD 'other'")
        raises(psycopg.errors.InsufficientPrivilege, lambda: r.execute("ALTER ROLE reader SUPERUSER"))
    raises(psycopg.OperationalError, lambda: connect(user="reader", password="it's secret"))
    connect(user="reader", password="other").close()


def tls():
    """Encrypted, by a server whose certificate is verified; not without."""
    options = {"host": "localhost", "hostaddr": "127.0.0.1", "password": "secret", "sslrootcert": sys.argv[3]}
    with connect(sslmode="verify-full", **options) as c:
        assert c.execute("SELECT 'ü' || repeat('x', 100000)").fetchone() == ("ü" + "x" * 100000,)
        assert c.pgconn.ssl_in_use
    error = raises(psycopg.OperationalError, lambda: connect(sslmode="disable", **options))
    assert "without encryption" in str(error), error
    raises(psycopg.OperationalError, lambda: connect(sslmode="verify-full", **{**options, "host": "elsewhere"}))
    # Cancelling opens a connection of its own, encrypted too.
    with connect(sslmode="verify-full", autocommit=True, **options) as c:
        timer = threading.Timer(0.2, c.cancel)
        timer.start()
        raises(errors.QueryCanceled, lambda: c.execute("SELECT count(*) FROM generate_series(1, 1000000000000) AS a (x) WHERE x % 1000003 = 7"))


def unix():
    """Over a Unix socket, without encryption where TCP needs it."""
    options = {"host": sys.argv[3], "port": 5432}
    with connect(autocommit=True, **options) as c:
        assert not c.pgconn.ssl_in_use
        row = c.execute("SELECT client_addr, client_port, usename FROM pg_stat_activity WHERE pid = pg_backend_pid()").fetchone()
        assert row == (None, -1, "ada"), row
        assert c.execute("SELECT repeat('x', 3000000)").fetchone() == ("x" * 3_000_000,)
        threading.Timer(0.2, c.cancel).start()
        raises(errors.QueryCanceled, lambda: c.execute("SELECT count(*) FROM generate_series(1, 1000000000000) AS a (x) WHERE x % 1000003 = 7"))
    error = raises(psycopg.OperationalError, lambda: connect(sslmode="disable"))
    assert "without encryption" in str(error), error


for check in {"passwords": [passwords], "roles": [roles], "tls": [tls], "unix": [unix]}.get(CHECKS, [types, documents, parameters, transactions, names, others, statements, cursors, pools, queues, channels, concurrency]):
    check()
    print(check.__name__, "ok")
print("done")
