"""Ray Data: ``seracdb.ray.read("grpc://127.0.0.1:8815", table="lineitem", partitions=8)``.

Each partition is a task. Ray's workers need this package and pyarrow.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from seracdb.remote import Partition, Plan, framed, plan_of

__all__ = ["SeracDatasource", "read"]


def _read(partition: Partition, schema: pa.Schema) -> Iterator[pa.Table]:
    rows = 0
    for batch in partition.read():
        rows += batch.num_rows
        yield pa.Table.from_batches([batch], schema=schema)
    if rows == 0:
        yield schema.empty_table()


class SeracDatasource(Datasource):
    """A plan as a source of Ray Data. Its snapshot is held while the program has the dataset."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._plan: Plan | None = framed(plan, "Ray")
        self._schema = plan.schema
        self._partitions = plan.partitions

    def __getstate__(self) -> dict[str, Any]:
        # Copies read, and do not hold.
        return {**self.__dict__, "_plan": None}

    def get_name(self) -> str:
        return "SeracDB"

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """A task for each partition, whatever parallelism is asked for."""
        unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        tasks = (functools.partial(_read, partition, self._schema) for partition in self._partitions)
        return [ReadTask(task, unknown, self._schema, per_task_row_limit) for task in tasks]


def read(source: Plan | str | Sequence[str], **options: Any) -> ray.data.Dataset:
    """The dataset of a plan, or of an address and the other arguments of
    :func:`seracdb.remote.plan`, whose errors it raises."""
    plan = plan_of(source, options)
    # Without a number Ray would cut what a task reads into many blocks.
    return ray.data.read_datasource(SeracDatasource(plan), override_num_blocks=len(plan.partitions))
