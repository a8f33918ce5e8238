"""What SQLAlchemy's compliance suite may ask of SeracDB, and why not the rest."""

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

# What SQLAlchemy does not ask of a database by itself, and SeracDB has.
PRESENT = """
    aggregate_order_by autocommit binary_comparisons binary_literals boolean_col_expressions
    cast_precision_numerics_many_significant_digits check_constraint_reflection comment_reflection
    comment_reflection_full_unicode computed_columns computed_columns_default_persisted
    computed_columns_reflect_persisted computed_columns_stored create_or_replace_view create_table_as
    create_temp_table_as cross_schema_fk_reflection ctes ctes_on_dml ctes_with_update_delete
    ctes_with_values date_historic datetime_historic datetime_interval datetime_literals
    datetime_timezone datetime_timezone_historic default_schema_name_switch delete_from except_
    expression_server_defaults fetch_expression fetch_first fetch_no_order_by fetch_offset_with_options
    fetch_ties fk_constraint_option_reflection_ondelete_noaction
    fk_constraint_option_reflection_ondelete_restrict fk_constraint_option_reflection_onupdate_restrict
    float_or_double_precision_behaves_generically foreign_key_constraint_name_reflection
    foreign_key_constraint_option_reflection_ondelete foreign_key_constraint_option_reflection_onupdate
    has_temp_table identity_columns identity_columns_standard implicit_default_schema index_ddl_if_exists
    index_reflects_included_columns indexes_check_column_order indexes_with_expressions infinity_floats
    inline_check_constraint_reflection intersect isolation_level json_type materialized_views
    mod_operator_as_percent_sign nullsordering order_by_label_with_expression percent_schema_names
    precision_numerics_enotation_small precision_numerics_many_significant_digits
    precision_numerics_retains_significant_digits reflect_indexes_with_expressions reflect_table_options
    reflect_tables_no_columns reflects_pk_names regexp_match regexp_replace savepoints
    schema_create_delete schemas server_defaults skip_autocommit_rollback
    standalone_null_binds_whereclause supports_bitwise_and supports_bitwise_not supports_bitwise_or
    supports_bitwise_shift supports_bitwise_xor supports_distinct_on supports_is_distinct_from
    table_ddl_if_exists table_value_constructor temp_table_comment_reflection temp_table_names
    temp_table_reflect_indexes timestamp_microseconds tuple_in tuple_in_w_empty unicode_ddl
    unique_constraints_reflect_as_index update_from uuid_data_type views window_functions window_range
    window_range_non_numeric window_range_numeric
""".split()

# What the suite has tests for, and SeracDB does not have, and why.
ABSENT = {
    "array_type": "arrays are no types of columns",
    "column_collation_reflection": "all collations compare bytes, and columns keep none",
    "computed_columns_virtual": "generated columns are stored",
    "constraint_comment_reflection": "constraints have no comments",
    "deferrable_fks": "constraints are checked at the end of each statement",
    "fetch_percent": "there is no FETCH of a percentage, as in PostgreSQL",
    "json_deserializer_binary": "the text of JSON is a str",
    "materialized_views_reflect_pk": "materialized views have no keys",
    "server_side_cursors": "every cursor gets its rows as they are asked for; the tests know other drivers' cursors",
    "temporary_views": "there are no temporary views",
    "time_timezone": "there is no TIME WITH TIME ZONE",
    "two_phase_transactions": "there is no two-phase commit",
}


class Requirements(SuiteRequirements):
    """What the suite may ask of SeracDB."""

    def get_isolation_levels(self, config):
        levels = ["AUTOCOMMIT", "READ COMMITTED", "READ UNCOMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
        return {"default": "REPEATABLE READ", "supported": levels}

    def get_order_by_collation(self, config):
        return "C"


def _requirement(make):
    return property(lambda self: make())


for _name in PRESENT:
    assert hasattr(SuiteRequirements, _name), _name
    setattr(Requirements, _name, _requirement(exclusions.open))
for _name, _reason in ABSENT.items():
    assert hasattr(SuiteRequirements, _name), _name
    setattr(Requirements, _name, _requirement(lambda reason=_reason: exclusions.skip_if(lambda: True, reason)))
