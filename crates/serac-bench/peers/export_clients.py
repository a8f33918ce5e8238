"""A table into a pandas DataFrame, by several clients. Each line of standard input is {"way",
"table", "dsn" or "uri" or "file"}.

Each answer is a line of JSON: {"ms": from the connection to the frame, "rows", "sum": of its first
column} or {"error": text}.
"""

import gc
import io
import json
import sys
import time

import pandas as pd
import pyarrow as pa


def psycopg_frame(request):
    import psycopg

    with psycopg.connect(request["dsn"]) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {request['table']}")
        names = [column.name for column in cursor.description]
        frames = []
        # A frame for each part: all rows as Python's tuples would need several times as much
        # memory.
        while rows := cursor.fetchmany(200_000):
            frames.append(pd.DataFrame.from_records(rows, columns=names))
        return pd.concat(frames, ignore_index=True)


def copy_frame(request):
    import psycopg

    text = io.BytesIO()
    with psycopg.connect(request["dsn"]) as connection, connection.cursor() as cursor:
        with cursor.copy(f"COPY {request['table']} TO STDOUT (FORMAT csv, HEADER)") as copy:
            for part in copy:
                text.write(part)
    text.seek(0)
    return pd.read_csv(text)


def connectorx_frame(request):
    import connectorx

    return connectorx.read_sql(request["uri"], f"SELECT * FROM {request['table']}")


def adbc_frame(request):
    import adbc_driver_flightsql.dbapi as adbc

    headers = {f"adbc.flight.sql.rpc.call_header.{name}": value for name, value in request["headers"].items()}
    with adbc.connect(request["uri"], db_kwargs=headers, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {request['table']}")
        return cursor.fetch_arrow_table().to_pandas(types_mapper=pd.ArrowDtype)


def buffer_frame(table):
    return table.to_pandas(types_mapper=pd.ArrowDtype)


WAYS = {"psycopg": psycopg_frame, "CSV by COPY": copy_frame, "connectorx": connectorx_frame, "ADBC": adbc_frame}
print(json.dumps({"ready": f"pandas {pd.__version__}, pyarrow {pa.__version__}"}), flush=True)

held = None
for line in sys.stdin:
    try:
        request = json.loads(line)
        run = WAYS.get(request["way"])
        if run is None and held is None:
            held = pa.ipc.open_file(pa.memory_map(request["file"])).read_all()
        gc.collect()
        start = time.perf_counter()
        frame = run(request) if run else buffer_frame(held)
        elapsed = (time.perf_counter() - start) * 1e3
        answer = {"ms": elapsed, "rows": len(frame), "sum": int(frame[frame.columns[0]].sum())}
        del frame
    except BaseException as error:  # reported to the other side, which decides (connectorx raises what is no Exception)
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
