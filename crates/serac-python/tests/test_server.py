"""The database served from this process."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request

import psycopg
import pytest
import seracdb


def rows_of(server, query, **options):
    host, port = server.addresses["pg"]
    with psycopg.connect(host=host, port=port, dbname="serac", user=options.pop("user", "serac"), **options) as client:
        return client.execute(query).fetchall()


def threads():
    """The names of the process's threads."""
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm", encoding="utf-8") as name:
                names.append(name.read().strip())
        except FileNotFoundError:
            # It has just ended.
            pass
    return names


def wait_for_statement(con, pattern):
    """Waits until a client runs a statement."""
    running = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE $1"
    end = time.monotonic() + 30
    while not con.execute(running, (pattern,)).fetchall():
        assert time.monotonic() < end


def test_clients_of_the_network_work_on_the_same_tables(con):
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)")
    with con.serve(pg="127.0.0.1:0", flight="localhost:0", metrics="127.0.0.1:0") as server:
        assert server.running
        addresses = server.addresses
        assert set(addresses) == {"pg", "flight", "metrics"}
        assert {host for host, _ in addresses.values()} == {"127.0.0.1"}
        assert server.pg == "postgresql://127.0.0.1:{}".format(addresses["pg"][1]) and server.pg in repr(server)
        assert server.flight.startswith("grpc://127.0.0.1:")
        host, port = addresses["pg"]
        with psycopg.connect(host=host, port=port, dbname="serac", user="serac", autocommit=True) as client:
            client.execute("INSERT INTO t VALUES (1, 'wire')")
            con.execute("INSERT INTO t VALUES (2, 'embedded')")
            assert client.execute("SELECT * FROM t ORDER BY id").fetchall() == [(1, "wire"), (2, "embedded")]
        assert con.execute("SELECT name FROM t ORDER BY id").fetchall() == [("wire",), ("embedded",)]
        with urllib.request.urlopen(server.metrics) as answer:
            assert b"serac_transactions_begun_total" in answer.read()
        # Somebody answers at the other port.
        socket.create_connection(addresses["flight"]).close()
    assert not server.running and "stopped" in repr(server)
    server.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(host=host, port=port, dbname="serac", user="serac")


def test_arrow_comes_over_flight_sql(con):
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
    con.execute("CREATE TABLE t AS SELECT i, i::TEXT AS name FROM generate_series(1, 1000) AS g (i)")
    with con.serve(flight="127.0.0.1:0") as server, dbapi.connect(server.flight) as client, client.cursor() as cursor:
        cursor.execute("SELECT sum(i) AS sum, count(name) AS count FROM t")
        assert cursor.fetch_arrow_table().to_pydict() == {"sum": [500_500], "count": [1_000]}


def test_a_server_outlives_its_connection_and_keeps_the_database(tmp_path):
    with seracdb.connect(tmp_path / "db", autocommit=True) as con:
        con.execute("CREATE TABLE t AS SELECT 7 AS n")
        server = con.serve(pg="127.0.0.1:0")
    assert rows_of(server, "SELECT n FROM t") == [(7,)]
    # Another connection joins the database that the server has open.
    with seracdb.connect(tmp_path / "db", autocommit=True) as con:
        con.execute("UPDATE t SET n = 8")
    assert rows_of(server, "SELECT n FROM t") == [(8,)]
    server.stop()
    # The last user has closed it: another process could open it now.
    with seracdb.connect(tmp_path / "db", durability="relaxed") as con:
        assert con.execute("SELECT n FROM t").fetchall() == [(8,)]


def test_the_end_waits_for_statements_and_then_cancels_them(con):
    server = con.serve(pg="127.0.0.1:0", shutdown_timeout=0.2)
    outcome = []

    def work(query):
        try:
            outcome.append(rows_of(server, query, autocommit=True))
        except psycopg.Error as error:
            outcome.append(type(error).__name__)

    client = threading.Thread(target=work, args=("SELECT pg_sleep(60)",))
    client.start()
    wait_for_statement(con, "SELECT pg_sleep%")
    began = time.monotonic()
    server.stop()
    assert 0.2 <= time.monotonic() - began < 20
    client.join(timeout=30)
    assert outcome and isinstance(outcome[0], str), outcome
    # One that ends in time has its answer.
    server = con.serve(pg="127.0.0.1:0", shutdown_timeout=30)
    client = threading.Thread(target=work, args=("SELECT 5 FROM (SELECT pg_sleep(0.5)) AS s",))
    client.start()
    wait_for_statement(con, "SELECT 5%")
    server.stop()
    client.join(timeout=30)
    assert outcome[1] == [(5,)]


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not list threads")
def test_no_thread_is_left(con):
    con.execute("SELECT 1").fetchall()
    for _ in range(3):
        with con.serve(pg="127.0.0.1:0", flight="127.0.0.1:0") as server:
            assert rows_of(server, "SELECT 1") == [(1,)]
            assert sum(name.startswith(("serac-server", "serac-connect")) for name in threads()) > 2
    end = time.monotonic() + 10
    while left := [name for name in threads() if name.startswith(("serac-server", "serac-connect"))]:
        assert time.monotonic() < end, left
        time.sleep(0.01)


def test_passwords_and_tokens(con):
    with con.serve(pg="127.0.0.1:0", users={"ada": "secret"}) as server:
        # She is no role, and acts as the bootstrap superuser does not: a role of hers is needed.
        con.execute("CREATE ROLE ada LOGIN")
        assert rows_of(server, "SELECT 1", user="ada", password="secret") == [(1,)]
        for wrong in ({"user": "ada", "password": "wrong"}, {"user": "serac"}):
            with pytest.raises(psycopg.OperationalError):
                rows_of(server, "SELECT 1", **wrong)


def test_wrong_options(con, tmp_path):
    for options, message in (
        ({}, "say what to serve"),
        ({"pg": "nowhere"}, "pg is an IP address with a port"),
        ({"flight": "localhost:http"}, "flight is an IP address with a port"),
        ({"pg": "0.0.0.0:0"}, "other machines can reach 0.0.0.0: give users, tls_cert and tls_key"),
        ({"pg": "0.0.0.0:0", "users": {"a": "b"}}, "other machines can reach"),
        ({"metrics": "0.0.0.0:0", "token": "t"}, "metrics name the tables"),
        ({"flight": "127.0.0.1:0", "token": ""}, "a token consists of"),
        ({"pg": "127.0.0.1:0", "tls_cert": "x"}, "go together"),
        ({"pg": "127.0.0.1:0", "tls_cert": tmp_path / "no", "tls_key": tmp_path / "no"}, "No such file"),
        ({"pg": "127.0.0.1:0", "shutdown_timeout": -1}, "shutdown_timeout is a number of seconds"),
    ):
        with pytest.raises(ValueError, match=message):
            con.serve(**options)
    con.serve(pg="0.0.0.0:0", allow_remote=True).stop()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "127.0.0.1:{}".format(taken.getsockname()[1])
        for service in ("pg", "flight", "metrics"):
            with pytest.raises(seracdb.OperationalError, match=f"cannot listen on {address}") as caught:
                con.serve(**{service: address})
            assert caught.value.sqlstate == "55006"
    con.close()
    with pytest.raises(seracdb.InterfaceError):
        con.serve(pg="127.0.0.1:0")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_fork_has_no_server():
    code = """
        import os, seracdb
        con = seracdb.connect()
        server = con.serve(pg="127.0.0.1:0")
        child = os.fork()
        if child == 0:
            for use in (server.stop, server.wait, lambda: con.serve(pg="127.0.0.1:0")):
                try:
                    use()
                except seracdb.InterfaceError as error:
                    assert "forked" in str(error), error
                else:
                    os._exit(1)
            assert not server.running
            # A database of the child's own is served, and its end is in order.
            with seracdb.connect() as own, own.serve(pg="127.0.0.1:0") as other:
                assert other.running
            seracdb._seracdb.close_all()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0 and server.running
        print("done")
    """
    # It ends although nobody has stopped the server.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_wait_ends_by_ctrl_c_and_by_stop(con):
    server = con.serve(pg="127.0.0.1:0")
    stopper = threading.Timer(0.2, server.stop)
    stopper.start()
    server.wait()
    stopper.join()
    assert not server.running
    server = con.serve(pg="127.0.0.1:0")
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        server.wait()
    assert not server.running
