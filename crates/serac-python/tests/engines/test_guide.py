"""The Python in the guide runs."""

import pathlib
import re
import shutil
from typing import Any

import pytest
import ray
from tables import MOST_LEASES

PROJECT = pathlib.Path(__file__).parents[4]
GUIDE = PROJECT / "docs/book/src/guides/engines.md"
#: PostgreSQL's driver for JDBC, which `scripts/readers` gets.
DRIVER = PROJECT / "target/peers/postgresql.jar"


@pytest.fixture
def cluster():
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20)
    yield
    ray.shutdown()


def test_the_guide(cluster, capsys, served):
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    early, many = "l_shipdate < '1994-01-01'", "l_quantity > 10"
    # What each block prints, by its first module.
    counted = {
        "seracdb": f"SELECT 8 FROM lineitem WHERE {early} LIMIT 1",
        "seracdb.spark": f"SELECT count(*) FROM lineitem WHERE {early} AND {many}",
        "seracdb.ray": f"SELECT count(*) FROM lineitem WHERE {early}",
        "seracdb.dask": f"SELECT sum(l_quantity)::float8 FROM lineitem WHERE {early}",
        "seracdb.daft": f"SELECT count(*) FROM lineitem WHERE {early} AND {many}",
        "jdbc": f"SELECT count(*) FROM lineitem WHERE {many}",
        "predicates": f"SELECT count(*) FROM lineitem WHERE {many}",
    }
    names: dict[str, Any] = {}
    with served.con.serve(pg="127.0.0.1:0") as server:
        for block, (name, query) in zip(blocks, counted.items(), strict=True):
            assert name in block
            if name in ("seracdb.spark", "jdbc", "predicates") and shutil.which("java") is None:
                continue
            if name in ("jdbc", "predicates") and not DRIVER.exists():
                continue
            block = block.replace("grpc://127.0.0.1:8815", served.url)
            block = block.replace("127.0.0.1:5432", "{}:{}".format(*server.addresses["pg"]))
            jars = f".config('spark.jars', '{DRIVER}')" if DRIVER.exists() else ""
            block = block.replace("builder.", f"builder.master('local[3]'){jars}.")
            capsys.readouterr()
            exec(block, names)
            [(wanted,)] = served.sql(query)
            assert capsys.readouterr().out.split()[-1] == str(wanted), name
    if "spark" in names:
        names["spark"].stop()
    [(rows,)] = served.sql(counted["seracdb.ray"])
    assert names["rows"] == rows
    assert served.free_leases() == MOST_LEASES
