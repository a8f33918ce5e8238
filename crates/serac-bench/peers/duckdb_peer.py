"""DuckDB as a peer: loads Parquet files into memory, then answers one query per line of standard
input.

Each answer is a line of JSON: {"ms": milliseconds, "rows": [[...]]} or {"error": text}. Lines
starting with "load " time a CREATE TABLE AS from an Arrow file: {"ms": milliseconds}. Lines "repeat
COUNT FIRST SQL" run a statement with COUNT keys, those from FIRST on or, if FIRST is 0, of the
first million at random: {"ms": of all, "p50": …, "p99": …, "p999": of one}. Lines "control SQL" run
a statement without rows, "prepare SQL" keep one, "run N [parameters]" run the Nth that was kept:
{"rows": [[...]]}, numbers as numbers. Lines "count SQL" run a query and give the number of its rows
alone: {"ms": milliseconds, "rows": [[number]]}. The line "memory" asks for the bytes that this
process has got since the tables are loaded, and "disk PATH" for those of a file with the tables:
{"bytes": number}.
"""

import datetime
import decimal
import json
import os
import random
import sys
import time

import duckdb



def resident():
    """Bytes of this process in memory that are its own."""
    with open("/proc/self/statm") as pages:
        numbers = [int(number) for number in pages.read().split()]
    return (numbers[1] - numbers[2]) * 4096


threads, folder = int(sys.argv[1]), sys.argv[2]
connection = duckdb.connect(":memory:", config={"threads": threads})
before = resident()
for table in sys.argv[3:]:
    connection.execute(f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{folder}/{table}.parquet')")
print(json.dumps({"ready": duckdb.__version__}), flush=True)


kept = []


def parameter(value):
    return datetime.datetime.fromtimestamp(value["micros"] / 1e6) if isinstance(value, dict) else value


def number(value):
    if isinstance(value, decimal.Decimal):
        return float(value)
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def text(value):
    return None if value is None else str(value)


for line in sys.stdin:
    try:
        if line.startswith("load "):
            import pyarrow as pa

            with pa.memory_map(line[5:].strip()) as source:
                arrow = pa.ipc.open_file(source).read_all()
            start = time.perf_counter()
            connection.execute("CREATE OR REPLACE TABLE loaded AS SELECT * FROM arrow")
            answer = {"ms": (time.perf_counter() - start) * 1e3}
        elif line.startswith("count "):
            start = time.perf_counter()
            rows = connection.sql(line[6:]).to_arrow_table().num_rows
            answer = {"ms": (time.perf_counter() - start) * 1e3, "rows": [[str(rows)]]}
        elif line.strip() == "memory":
            answer = {"bytes": resident() - before}
        elif line.startswith("disk "):
            path = line[5:].strip()
            connection.execute(f"ATTACH '{path}' AS disk")
            connection.execute("COPY FROM DATABASE memory TO disk")
            connection.execute("DETACH disk")
            answer = {"bytes": os.path.getsize(path)}
        elif line.startswith("control "):
            if line[8:].strip():
                connection.execute(line[8:])
            answer = {}
        elif line.startswith("prepare "):
            kept.append(line[8:].strip())
            answer = {}
        elif line.startswith("run "):
            _, at, parameters = line.split(" ", 2)
            result = connection.execute(kept[int(at)], [parameter(value) for value in json.loads(parameters)])
            answer = {"rows": [[number(value) for value in row] for row in result.fetchall()]}
        elif line.startswith("repeat "):
            _, count, first, sql = line.split(" ", 3)
            count, first = int(count), int(first)
            keys = [first + i if first else random.randrange(1_000_000) for i in range(count)]
            times = []
            for key in keys:
                start = time.perf_counter()
                result = connection.execute(sql, [key])
                if sql.startswith("SELECT"):
                    result.fetchone()
                times.append((time.perf_counter() - start) * 1e3)
            total = sum(times)
            times.sort()
            at = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
            answer = {"ms": total} | {name: times[int(count * share)] for name, share in at.items()}
        else:
            start = time.perf_counter()
            result = connection.sql(line).to_arrow_table()
            elapsed = (time.perf_counter() - start) * 1e3
            rows = [list(row.values()) for row in result.to_pylist()]
            answer = {"ms": elapsed, "rows": [[text(value) for value in row] for row in rows]}
    except Exception as error:  # reported to the other side, which decides
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
