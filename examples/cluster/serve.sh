#!/bin/sh
# Serves TPC-H: what /data does not have yet is generated and loaded first.
set -eu
scale=${SCALE:-0.1}
if ! test -e /data/loaded; then
    rm -rf /data/tpch.db /data/parquet
    serac-cluster data --scale "$scale" /data/parquet
    serac-cluster schema | serac --standalone /data/tpch.db
    for file in /data/parquet/0/*.parquet; do
        serac load --durability off --table "$(basename "$file" .parquet)" /data/tpch.db "$file"
    done
    touch /data/loaded
fi
exec serac serve /data/tpch.db --allow-remote --flight 0.0.0.0:8815 --pg 0.0.0.0:5432 --metrics 0.0.0.0:9090
