//! SQLSTATEs by the names that PostgreSQL gives the conditions (its manual, appendix A).
//!
//! An error has one of these, and no other file of the sources has a SQLSTATE as a literal. The
//! first two characters are the class.
#![warn(missing_docs)]

// Class 00: successful completion

/// `successful_completion`.
pub const SUCCESSFUL_COMPLETION: &str = "00000";

// Class 01: warning

/// `warning`.
pub const WARNING: &str = "01000";

// Class 08: connection exception

/// `connection_failure`.
pub const CONNECTION_FAILURE: &str = "08006";
/// `sqlclient_unable_to_establish_sqlconnection`.
pub const SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION: &str = "08001";
/// `protocol_violation`.
pub const PROTOCOL_VIOLATION: &str = "08P01";

// Class 0A: feature not supported

/// `feature_not_supported`.
pub const FEATURE_NOT_SUPPORTED: &str = "0A000";

// Class 0L: invalid grantor

/// `invalid_grant_operation`.
pub const INVALID_GRANT_OPERATION: &str = "0LP01";

// Class 21: cardinality violation

/// `cardinality_violation`.
pub const CARDINALITY_VIOLATION: &str = "21000";

// Class 22: data exception

/// `data_exception`.
pub const DATA_EXCEPTION: &str = "22000";
/// `array_subscript_error`.
pub const ARRAY_SUBSCRIPT_ERROR: &str = "2202E";
/// `character_not_in_repertoire`.
pub const CHARACTER_NOT_IN_REPERTOIRE: &str = "22021";
/// `datetime_field_overflow`.
pub const DATETIME_FIELD_OVERFLOW: &str = "22008";
/// `division_by_zero`.
pub const DIVISION_BY_ZERO: &str = "22012";
/// `interval_field_overflow`.
pub const INTERVAL_FIELD_OVERFLOW: &str = "22015";
/// `invalid_argument_for_logarithm`.
pub const INVALID_ARGUMENT_FOR_LOGARITHM: &str = "2201E";
/// `invalid_argument_for_ntile_function`.
pub const INVALID_ARGUMENT_FOR_NTILE_FUNCTION: &str = "22014";
/// `invalid_argument_for_nth_value_function`.
pub const INVALID_ARGUMENT_FOR_NTH_VALUE_FUNCTION: &str = "22016";
/// `invalid_argument_for_power_function`.
pub const INVALID_ARGUMENT_FOR_POWER_FUNCTION: &str = "2201F";
/// `invalid_argument_for_width_bucket_function`.
pub const INVALID_ARGUMENT_FOR_WIDTH_BUCKET_FUNCTION: &str = "2201G";
/// `invalid_datetime_format`.
pub const INVALID_DATETIME_FORMAT: &str = "22007";
/// `invalid_escape_sequence`.
pub const INVALID_ESCAPE_SEQUENCE: &str = "22025";
/// `invalid_parameter_value`.
pub const INVALID_PARAMETER_VALUE: &str = "22023";
/// `invalid_preceding_or_following_size`.
pub const INVALID_PRECEDING_OR_FOLLOWING_SIZE: &str = "22013";
/// `invalid_regular_expression`.
pub const INVALID_REGULAR_EXPRESSION: &str = "2201B";
/// `invalid_row_count_in_limit_clause`.
pub const INVALID_ROW_COUNT_IN_LIMIT_CLAUSE: &str = "2201W";
/// `invalid_row_count_in_result_offset_clause`.
pub const INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE: &str = "2201X";
/// `invalid_time_zone_displacement_value`.
pub const INVALID_TIME_ZONE_DISPLACEMENT_VALUE: &str = "22009";
/// `invalid_use_of_escape_character`.
pub const INVALID_USE_OF_ESCAPE_CHARACTER: &str = "2200C";
/// `null_value_not_allowed`.
pub const NULL_VALUE_NOT_ALLOWED: &str = "22004";
/// `numeric_value_out_of_range`.
pub const NUMERIC_VALUE_OUT_OF_RANGE: &str = "22003";
/// `sequence_generator_limit_exceeded`.
pub const SEQUENCE_GENERATOR_LIMIT_EXCEEDED: &str = "2200H";
/// `string_data_right_truncation`.
pub const STRING_DATA_RIGHT_TRUNCATION: &str = "22001";
/// `substring_error`.
pub const SUBSTRING_ERROR: &str = "22011";
/// `invalid_text_representation`.
pub const INVALID_TEXT_REPRESENTATION: &str = "22P02";
/// `invalid_binary_representation`.
pub const INVALID_BINARY_REPRESENTATION: &str = "22P03";
/// `bad_copy_file_format`.
pub const BAD_COPY_FILE_FORMAT: &str = "22P04";
/// `untranslatable_character`.
pub const UNTRANSLATABLE_CHARACTER: &str = "22P05";

// Class 23: integrity constraint violation

/// `not_null_violation`.
pub const NOT_NULL_VIOLATION: &str = "23502";
/// `foreign_key_violation`.
pub const FOREIGN_KEY_VIOLATION: &str = "23503";
/// `unique_violation`.
pub const UNIQUE_VIOLATION: &str = "23505";
/// `check_violation`.
pub const CHECK_VIOLATION: &str = "23514";

// Class 25: invalid transaction state

/// `active_sql_transaction`.
pub const ACTIVE_SQL_TRANSACTION: &str = "25001";
/// `read_only_sql_transaction`.
pub const READ_ONLY_SQL_TRANSACTION: &str = "25006";
/// `no_active_sql_transaction`.
pub const NO_ACTIVE_SQL_TRANSACTION: &str = "25P01";
/// `in_failed_sql_transaction`.
pub const IN_FAILED_SQL_TRANSACTION: &str = "25P02";
/// `idle_in_transaction_session_timeout`.
pub const IDLE_IN_TRANSACTION_SESSION_TIMEOUT: &str = "25P03";

// Class 26: invalid sql statement name

/// `invalid_sql_statement_name`.
pub const INVALID_SQL_STATEMENT_NAME: &str = "26000";

// Class 28: invalid authorization specification

/// `invalid_authorization_specification`.
pub const INVALID_AUTHORIZATION_SPECIFICATION: &str = "28000";
/// `invalid_password`.
pub const INVALID_PASSWORD: &str = "28P01";

// Class 2B: dependent privilege descriptors still exist

/// `dependent_objects_still_exist`.
pub const DEPENDENT_OBJECTS_STILL_EXIST: &str = "2BP01";

// Class 34: invalid cursor name

/// `invalid_cursor_name`.
pub const INVALID_CURSOR_NAME: &str = "34000";

// Class 38: external routine exception

/// `external_routine_exception`.
pub const EXTERNAL_ROUTINE_EXCEPTION: &str = "38000";

// Class 39: external routine invocation exception

/// `external_routine_invocation_exception`.
pub const EXTERNAL_ROUTINE_INVOCATION_EXCEPTION: &str = "39000";

// Class 3B: savepoint exception

/// `invalid_savepoint_specification`.
pub const INVALID_SAVEPOINT_SPECIFICATION: &str = "3B001";

// Class 3D: invalid catalog name

/// `invalid_catalog_name`.
pub const INVALID_CATALOG_NAME: &str = "3D000";

// Class 3F: invalid schema name

/// `invalid_schema_name`.
pub const INVALID_SCHEMA_NAME: &str = "3F000";

// Class 40: transaction rollback

/// `serialization_failure`.
pub const SERIALIZATION_FAILURE: &str = "40001";
/// `deadlock_detected`.
pub const DEADLOCK_DETECTED: &str = "40P01";

// Class 42: syntax error or access rule violation

/// `syntax_error_or_access_rule_violation`.
pub const SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION: &str = "42000";
/// `syntax_error`.
pub const SYNTAX_ERROR: &str = "42601";
/// `insufficient_privilege`.
pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// `cannot_coerce`.
pub const CANNOT_COERCE: &str = "42846";
/// `grouping_error`.
pub const GROUPING_ERROR: &str = "42803";
/// `windowing_error`.
pub const WINDOWING_ERROR: &str = "42P20";
/// `invalid_recursion`.
pub const INVALID_RECURSION: &str = "42P19";
/// `invalid_foreign_key`.
pub const INVALID_FOREIGN_KEY: &str = "42830";
/// `invalid_name`.
pub const INVALID_NAME: &str = "42602";
/// `reserved_name`.
pub const RESERVED_NAME: &str = "42939";
/// `datatype_mismatch`.
pub const DATATYPE_MISMATCH: &str = "42804";
/// `indeterminate_datatype`.
pub const INDETERMINATE_DATATYPE: &str = "42P18";
/// `wrong_object_type`.
pub const WRONG_OBJECT_TYPE: &str = "42809";
/// `generated_always`.
pub const GENERATED_ALWAYS: &str = "428C9";
/// `undefined_column`.
pub const UNDEFINED_COLUMN: &str = "42703";
/// `undefined_function`.
pub const UNDEFINED_FUNCTION: &str = "42883";
/// `undefined_table`.
pub const UNDEFINED_TABLE: &str = "42P01";
/// `undefined_parameter`.
pub const UNDEFINED_PARAMETER: &str = "42P02";
/// `undefined_object`.
pub const UNDEFINED_OBJECT: &str = "42704";
/// `duplicate_column`.
pub const DUPLICATE_COLUMN: &str = "42701";
/// `duplicate_cursor`.
pub const DUPLICATE_CURSOR: &str = "42P03";
/// `duplicate_function`.
pub const DUPLICATE_FUNCTION: &str = "42723";
/// `duplicate_prepared_statement`.
pub const DUPLICATE_PREPARED_STATEMENT: &str = "42P05";
/// `duplicate_schema`.
pub const DUPLICATE_SCHEMA: &str = "42P06";
/// `duplicate_table`.
pub const DUPLICATE_TABLE: &str = "42P07";
/// `duplicate_alias`.
pub const DUPLICATE_ALIAS: &str = "42712";
/// `duplicate_object`.
pub const DUPLICATE_OBJECT: &str = "42710";
/// `ambiguous_column`.
pub const AMBIGUOUS_COLUMN: &str = "42702";
/// `ambiguous_function`.
pub const AMBIGUOUS_FUNCTION: &str = "42725";
/// `ambiguous_parameter`.
pub const AMBIGUOUS_PARAMETER: &str = "42P08";
/// `ambiguous_alias`.
pub const AMBIGUOUS_ALIAS: &str = "42P09";
/// `invalid_column_reference`.
pub const INVALID_COLUMN_REFERENCE: &str = "42P10";
/// `invalid_column_definition`.
pub const INVALID_COLUMN_DEFINITION: &str = "42611";
/// `invalid_function_definition`.
pub const INVALID_FUNCTION_DEFINITION: &str = "42P13";
/// `invalid_table_definition`.
pub const INVALID_TABLE_DEFINITION: &str = "42P16";
/// `invalid_object_definition`.
pub const INVALID_OBJECT_DEFINITION: &str = "42P17";

// Class 53: insufficient resources

/// `insufficient_resources`.
pub const INSUFFICIENT_RESOURCES: &str = "53000";
/// `disk_full`.
pub const DISK_FULL: &str = "53100";
/// `out_of_memory`.
pub const OUT_OF_MEMORY: &str = "53200";
/// `too_many_connections`.
pub const TOO_MANY_CONNECTIONS: &str = "53300";
/// `configuration_limit_exceeded`.
pub const CONFIGURATION_LIMIT_EXCEEDED: &str = "53400";

// Class 54: program limit exceeded

/// `program_limit_exceeded`.
pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
/// `statement_too_complex`.
pub const STATEMENT_TOO_COMPLEX: &str = "54001";
/// `too_many_columns`.
pub const TOO_MANY_COLUMNS: &str = "54011";
/// `too_many_arguments`.
pub const TOO_MANY_ARGUMENTS: &str = "54023";

// Class 55: object not in prerequisite state

/// `object_not_in_prerequisite_state`.
pub const OBJECT_NOT_IN_PREREQUISITE_STATE: &str = "55000";
/// `object_in_use`.
pub const OBJECT_IN_USE: &str = "55006";
/// `cant_change_runtime_param`.
pub const CANT_CHANGE_RUNTIME_PARAM: &str = "55P02";
/// `lock_not_available`.
pub const LOCK_NOT_AVAILABLE: &str = "55P03";

// Class 57: operator intervention

/// `query_canceled`.
pub const QUERY_CANCELED: &str = "57014";
/// `admin_shutdown`.
pub const ADMIN_SHUTDOWN: &str = "57P01";
/// `cannot_connect_now`.
pub const CANNOT_CONNECT_NOW: &str = "57P03";
/// `idle_session_timeout`.
pub const IDLE_SESSION_TIMEOUT: &str = "57P05";

// Class 58: system error (errors external to postgresql itself)

/// `system_error`.
pub const SYSTEM_ERROR: &str = "58000";
/// `io_error`.
pub const IO_ERROR: &str = "58030";
/// `undefined_file`.
pub const UNDEFINED_FILE: &str = "58P01";

// Class HV: foreign data wrapper error (SQL/MED)

/// `fdw_error`.
pub const FDW_ERROR: &str = "HV000";
/// `fdw_invalid_option_name`.
pub const FDW_INVALID_OPTION_NAME: &str = "HV00D";
/// `fdw_option_name_not_found`.
pub const FDW_OPTION_NAME_NOT_FOUND: &str = "HV00J";
/// `fdw_schema_not_found`.
pub const FDW_SCHEMA_NOT_FOUND: &str = "HV00Q";
/// `fdw_table_not_found`.
pub const FDW_TABLE_NOT_FOUND: &str = "HV00R";

// Class P0: pl/pgsql error

/// `raise_exception`.
pub const RAISE_EXCEPTION: &str = "P0001";

// Class XX: internal error

/// `internal_error`.
pub const INTERNAL_ERROR: &str = "XX000";
/// `data_corrupted`.
pub const DATA_CORRUPTED: &str = "XX001";
