"""Daft: ``seracdb.daft.read("grpc://127.0.0.1:8815", table="lineitem", partitions=8)``.

Each partition is a task. Daft's workers need this package and pyarrow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import RecordBatch
from daft.schema import Schema

from seracdb.remote import Partition, Plan, framed, plan_of

if TYPE_CHECKING:
    from daft import DataFrame
    from daft.io.pushdowns import Pushdowns

__all__ = ["SeracDataSource", "read"]


class _Task(DataSourceTask):
    def __init__(self, partition: Partition, schema: Schema) -> None:
        self._partition = partition
        self._schema = schema

    @property
    def schema(self) -> Schema:
        return self._schema

    async def read(self) -> AsyncIterator[RecordBatch]:
        batches = self._partition.read()
        # Reading waits for the network: other tasks go on meanwhile.
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            yield RecordBatch.from_arrow_record_batches([batch], batch.schema)


class SeracDataSource(DataSource):
    """A plan as a source of Daft. Its snapshot is held while the program has the frame."""

    def __init__(self, plan: Plan) -> None:
        self._plan: Plan | None = framed(plan, "Daft")
        self._schema = Schema.from_pyarrow_schema(plan.schema)
        self._partitions = plan.partitions

    def __getstate__(self) -> dict[str, Any]:
        # Copies read, and do not hold.
        return {**self.__dict__, "_plan": None}

    @property
    def name(self) -> str:
        return "SeracDB"

    @property
    def schema(self) -> Schema:
        return self._schema

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        """A task for each partition. Daft itself tests the conditions that it offers."""
        for partition in self._partitions:
            yield _Task(partition, self._schema)


def read(source: Plan | str | Sequence[str], **options: Any) -> DataFrame:
    """The frame of a plan, or of an address and the other arguments of
    :func:`seracdb.remote.plan`, whose errors it raises."""
    return SeracDataSource(plan_of(source, options)).read()
