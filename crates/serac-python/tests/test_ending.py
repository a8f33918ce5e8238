"""The end of Python while statements are inside Python code."""

import subprocess
import sys
import textwrap

import pytest

BEGIN = """
import sys, threading, time
import seracdb
con = seracdb.connect(autocommit=True)
con.execute("CREATE TABLE t (id INT PRIMARY KEY)")
con.execute("INSERT INTO t SELECT i FROM generate_series(1, 5000) AS g (i)")
inside = threading.Event()
def in_thread(query):
    def run():
        try:
            con.execute(query).fetchall()
        except seracdb.OperationalError:
            pass
    threading.Thread(target=run, daemon=True).start()
    assert inside.wait(30)
"""

CODE = {
    "rows of a function": """
        def f(number):
            time.sleep(0.001)
            return number
        con.create_function("f", f, ["int"], "int")
        for row in con.execute("SELECT f(id) FROM t"):
            break
        """,
    "rows of a generator": """
        def g():
            for number in range(10**9):
                time.sleep(0.001)
                yield number
        con.create_table_function("g", g, [], [("i", "int")])
        for row in con.execute("SELECT i FROM g()"):
            break
        """,
    "rows of a reader": """
        import pyarrow
        def batches():
            for _ in range(10**9):
                time.sleep(0.01)
                yield pyarrow.record_batch({"i": list(range(2000))})
        rows = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("i", pyarrow.int64())]), batches())
        for row in con.execute("SELECT i FROM rows"):
            break
        """,
    "a statement of another thread": """
        def f(number):
            inside.set()
            time.sleep(0.001)
            return number
        con.create_function("f", f, ["int"], "int")
        in_thread("SELECT sum(f(a.id)) FROM t AS a, t AS b")
        """,
    "a procedure": """
        def p(tx):
            inside.set()
            while True:
                time.sleep(0.01)
        con.create_procedure("p", p)
        in_thread("CALL p()")
        """,
    "a loop": """
        def f(number):
            inside.set()
            while True:
                pass
        con.create_function("f", f, ["int"], "int")
        in_thread("SELECT f(1)")
        """,
    "code that never returns": """
        def f(number):
            inside.set()
            time.sleep(1000)
        con.create_function("f", f, ["int"], "int")
        in_thread("SELECT f(1)")
        """,
}


@pytest.mark.parametrize("code", CODE.values(), ids=CODE.keys())
def test_python_ends_while_code_of_a_statement_runs(code):
    code = BEGIN + textwrap.dedent(code) + 'print("end", flush=True)\nsys.exit(3)\n'
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "end\n", "")


def test_code_is_refused_and_the_rest_works_behind_the_end():
    code = BEGIN + textwrap.dedent(
        """
        import atexit
        con.create_function("f", lambda number: number + 1, ["int"], "int")
        print(con.execute("SELECT f(1)").fetchone())
        def last():
            try:
                con.execute("SELECT f(1)").fetchone()
            except seracdb.OperationalError as error:
                print(error.sqlstate)
            print(con.execute("SELECT count(*) FROM t").fetchone())
        # Behind the package's own handler: the last one runs first.
        atexit.unregister(seracdb._seracdb.end)
        atexit.register(last)
        atexit.register(seracdb._seracdb.end)
        """
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "(2,)\n57P01\n(5000,)\n", "")
