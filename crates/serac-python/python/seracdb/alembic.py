"""Migrations by Alembic: what it does in a database of SeracDB.

Alembic loads this module by itself, as a plugin. Its operations and its comparisons are those for
PostgreSQL. DDL is transactional, so a migration happens wholly or not at all.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from alembic.ddl.impl import DefaultImpl

if TYPE_CHECKING:
    from alembic.runtime.plugins import Plugin


class SeracdbImpl(DefaultImpl):
    """Makes the object that carries out a migration. Alembic knows it by the name of the dialect.

    Alembic loads plugins while it loads its own modules, before there is the one for PostgreSQL.
    So the class that derives from that is made when it is first wanted.
    """

    __dialect__ = "seracdb"

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        return _implementation()(*arguments, **options)


@functools.cache
def _implementation() -> type[DefaultImpl]:
    """PostgreSQL's operations, for the dialect of SeracDB."""
    from alembic.ddl import base, postgresql
    from sqlalchemy.ext.compiler import compiles

    # Alembic compiles these for dialects by their names.
    compiles(base.RenameTable, "seracdb")(postgresql.visit_rename_table)
    compiles(base.ColumnComment, "seracdb")(postgresql.visit_column_comment)
    compiles(base.IdentityColumnDefault, "seracdb")(postgresql.visit_identity_column)
    compiles(postgresql.PostgresqlColumnType, "seracdb")(postgresql.visit_column_type)

    class Implementation(postgresql.PostgresqlImpl):
        __dialect__ = "seracdb"

    return Implementation


def setup(plugin: Plugin) -> None:
    """Called by Alembic for each plugin. Loading this module has done everything."""
