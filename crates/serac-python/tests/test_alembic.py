"""Migrations by Alembic: up, what autogenerate finds, down."""

import pytest

pytest.importorskip("alembic")

import sqlalchemy as sa  # noqa: E402
from alembic import command  # noqa: E402
from alembic.autogenerate import compare_metadata  # noqa: E402
from alembic.config import Config  # noqa: E402
from alembic.operations import Operations  # noqa: E402
from alembic.runtime.migration import MigrationContext  # noqa: E402

ENVIRONMENT = """
from alembic import context

target = context.config.attributes["target"]
with context.config.attributes["engine"].connect() as connection:
    context.configure(connection=connection, target_metadata=target, compare_server_default=True)
    with context.begin_transaction():
        context.run_migrations()
"""

SCRIPT = '''"""${message}"""
from alembic import op
import sqlalchemy as sa
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade():
    ${upgrades if upgrades else "pass"}


def downgrade():
    ${downgrades if downgrades else "pass"}
'''


def first():
    """The tables of the first version of a program."""
    metadata = sa.MetaData()
    sa.Table(
        "customer",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("score", sa.Integer, server_default="7"),
    )
    return metadata


def second():
    """Those of the second: another table, other columns, indexes and constraints."""
    metadata = sa.MetaData()
    sa.Table(
        "customer",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(80), nullable=False, comment="as it is written"),
        sa.Column("score", sa.BigInteger, server_default="8", nullable=False),
        sa.Column("born", sa.Date),
        sa.UniqueConstraint("name", name="customer_name_key"),
        sa.Index("customer_born", "born", postgresql_where=sa.text("score > 3")),
        comment="whoever buys",
    )
    sa.Table(
        "invoice",
        metadata,
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("customer", sa.ForeignKey("customer.id", ondelete="CASCADE", name="invoice_customer"), nullable=False),
        sa.Column("amount", sa.Numeric(12, 2), nullable=False),
        sa.CheckConstraint("amount > 0", name="amount_is_positive"),
    )
    return metadata


@pytest.fixture
def engine(tmp_path):
    engine = sa.create_engine(f"seracdb:///{tmp_path / 'db'}?durability=off")
    yield engine
    engine.dispose()


@pytest.fixture
def config(engine, tmp_path):
    scripts = tmp_path / "migrations"
    (scripts / "versions").mkdir(parents=True)
    (scripts / "env.py").write_text(ENVIRONMENT, encoding="utf-8")
    (scripts / "script.py.mako").write_text(SCRIPT, encoding="utf-8")
    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.set_main_option("path_separator", "os")
    config.attributes["engine"] = engine
    return config


def differences(engine, metadata):
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        return compare_metadata(context, metadata)


def test_a_migration_goes_up_and_down(engine, config):
    for message, metadata in (("first", first()), ("second", second())):
        config.attributes["target"] = metadata
        command.revision(config, message, autogenerate=True, rev_id=message)
        command.upgrade(config, "head")
        # Whatever was generated is all there is to do: the next comparison finds nothing.
        left = [difference for difference in differences(engine, metadata) if "alembic_version" not in str(difference)]
        assert left == []
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO customer (name) VALUES ('ada')")
        connection.exec_driver_sql("INSERT INTO invoice (customer, amount) VALUES (1, 3.5)")
        assert connection.exec_driver_sql("SELECT score FROM customer").scalar() == 8
    with pytest.raises(sa.exc.IntegrityError, match="amount_is_positive"), engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO invoice (customer, amount) VALUES (1, 0)")

    command.downgrade(config, "first")
    assert [d for d in differences(engine, first()) if "alembic_version" not in str(d)] == []
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT name, score FROM customer").all() == [("ada", 8)]
    command.downgrade(config, "base")
    assert sa.inspect(engine).get_table_names() == ["alembic_version"]


def test_a_migration_that_fails_leaves_nothing(engine, config, tmp_path):
    config.attributes["target"] = first()
    command.revision(config, "first", autogenerate=True, rev_id="first")
    command.revision(config, "broken", rev_id="broken")
    (script,) = (tmp_path / "migrations" / "versions").glob("broken_*.py")
    broken = "op.create_table('half', sa.Column('id', sa.Integer))\n    op.execute('SELECT 1 / 0')"
    script.write_text(script.read_text(encoding="utf-8").replace("pass", broken, 1), encoding="utf-8")
    command.upgrade(config, "first")
    with pytest.raises(sa.exc.DataError, match="division by zero"):
        command.upgrade(config, "head")
    assert not sa.inspect(engine).has_table("half")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == "first"


def test_operations(engine):
    with engine.begin() as connection:
        op = Operations(MigrationContext.configure(connection))
        op.create_table("t", sa.Column("id", sa.Integer, primary_key=True), sa.Column("n", sa.String(10)))
        op.bulk_insert(sa.table("t", sa.column("n", sa.String)), [{"n": "1"}, {"n": "22"}])
        op.alter_column("t", "n", type_=sa.Integer, postgresql_using="n::integer", comment="a number")
        op.alter_column("t", "n", new_column_name="number", nullable=False)
        op.rename_table("t", "u")
        op.create_index("u_number", "u", ["number"], unique=True, postgresql_include=["id"])
        op.add_column("u", sa.Column("more", sa.BigInteger, sa.Identity(always=True)))
        op.alter_column("u", "more", server_default=None, existing_server_default=sa.Identity(always=True))
        op.drop_column("u", "more")
    columns = sa.inspect(engine).get_columns("u")
    assert [(column["name"], str(column["type"]), column["nullable"]) for column in columns] == [
        ("id", "INTEGER", False),
        ("number", "INTEGER", False),
    ]
    assert columns[1]["comment"] == "a number"
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT number FROM u ORDER BY 1").scalars().all() == [1, 22]
