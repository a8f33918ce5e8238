"""A project of dbt against the server: its folder, and the port of a server, are arguments.

The project is built twice; between the builds the source changes. Afterwards the tables are looked
at with psycopg2, which dbt brings along.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing

import psycopg2

port = sys.argv[1]
project = pathlib.Path(__file__).with_name("dbt")


def execute(statement):
    connection = psycopg2.connect(host="127.0.0.1", port=port, user="serac", password="none", dbname="db")
    with closing(connection), connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else None


with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder) / "shop"
    shutil.copytree(project, work)
    environment = dict(
        os.environ,
        SERAC_PORT=port,
        DBT_PROFILES_DIR=str(work),
        DBT_PROJECT_DIR=str(work),
        DBT_SEND_ANONYMOUS_USAGE_STATS="false",
        DO_NOT_TRACK="1",
    )

    def dbt(*arguments):
        program = pathlib.Path(sys.executable).with_name("dbt")
        done = subprocess.run([program, *arguments], env=environment, cwd=work, capture_output=True, text=True)
        assert done.returncode == 0, f"dbt {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    execute("CREATE SCHEMA raw")
    execute("CREATE TABLE raw.payment (id INT PRIMARY KEY, amount NUMERIC(10, 2), loaded_at TIMESTAMP)")
    execute("INSERT INTO raw.payment VALUES (1, 5, '2024-03-01 08:00'), (2, 6, '2024-03-01 09:00')")
    first = dbt("build")
    assert "ERROR=0" in first and "SKIP=0" in first, first
    execute("INSERT INTO raw.payment VALUES (3, 7, '2024-03-02 08:00')")
    execute("UPDATE raw.payment SET amount = 50, loaded_at = '2024-03-01 10:00' WHERE id = 2")
    execute("DELETE FROM raw.payment WHERE id = 1")
    second = dbt("build", "--vars", "{with_largest: true}")
    assert "ERROR=0" in second and "SKIP=0" in second, second
    days = execute("SELECT day::text, paid, payments, largest FROM shop.paid_day ORDER BY day")
    assert days == [("2024-03-01", 50, 1, 50), ("2024-03-02", 7, 1, 7)], days
    dbt("source", "freshness")
    dbt("run", "--full-refresh", "--select", "paid_day", "payment_merged")
    dbt("docs", "generate")
    catalog = (work / "target" / "catalog.json").read_text(encoding="utf-8")
    for name in ("customer_total", "customer_order", "paid_day", "payment_state", "customers", "newest_payment"):
        assert f'"name": "{name}"' in catalog or f'"name":"{name}"' in catalog, (name, catalog)

    assert execute("SELECT id, amount FROM shop.payment_log ORDER BY id") == [(1, 5), (2, 6), (3, 7)]
    assert execute("SELECT id, amount FROM shop.payment_merged ORDER BY id") == [(2, 50), (3, 7)]
    states = execute("SELECT id, amount, dbt_valid_to IS NULL FROM shop.payment_state ORDER BY id, dbt_valid_from")
    assert states == [(1, 5, False), (2, 6, False), (2, 50, True), (3, 7, True)], states
    times = execute("SELECT id, amount, dbt_valid_to IS NULL FROM shop.payment_time ORDER BY id, dbt_valid_from")
    assert times == [(1, 5, True), (2, 6, False), (2, 50, True), (3, 7, True)], times
    totals = execute("SELECT customer, total, class FROM shop.customer_total ORDER BY customer")
    assert [(customer, float(total), kind) for customer, total, kind in totals] == [
        (1, 19.75, "small"),
        (2, 100.0, "large"),
        (3, 0.75, "small"),
    ], totals
    comment = "SELECT obj_description('shop.customer_order'::regclass)"
    assert execute(comment) == [("Orders with the names of their customers, it's a view",)]
print("done")
