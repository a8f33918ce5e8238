"""Readers that divide a table by the places of its rows: psycopg in the way of DuckDB's extension
for PostgreSQL, and connectorx. Argument: the port."""

import concurrent.futures
import sys

import connectorx
import psycopg

PORT = int(sys.argv[1])
URI = f"postgresql://ada@127.0.0.1:{PORT}/db"
ROWS = 50_000
SUM = ROWS * (ROWS + 1) // 2


def one(con, query):
    [row] = con.execute(query).fetchall()
    return row


def value_of_copy(data):
    """The numbers in a COPY in binary form whose rows have one BIGINT."""
    assert data.startswith(b"PGCOPY\n\xff\r\n\0")
    at, values = 19, []
    while (fields := int.from_bytes(data[at : at + 2], "big", signed=True)) != -1:
        assert (fields, int.from_bytes(data[at + 2 : at + 6], "big")) == (1, 8)
        values.append(int.from_bytes(data[at + 6 : at + 14], "big", signed=True))
        at += 14
    return values


def part(snapshot, first, last):
    """A part of the table, in the snapshot of another connection."""
    with psycopg.connect(URI, autocommit=True) as con:
        con.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        con.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        query = f"SELECT \"n\" FROM \"public\".\"t\" WHERE ctid BETWEEN '({first},0)'::tid AND '({last},0)'::tid"
        with con.cursor().copy(f'COPY ({query}) TO STDOUT (FORMAT "binary")') as copy:
            values = value_of_copy(b"".join(copy))
        con.execute("ROLLBACK")
        return values


def duckdb(con):
    """Tasks of some pages each; the last one has no end."""
    con.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    replica, snapshot, receivers = one(
        con, "SELECT pg_is_in_recovery(), pg_export_snapshot(), (SELECT count(*) FROM pg_stat_wal_receiver)"
    )
    assert (replica, receivers) == (False, 0)
    (pages,) = one(con, "SELECT relpages FROM pg_class WHERE oid = 't'::regclass")
    with psycopg.connect(URI, autocommit=True) as other:
        other.execute("DELETE FROM t WHERE n % 3 = 0")
        other.execute("INSERT INTO t SELECT -i FROM generate_series(1, 1000) AS g (i)")
        other.execute("FREEZE TABLE t")
    tasks = [(first, first + 40 if first + 40 < pages else 2**32 - 1) for first in range(0, pages, 40)]
    assert len(tasks) > 3, pages
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda task: part(snapshot, *task), tasks))
    assert sorted(value for values in parts for value in values) == list(range(1, ROWS + 1))
    assert sum(1 for values in parts if values) > 1
    con.execute("COMMIT")


def forms(con):
    """A place as a text, in binary form, and as a parameter."""
    assert one(con, "SELECT ctid FROM t WHERE n = -1000")[0].startswith("(")
    cursor = con.cursor(binary=True)
    cursor.execute("SELECT ctid, ctid::text AS text FROM t ORDER BY ctid DESC LIMIT 1")
    assert cursor.description[0].type_code == 27 and cursor.description[0].internal_size == 6
    [(place, text)] = cursor.fetchall()
    page, row = int.from_bytes(place[:4], "big"), int.from_bytes(place[4:], "big")
    assert len(place) == 6 and text == f"({page},{row})"
    assert con.execute("SELECT count(*) FROM t WHERE ctid = %s::tid", (text,)).fetchone() == (1,)
    assert con.execute("SELECT count(*) FROM t WHERE ctid = ANY(%s::tid[])", ([text, "(0,0)"],)).fetchone() == (1,)


def connectorx_reads(con):
    """A list of queries, one for each connection; and a column's range."""
    (pages,) = one(con, "SELECT relpages FROM pg_class WHERE oid = 't'::regclass")
    step = -(-pages // 4)
    queries = [
        f"SELECT n FROM t WHERE ctid >= '({at},0)'::tid AND ctid < '({at + step},0)'::tid" for at in range(0, pages, step)
    ]
    [(rows, total)] = con.execute("SELECT count(*), sum(n) FROM t").fetchall()
    for protocol in ("binary", "cursor", "simple", "csv"):
        read = connectorx.read_sql(URI, queries, protocol=protocol, return_type="arrow")
        values = read.column("n").to_pylist()
        assert (len(values), sum(values)) == (rows, total), protocol
    read = connectorx.read_sql(URI, "SELECT n FROM t", partition_on="n", partition_num=3, return_type="arrow")
    assert sum(read.column("n").to_pylist()) == total


with psycopg.connect(URI, autocommit=True) as con:
    con.execute("CREATE TABLE t (n BIGINT)")
    con.execute(f"INSERT INTO t SELECT i FROM generate_series(1, {ROWS}) AS g (i)")
    assert one(con, "SELECT sum(n)::bigint FROM t") == (SUM,)
    duckdb(con)
    forms(con)
    connectorx_reads(con)
print("done")
