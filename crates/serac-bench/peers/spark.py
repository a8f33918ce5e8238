"""PySpark reads lineitem and orders from SeracDB over Flight, from PostgreSQL by JDBC, and from
Parquet files.

A line of standard input tells where they are. The answer is a line of JSON: {"rows": [{…}]} or
{"error": text}. The sources take turns; what is told is the median of the turns. All sources must
give the same answers.
"""

import json
import os
import statistics
import sys
import time

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

FROM, UNTIL = "1994-01-01", "1995-01-01"
#: What the server tests, for the source that Spark tells no conditions.
CONDITIONS = [
    ["l_shipdate", ">=", FROM],
    ["l_shipdate", "<", UNTIL],
    ["l_discount", ">=", "0.05"],
    ["l_discount", "<=", "0.07"],
    ["l_quantity", "<", 24],
]


def session(request):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{request['threads']}]").appName("serac-bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.jars": request["driver"],
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(request["threads"]),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def sources(spark, request):
    """By name, what gives the frame of a table. Only SeracDB's source must be told the columns and
    the conditions, which Spark tells the others."""
    import pyarrow.parquet
    import seracdb.remote
    import seracdb.spark

    seracdb.spark.register(spark)

    def of_seracdb(table, columns=None, conditions=()):
        options = {"url": request["url"], "table": table, "partitions": request["threads"]}
        if columns is not None:
            options["columns"] = ",".join(columns)
        return spark.read.format("seracdb").options(**options, filter=json.dumps(list(conditions))).load()

    def of_parquet(table, columns=None, conditions=()):
        return spark.read.parquet(f"file://{request['folder']}/{table}")

    def by_jdbc(table, columns=None, conditions=()):
        options = {
            "url": request["jdbc"],
            "driver": "org.postgresql.Driver",
            "dbtable": table,
            "partitionColumn": table[0] + "_orderkey",
            "lowerBound": 1,
            "upperBound": int(6_000_000 * request["sf"]),
            "numPartitions": request["threads"],
            "fetchsize": 10_000,
        }
        return spark.read.format("jdbc").options(**options).load()

    for table in ("lineitem", "orders"):
        os.mkdir(f"{request['folder']}/{table}")
        with seracdb.remote.plan(request["url"], table=table, partitions=request["threads"]) as plan:
            for number, partition in enumerate(plan.partitions):
                path = f"{request['folder']}/{table}/{number}.parquet"
                with pyarrow.parquet.ParquetWriter(path, plan.schema) as writer:
                    for batch in partition.read():
                        writer.write_batch(batch)
    found = {"SeracDB over Flight": of_seracdb, "Parquet": of_parquet}
    if request["jdbc"] is not None:
        found["PostgreSQL by JDBC"] = by_jdbc
    return found


def everything(frame):
    frame("lineitem").write.format("noop").mode("overwrite").save()


def count(frame):
    return frame("lineitem", ["l_orderkey"]).count()


def condition(frame):
    from pyspark.sql import functions as f

    lines = frame("lineitem", ["l_shipdate", "l_discount", "l_quantity", "l_extendedprice"], CONDITIONS)
    dates = (f.col("l_shipdate") >= f.lit(FROM).cast("date")) & (f.col("l_shipdate") < f.lit(UNTIL).cast("date"))
    discounts = f.col("l_discount").between(f.lit("0.05").cast("decimal(15,2)"), f.lit("0.07").cast("decimal(15,2)"))
    lines = lines.where(dates & discounts & (f.col("l_quantity") < 24))
    return lines.agg(f.sum(f.col("l_extendedprice") * f.col("l_discount"))).collect()


def join(frame):
    from pyspark.sql import functions as f

    lines = frame("lineitem", ["l_orderkey", "l_extendedprice"])
    orders = frame("orders", ["o_orderkey", "o_orderpriority"])
    joined = lines.join(orders, lines.l_orderkey == orders.o_orderkey)
    sums = joined.groupBy("o_orderpriority").agg(f.count("*").alias("n"), f.sum("l_extendedprice").alias("s"))
    return sums.orderBy("o_orderpriority").collect()


READS = {
    "all columns": everything,
    "count": count,
    "conditions of Q6": condition,
    "join with orders": join,
}


def run(request):
    import seracdb.spark

    spark = session(request)
    found = sources(spark, request)
    rows = found["Parquet"]("lineitem").count()
    told = []
    for read, work in READS.items():
        times, answers = {name: [] for name in found}, {}
        for turn in range(request["runs"] + 1):
            for name in list(found) if turn % 2 else list(found)[::-1]:
                start = time.perf_counter()
                answer = work(found[name])
                # The first turn warms up.
                if turn:
                    times[name].append((time.perf_counter() - start) * 1e3)
                seracdb.spark.release()
                if answers.setdefault(read, answer) != answer:
                    raise AssertionError(f"{read}: {name} gives {answer}, not {answers[read]}")
        medians = {name: statistics.median(of) for name, of in times.items()}
        for name, of in times.items():
            ms = medians[name]
            told.append({
                "read": read, "source": name, "ms": ms, "least": min(of), "most": max(of), "rows/s": rows / ms * 1e3,
                "to JDBC": medians["PostgreSQL by JDBC"] / ms if request["jdbc"] is not None else None,
                "to Parquet": medians["Parquet"] / ms,
            })
    spark.stop()
    return told


def versions():
    import pyarrow
    import pyspark
    import seracdb

    return (
        f"seracdb {seracdb.__version__}, Python {sys.version.split()[0]}, PySpark {pyspark.__version__}, "
        f"pyarrow {pyarrow.__version__}"
    )


if __name__ == "__main__":
    # Java writes to standard output, too.
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)
    try:
        ready = {"ready": versions()}
    except ImportError as error:
        ready = {"error": str(error)}
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = {"rows": run(json.loads(line))}
        except Exception as error:  # reported to the other side, which decides
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
