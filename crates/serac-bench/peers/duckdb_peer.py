"""DuckDB as a peer: loads Parquet files into memory, then answers one query per line of standard input.

Each answer is a line of JSON: {"ms": milliseconds, "rows": [[...]]} or {"error": text}. Lines starting with "load " time a
CREATE TABLE AS from an Arrow file: {"ms": milliseconds}.
"""

import json
import sys
import time

import duckdb

threads, folder = int(sys.argv[1]), sys.argv[2]
connection = duckdb.connect(":memory:", config={"threads": threads})
for table in sys.argv[3:]:
    connection.execute(f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{folder}/{table}.parquet')")
print(json.dumps({"ready": duckdb.__version__}), flush=True)


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
        else:
            start = time.perf_counter()
            result = connection.sql(line).to_arrow_table()
            elapsed = (time.perf_counter() - start) * 1e3
            rows = [list(row.values()) for row in result.to_pylist()]
            answer = {"ms": elapsed, "rows": [[text(value) for value in row] for row in rows]}
    except Exception as error:  # reported to the other side, which decides
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
