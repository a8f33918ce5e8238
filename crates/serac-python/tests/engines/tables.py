"""The tables that engines read, and what the tests ask of the server that has them."""

import threading
import time

import seracdb
from seracdb import remote

#: The snapshots that a server holds at a time.
MOST_LEASES = 64

LINEITEM = """CREATE TABLE lineitem (
    l_orderkey BIGINT NOT NULL, l_linenumber INTEGER NOT NULL, l_quantity NUMERIC(15,2), l_price NUMERIC(30,4),
    l_flag CHAR(1), l_small SMALLINT, l_real REAL, l_double DOUBLE PRECISION, l_any NUMERIC, l_shipdate DATE,
    l_commit TIMESTAMP, l_receipt TIMESTAMPTZ, l_comment TEXT, l_mode VARCHAR(10), l_done BOOLEAN, l_raw BYTEA,
    l_uuid UUID, l_json JSON, l_jsonb JSONB, l_time TIME, l_interval INTERVAL)"""
ROWS = """INSERT INTO lineitem SELECT i / 4, i % 4, i % 50 + 0.25, i * 1000000::numeric, chr(65 + i % 3), i % 100,
    i / 8.0, i / 7.0::float8, i / 3.0, '1992-01-01'::date + i % 2500, '1992-01-01'::timestamp + i * interval '1 min',
    '1992-01-01 00:00+02'::timestamptz + i * interval '1 min', 'comment ü ' || i, 'mode' || i % 7, i % 2 = 0,
    ('x' || i)::bytea, gen_random_uuid(), ('{"a": ' || i || '}')::json, ('{"a": ' || i || '}')::jsonb,
    '00:00'::time + i * interval '1 s', i * interval '1 d'
    FROM generate_series($1::int, $2::int) AS g (i)"""
NULLS = """INSERT INTO lineitem (l_orderkey, l_linenumber) SELECT i, 9 FROM generate_series(1, 1000) AS g (i)"""
#: The columns in SQL as engines see them, which all have types for these.
AS_SEEN = """SELECT l_orderkey, l_linenumber, l_quantity, l_price, l_flag, l_small, l_real, l_double,
    l_any::text AS l_any, l_shipdate, l_commit, l_receipt, l_comment, l_mode, l_done, l_raw, l_uuid::text AS l_uuid,
    l_json::text AS l_json, l_jsonb::text AS l_jsonb FROM lineitem"""
COLUMNS = AS_SEEN.partition("FROM")[0].replace("SELECT", "").replace("::text AS", "")


def columns():
    """The names of the columns that all engines have types for."""
    return list(dict.fromkeys(COLUMNS.replace(",", " ").split()))


class Served:
    """A database in this process, which serves."""

    def __init__(self, con, url):
        self.con = con
        self.url = url

    def sql(self, query):
        return self.con.execute(query).fetchall()

    def free_leases(self):
        """How many snapshots the server would hold now."""
        plans = []
        try:
            while len(plans) <= MOST_LEASES:
                plans.append(remote.plan(self.url, table="one"))
        except seracdb.OperationalError as error:
            assert error.sqlstate == "53000", error
        for plan in plans:
            plan.close()
        return len(plans)


class Transfers:
    """A writer that moves money between accounts. Their sum is a million."""

    def __init__(self, con):
        con.execute("CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)")
        con.execute("INSERT INTO account SELECT i, 10 FROM generate_series(0, 99999) AS g (i)")
        con.freeze("account")
        self._con = con
        self._commits = 0
        self._stop = threading.Event()
        self._writer = threading.Thread(target=self._run)
        self._writer.start()

    def _run(self):
        with self._con.cursor() as writer:
            while not self._stop.is_set():
                at = self._commits
                # From the first block to the last; and rows come in pairs that sum to nothing.
                writer.execute(
                    "WITH taken AS (UPDATE account SET balance = balance - 1 WHERE id = $1), "
                    "given AS (UPDATE account SET balance = balance + 1 WHERE id = $2) "
                    "INSERT INTO account VALUES ($3, -7), ($3 + 1, 7)",
                    (at % 1000, 99_000 + at % 1000, 200_000 + 2 * at),
                )
                self._commits += 1

    def wait_for_more(self):
        """Returns when it has committed once more."""
        before, end = self._commits, time.monotonic() + 60
        while self._commits == before:
            assert time.monotonic() < end and self._writer.is_alive()
            time.sleep(0.001)

    def end(self):
        self._stop.set()
        self._writer.join(timeout=60)
        self._con.execute("DROP TABLE account")
