"""Dask: ``seracdb.dask.read("grpc://127.0.0.1:8815", table="lineitem", partitions=8)``.

Each partition is one of the frame. The columns have pandas' Arrow types, so that integers with
NULLs and decimals stay what they are. Dask's workers need this package, pandas and pyarrow.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from dask import dataframe

from seracdb.remote import Partition, Plan, plan_of

if TYPE_CHECKING:
    from dask.dataframe import DataFrame

__all__ = ["read"]


class _Reader:
    """Reads a partition. In the planning process it keeps the plan, and so the snapshot."""

    def __init__(self, plan: Plan) -> None:
        self._plan: Plan | None = plan
        self._schema = plan.schema
        self._token = uuid.uuid4().hex

    def __getstate__(self) -> dict[str, Any]:
        # Copies read, and do not hold.
        return {**self.__dict__, "_plan": None}

    def __deepcopy__(self, _: Any) -> _Reader:
        return self

    def __dask_tokenize__(self) -> str:
        return self._token

    def __call__(self, partition: Partition) -> pd.DataFrame:
        return _frame(pa.Table.from_batches(partition.read(), schema=self._schema))


def _frame(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)


def read(source: Plan | str | Sequence[str], **options: Any) -> DataFrame:
    """The frame of a plan, or of an address and the other arguments of
    :func:`seracdb.remote.plan`, whose errors it raises.

    The snapshot is held while the program has the frame, or one that is made of it. A scheduler in
    this process (``distributed.LocalCluster``) has it for longer: close the plan then.
    """
    plan = plan_of(source, options)
    meta = _frame(plan.schema.empty_table())
    return dataframe.from_map(_Reader(plan), plan.partitions, meta=meta, label="seracdb")
