"""SeracDB's Python package beside sqlite3, psycopg and DuckDB, one figure after the other.

Each line of standard input is {"figure": name, …}. Each answer is a line of JSON: {"rows": [{…}]}
or {"error": text}. The systems of a figure take turns; what is told is the median of the turns.
"""

import contextlib
import gc
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import pyarrow as pa
import pyarrow.compute

CREATE = "CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT NOT NULL, b BIGINT, s VARCHAR(20))"
SELECT = "SELECT a, s FROM t WHERE id = {}"
UPDATE = "UPDATE t SET a = a + 1 WHERE id = {}"
INSERT = "INSERT INTO t VALUES ({}, 1, 2, 'inserted text')"
KINDS = {"select": SELECT, "update": UPDATE, "insert": INSERT}


def clock(work):
    """Milliseconds that `work` takes, and what it returns."""
    gc.collect()
    start = time.perf_counter()
    result = work()
    return (time.perf_counter() - start) * 1e3, result


def by_turns(ways, turns):
    """Runs each of `ways` as often as `turns` says, in turn, after a run that warms up."""
    times = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name in list(ways) if turn % 2 else list(ways)[::-1]:
            elapsed = ways[name]()
            if turn:
                times[name].append(elapsed)
    return times


def told(times, **more):
    return [
        {"system": name, **more, "ms": statistics.median(of), "least": min(of), "most": max(of)}
        for name, of in times.items()
    ]


def start(request):
    """From nothing to the module, and from nothing to a row, in an interpreter of its own."""

    def run(code):
        return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)

    imported = "import time; t = time.perf_counter(); import {}; {}print((time.perf_counter() - t) * 1e3)"
    ways = {
        "seracdb: import": imported.format("seracdb", ""),
        "seracdb: import, connect and a row": imported.format("seracdb", "seracdb.connect().execute('SELECT 1').fetchone(); "),
        "sqlite3: import": imported.format("sqlite3", ""),
        "duckdb: import": imported.format("duckdb", ""),
        "duckdb: import, connect and a row": imported.format("duckdb", "duckdb.connect().execute('SELECT 1').fetchone(); "),
    }
    return told(by_turns({name: lambda code=code: run(code) for name, code in ways.items()}, request["runs"]))


def install(request):
    """From the file of the package to a row: pip, import, connect."""
    folder = tempfile.mkdtemp()
    try:
        code = "import seracdb; print(seracdb.connect().execute('SELECT 1').fetchone()[0])"

        def run():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
            subprocess.run([*pip, folder + "/package", request["wheel"]], check=True, capture_output=True)
            environment = {**os.environ, "PYTHONPATH": folder + "/package"}
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=environment)

        elapsed, _ = clock(run)
        return [{"system": "seracdb: install to a row", "ms": elapsed, "MB": os.path.getsize(request["wheel"]) / 1e6}]
    finally:
        shutil.rmtree(folder)


def frames(request):
    """A table as frames, from SeracDB (frozen) and from DuckDB."""
    import duckdb
    import polars as pl
    import seracdb

    lineitem = pa.ipc.open_file(pa.memory_map(request["file"])).read_all()
    total = pa.compute.sum(lineitem.column(0)).as_py()
    con = seracdb.connect(autocommit=True)
    con.append("lineitem", lineitem, create=True)
    con.execute("FREEZE TABLE lineitem")
    table = con.table("lineitem")
    duck = duckdb.connect()
    duck.register("frame", lineitem)
    duck.execute("CREATE TABLE lineitem AS SELECT * FROM frame")
    duck.unregister("frame")
    query = "SELECT * FROM lineitem"
    rows = len(lineitem)
    del lineitem

    def checked(make, column):
        def run():
            elapsed, frame = clock(make)
            assert len(frame) == rows and column(frame) == total, "other rows"
            return elapsed

        return run

    def of_arrow(frame):
        return pa.compute.sum(frame.column(0)).as_py()

    def of_polars(frame):
        return frame.get_column(frame.columns[0]).sum()

    def of_pandas(frame):
        return int(frame.iloc[:, 0].sum())

    forms = {
        "pyarrow": {
            "seracdb: scan, stored": checked(lambda: pa.table(table.scan(stored=True)), of_arrow),
            "seracdb: scan": checked(lambda: pa.table(table.scan()), of_arrow),
            "seracdb: query": checked(lambda: con.execute(query).arrow(), of_arrow),
            "duckdb": checked(lambda: duck.execute(query).to_arrow_table(), of_arrow),
        },
        "Polars": {
            "seracdb: scan": checked(lambda: pl.DataFrame(table.scan()), of_polars),
            "seracdb: query": checked(lambda: con.execute(query).pl(), of_polars),
            "duckdb": checked(lambda: duck.sql(query).pl(), of_polars),
        },
        "pandas": {
            "seracdb: query": checked(lambda: con.execute(query).df(), of_pandas),
            "duckdb": checked(lambda: duck.execute(query).df(), of_pandas),
        },
    }
    return [row for form, ways in forms.items() for row in told(by_turns(ways, request["runs"]), frame=form)]


def append(request):
    """A frame into a new table. SQLite gets a tenth of the rows, as tuples."""
    import duckdb
    import seracdb

    lineitem = pa.ipc.open_file(pa.memory_map(request["file"])).read_all()
    few = lineitem.slice(0, len(lineitem) // 10).combine_chunks()
    rows = {}

    def serac():
        with contextlib.closing(seracdb.connect(autocommit=True)) as con:
            elapsed, rows["seracdb"] = clock(lambda: con.append("t", lineitem, create=True))
            return elapsed

    def duck():
        with contextlib.closing(duckdb.connect()) as con:
            con.register("frame", lineitem)
            elapsed, _ = clock(lambda: con.execute("CREATE TABLE t AS SELECT * FROM frame"))
            rows["duckdb"] = con.execute("SELECT count(*) FROM t").fetchone()[0]
            return elapsed

    def lite():
        with contextlib.closing(sqlite3.connect(":memory:")) as con:
            con.execute(f"CREATE TABLE t ({', '.join(few.column_names)})")
            marks = ", ".join("?" * few.num_columns)

            def run():
                plain = [column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column for column in few.columns]
                plain = [column.cast(pa.string()) if pa.types.is_date(column.type) else column for column in plain]
                tuples = zip(*(column.to_pylist() for column in plain))
                con.executemany(f"INSERT INTO t VALUES ({marks})", tuples)
                con.commit()

            elapsed, _ = clock(run)
            rows["sqlite3"] = con.execute("SELECT count(*) FROM t").fetchone()[0]
            return elapsed

    times = by_turns({"seracdb": serac, "duckdb": duck, "sqlite3": lite}, request["runs"])
    found = told(times)
    for row in found:
        row["rows"] = rows[row["system"]]
        row["rows/s"] = row["rows"] / row["ms"] * 1e3
    return found


class Keys:
    """Keys of existing rows at random, or new ones, scattered. Each thread has keys of its own."""

    def __init__(self, rows, thread):
        self.rows, self.state, self.next = rows, 88_172_645_463_325_252 + thread, thread << 36

    def old(self):
        self.state ^= self.state << 13 & (1 << 64) - 1
        self.state ^= self.state >> 7
        self.state ^= self.state << 17 & (1 << 64) - 1
        return self.state % self.rows

    def new(self):
        self.next += 1
        return self.rows + self.next * 0x9E37_79B9_7F4A_7C15 % (1 << 50)


def point(request):
    """Statements on single rows by key, each a transaction, with one thread and with two."""
    import seracdb

    rows, seconds, durable = request["rows"], request["seconds"], request["durable"]
    folder = tempfile.mkdtemp(dir=request["folder"])
    first = [(k, k, k % 100, f"text of row {k}") for k in range(rows)]

    class Serac:
        def __init__(self):
            path, durability = (folder + "/serac", "full") if durable else (":memory:", None)
            self.base = seracdb.connect(path, durability=durability, autocommit=True)
            self.base.execute(CREATE)
            with self.base.transaction():
                self.base.executemany("INSERT INTO t VALUES ($1, $2, $3, $4)", first)

        def statements(self):
            con = self.base.connect(autocommit=True)
            return {kind: con.prepare(sql.format("$1")) for kind, sql in KINDS.items()}

    class Lite:
        def __init__(self):
            # A database in memory that threads share is one with a shared cache.
            self.path = folder + "/lite" if durable else "file:point?mode=memory&cache=shared"
            self.base = self.connect()
            self.base.execute(CREATE)
            self.base.execute("BEGIN")
            self.base.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", first)
            self.base.execute("COMMIT")

        def connect(self):
            con = sqlite3.connect(self.path, uri=True, isolation_level=None, check_same_thread=False, timeout=60)
            if durable:
                con.execute("PRAGMA journal_mode = WAL")
                con.execute("PRAGMA synchronous = FULL")
            return con

        def statements(self):
            con = self.connect()

            def statement(sql):
                def run(key):
                    while True:
                        try:
                            return con.execute(sql, (key,)).fetchall()
                        except sqlite3.OperationalError as error:
                            # Readers of a shared cache meet the lock of a table at once.
                            if "locked" not in str(error):
                                raise

                return run

            return {kind: statement(sql.format("?")) for kind, sql in KINDS.items()}

    class Postgres:
        def __init__(self):
            self.base = self.connect()
            self.base.execute("DROP TABLE IF EXISTS t")
            self.base.execute(CREATE)
            with self.base.cursor().copy("COPY t FROM STDIN") as copy:
                for row in first:
                    copy.write_row(row)

        def connect(self):
            import psycopg

            return psycopg.connect(request["postgres"], autocommit=True, prepare_threshold=0)

        def statements(self):
            cursor = self.connect().cursor()

            def statement(sql, reads):
                def run(key):
                    cursor.execute(sql, (key,))
                    return cursor.fetchall() if reads else None

                return run

            return {kind: statement(sql.format("%s"), kind == "select") for kind, sql in KINDS.items()}

    class Duck:
        def __init__(self):
            import duckdb

            self.base = duckdb.connect(folder + "/duck" if durable else ":memory:")
            self.base.execute(CREATE)
            frame = pa.table(list(map(pa.array, zip(*first))), names=["id", "a", "b", "s"])
            self.base.execute("INSERT INTO t SELECT * FROM frame")

        def statements(self):
            con = self.base.cursor()

            def statement(sql):
                return lambda key: con.execute(sql, (key,)).fetchall()

            return {kind: statement(sql.format("?")) for kind, sql in KINDS.items()}

    systems = {"seracdb": Serac, "sqlite3": Lite, "duckdb": Duck}
    if request["postgres"]:
        systems["psycopg, PostgreSQL"] = Postgres
    open_systems = {name: system() for name, system in systems.items()}
    # Each system has keys of its own kind, so that new ones stay new over all turns.
    keys = {(name, thread): Keys(rows, thread) for name in systems for thread in range(2)}

    def rate(name, kind, threads):
        counts, errors, end = [0] * threads, [], []
        ready = threading.Barrier(threads + 1)

        def work(thread):
            statement = open_systems[name].statements()[kind]
            mine, count = keys[name, thread], 0
            key = mine.new if kind == "insert" else mine.old
            ready.wait()
            try:
                while time.perf_counter() < end[0]:
                    # Sixteen at a time: the clock costs as much as a statement.
                    for _ in range(16):
                        statement(key())
                    count += 16
            except Exception as error:
                # Two threads of DuckDB that update one row: its conflict is no failure of the
                # measurement.
                if "onflict" not in str(error):
                    errors.append(error)
            counts[thread] = count

        workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
        for worker in workers:
            worker.start()
        start = time.perf_counter()
        end.append(start + seconds)
        ready.wait()
        for worker in workers:
            worker.join()
        elapsed = time.perf_counter() - start
        if errors:
            raise errors[0]
        return sum(counts) / elapsed

    found = []
    try:
        for threads in (1, 2):
            for kind in KINDS:
                rates = by_turns(
                    {name: lambda name=name: rate(name, kind, threads) for name in systems}, request["runs"]
                )
                lite = statistics.median(rates["sqlite3"])
                for name, of in rates.items():
                    per_second = statistics.median(of)
                    found.append(
                        {
                            "system": name,
                            "statement": kind,
                            "threads": threads,
                            "log": "durable" if durable else "memory",
                            "per second": per_second,
                            "µs": 1e6 * threads / per_second,
                            "to sqlite3": per_second / lite,
                        }
                    )
        return found
    finally:
        for system in open_systems.values():
            system.base.close()
        shutil.rmtree(folder, ignore_errors=True)


def functions(request):
    """A Python function over many rows, as Arrow batches."""
    import duckdb
    import pyarrow.compute as pc
    import seracdb

    rows = request["rows"]
    numbers = pa.table({"a": pa.array(range(rows), pa.int64())})
    con = seracdb.connect(autocommit=True)
    con.append("n", numbers, create=True)
    con.execute("FREEZE TABLE n")
    duck = duckdb.connect()
    duck.execute("CREATE TABLE n AS SELECT * FROM numbers")

    def twice(a):
        return pc.add(pc.multiply(a, 2), 1)

    con.create_function("twice", twice, ["bigint"], "bigint", kind="arrow")
    duck.create_function("twice", twice, ["BIGINT"], "BIGINT", type="arrow")
    expected = sum(range(rows)) * 2 + rows

    def checked(run):
        def turn():
            elapsed, total = clock(run)
            assert int(total) == expected, "another sum"
            return elapsed

        return turn

    query = "SELECT sum(twice(a)) FROM n"
    ways = {
        "seracdb": checked(lambda: con.execute(query).fetchone()[0]),
        "duckdb": checked(lambda: duck.execute(query).fetchone()[0]),
    }
    return told(by_turns(ways, request["runs"]), rows=rows)


FIGURES = {"start": start, "install": install, "frames": frames, "append": append, "point": point, "functions": functions}


def versions():
    import duckdb
    import pandas
    import polars
    import seracdb

    return (
        f"seracdb {seracdb.__version__}, Python {sys.version.split()[0]}, sqlite3 {sqlite3.sqlite_version}, "
        f"duckdb {duckdb.__version__}, pyarrow {pa.__version__}, polars {polars.__version__}, pandas {pandas.__version__}"
    )


if __name__ == "__main__":
    try:
        ready = {"ready": versions()}
    except ImportError as error:
        ready = {"error": str(error)}
    print(json.dumps(ready), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"rows": FIGURES[request["figure"]](request)}
        except Exception as error:  # reported to the other side, which decides
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
