"""SQLAlchemy's compliance suite, run by its own plugin of pytest on a database in a new folder."""

import atexit
import shutil
import tempfile

import pytest
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.testing.plugin import pytestplugin
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: F403 - the hooks of the plugin

PARENTHESES = "definitions are told as they were written, with all parentheses"
PREFIX = "options of indexes have the prefix of PostgreSQL's dialect, not of the dialect's name"
ORDER = "rows without ORDER BY come in another order"


def pytest_configure(config):
    folder = tempfile.mkdtemp(prefix="seracdb-suite")
    # seracdb is imported later, so it closes its databases before this.
    atexit.register(shutil.rmtree, folder)
    config.option.dburi = [f"seracdb:///{folder}/db?durability=off"]
    pytestplugin.pytest_configure(config)
    provide()


# Tests and classes whose demands SeracDB does not meet, and why.
UNMET = {
    "test_check_constraint_parenthesized_expressions[False-((((x > 0))))]": PARENTHESES,
    "test_check_constraint_parenthesized_expressions[True-((((x > 0))))]": PARENTHESES,
    "test_reflect_covering_index": PREFIX,
    "test_reflect_expression_based_indexes": PREFIX,
    "test_window_range": ORDER,
    "test_window_range_numeric": ORDER,
    "IdentityReflectionTest": "sequences do not CYCLE",
}


def pytest_collection_modifyitems(session, config, items):
    pytestplugin.pytest_collection_modifyitems(session, config, items)
    for item in items:
        # The plugin adds the database to the names of classes.
        test_class = item.cls.__name__.partition("_")[0]
        reason = UNMET.get(item.name) or UNMET.get(test_class)
        if reason:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def provide():
    """Tells the suite how things are done that are not the same in all databases."""
    # It can be imported only after the plugin has been configured.
    from sqlalchemy.testing import provision

    @provision.post_configure_engine.for_db("seracdb")
    def make_schemas(url, engine, follower_ident):
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE SCHEMA IF NOT EXISTS test_schema")
            connection.exec_driver_sql("CREATE SCHEMA IF NOT EXISTS test_schema_2")

    @provision.temp_table_keyword_args.for_db("seracdb")
    def temporary(cfg, engine):
        return {"prefixes": ["TEMPORARY"]}

    @provision.set_default_schema_on_connection.for_db("seracdb")
    def set_default_schema(cfg, connection, schema):
        # A SET inside a transaction would end with its rollback.
        was = connection.autocommit
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = '{schema}'")
        connection.autocommit = was

    @provision.upsert.for_db("seracdb")
    def upsert(cfg, table, returning, *, set_lambda=None, sort_by_parameter_order=False, index_elements=None):
        statement = insert(table)
        if set_lambda is None:
            statement = statement.on_conflict_do_nothing()
        else:
            statement = statement.on_conflict_do_update(
                index_elements=index_elements or table.primary_key, set_=set_lambda(statement.excluded)
            )
        return statement.returning(*returning, sort_by_parameter_order=sort_by_parameter_order)
