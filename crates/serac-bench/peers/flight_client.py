"""pyarrow as a client of Arrow Flight, and connectorx as one of PostgreSQL.

Each line of standard input is {"address", "command"}, and all of the flight's endpoints are read
into a table, or {"uri", "query"}.

Each answer is a line of JSON: {"ms": from the call to the table, "bytes": of the table, "rows",
"sum": of its first column} or {"error": text}.
"""

import json
import sys
import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight

clients = {}
print(json.dumps({"ready": pa.__version__}), flush=True)

for line in sys.stdin:
    try:
        request = json.loads(line)
        if address := request.get("address"):
            if address not in clients:
                clients[address] = flight.connect(f"grpc://{address}")
            client, descriptor = clients[address], flight.FlightDescriptor.for_command(request["command"])
            start = time.perf_counter()
            info = client.get_flight_info(descriptor)
            table = pa.concat_tables([client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints])
        else:
            import connectorx

            start = time.perf_counter()
            table = connectorx.read_sql(request["uri"], request["query"], return_type="arrow")
        elapsed = (time.perf_counter() - start) * 1e3
        answer = {"ms": elapsed, "bytes": table.nbytes, "rows": table.num_rows, "sum": pc.sum(table[0]).as_py()}
        del table
    except BaseException as error:  # reported to the other side, which decides (connectorx raises what is no Exception)
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
