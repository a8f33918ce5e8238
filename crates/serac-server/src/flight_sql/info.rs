//! The server's abilities and its types.

use super::FlightSqlOptions;
use super::status::of_flight;
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo, SqlNullOrdering, SqlOuterJoinsSupportLevel, SqlSupportedCaseSensitivity,
    SqlSupportedGroupBy, SqlSupportedResultSetType, SqlSupportedSubqueries, SqlSupportedTransaction,
    SqlSupportedUnions, SqlTransactionIsolationLevel, SupportedSqlGrammar, XdbcDataType, XdbcDatetimeSubcode,
};
use tonic::Status;

/// The version of Arrow whose types are sent.
const ARROW_VERSION: &str = "59.3";

/// A set of values of an enumeration as bits.
fn bits(values: impl IntoIterator<Item = i32>) -> i32 {
    values.into_iter().fold(0, |all, value| all | 1 << value)
}

pub(super) fn sql_info(options: &FlightSqlOptions) -> Result<SqlInfoData, Status> {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "SeracDB");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, ARROW_VERSION);
    info.append(SqlInfo::FlightSqlServerReadOnly, false);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::Savepoint as i32);
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    info.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, true);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, 0);
    let milliseconds = i32::try_from(options.transaction_timeout.as_millis()).unwrap_or(i32::MAX);
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, milliseconds);
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, true);
    info.append(SqlInfo::SqlDdlTable, true);
    info.append(SqlInfo::SqlIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(
        SqlInfo::SqlQuotedIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i32,
    );
    info.append(SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i32);
    info.append(SqlInfo::SqlSearchStringEscape, "\\");
    info.append(SqlInfo::SqlExtraNameCharacters, "");
    info.append(SqlInfo::SqlSupportsColumnAliasing, true);
    info.append(SqlInfo::SqlNullPlusNullIsNull, true);
    info.append(SqlInfo::SqlSupportsTableCorrelationNames, true);
    info.append(SqlInfo::SqlSupportsDifferentTableCorrelationNames, false);
    info.append(SqlInfo::SqlSupportsExpressionsInOrderBy, true);
    info.append(SqlInfo::SqlSupportsOrderByUnrelated, true);
    let group_by = [SqlSupportedGroupBy::SqlGroupByUnrelated, SqlSupportedGroupBy::SqlGroupByBeyondSelect];
    info.append(SqlInfo::SqlSupportedGroupBy, bits(group_by.map(|value| value as i32)));
    info.append(SqlInfo::SqlSupportsLikeEscapeClause, true);
    info.append(SqlInfo::SqlSupportsNonNullableColumns, true);
    let grammar = [SupportedSqlGrammar::SqlMinimumGrammar, SupportedSqlGrammar::SqlCoreGrammar];
    info.append(SqlInfo::SqlSupportedGrammar, bits(grammar.map(|value| value as i32)));
    info.append(SqlInfo::SqlSupportsIntegrityEnhancementFacility, true);
    let joins = [SqlOuterJoinsSupportLevel::SqlLimitedOuterJoins, SqlOuterJoinsSupportLevel::SqlFullOuterJoins];
    info.append(SqlInfo::SqlOuterJoinsSupportLevel, bits(joins.map(|value| value as i32)));
    info.append(SqlInfo::SqlSchemaTerm, "schema");
    info.append(SqlInfo::SqlCatalogTerm, "database");
    info.append(SqlInfo::SqlCatalogAtStart, true);
    info.append(SqlInfo::SqlSelectForUpdateSupported, true);
    info.append(SqlInfo::SqlStoredProceduresSupported, false);
    let subqueries = [
        SqlSupportedSubqueries::SqlSubqueriesInComparisons,
        SqlSupportedSubqueries::SqlSubqueriesInExists,
        SqlSupportedSubqueries::SqlSubqueriesInIns,
    ];
    info.append(SqlInfo::SqlSupportedSubqueries, bits(subqueries.map(|value| value as i32)));
    info.append(SqlInfo::SqlCorrelatedSubqueriesSupported, true);
    let unions = [SqlSupportedUnions::SqlUnion, SqlSupportedUnions::SqlUnionAll];
    info.append(SqlInfo::SqlSupportedUnions, bits(unions.map(|value| value as i32)));
    let isolation = SqlTransactionIsolationLevel::SqlTransactionRepeatableRead;
    info.append(SqlInfo::SqlDefaultTransactionIsolation, i64::from(isolation as i32));
    info.append(SqlInfo::SqlTransactionsSupported, true);
    let levels = [
        SqlTransactionIsolationLevel::SqlTransactionReadUncommitted,
        SqlTransactionIsolationLevel::SqlTransactionReadCommitted,
        SqlTransactionIsolationLevel::SqlTransactionRepeatableRead,
        SqlTransactionIsolationLevel::SqlTransactionSerializable,
    ];
    info.append(SqlInfo::SqlSupportedTransactionsIsolationLevels, bits(levels.map(|value| value as i32)));
    info.append(SqlInfo::SqlDataDefinitionCausesTransactionCommit, false);
    info.append(SqlInfo::SqlDataDefinitionsInTransactionsIgnored, false);
    let forward = SqlSupportedResultSetType::SqlResultSetTypeForwardOnly;
    info.append(SqlInfo::SqlSupportedResultSetTypes, bits([forward as i32]));
    info.append(SqlInfo::SqlBatchUpdatesSupported, true);
    info.append(SqlInfo::SqlSavepointsSupported, true);
    info.append(SqlInfo::SqlNamedParametersSupported, false);
    info.append(SqlInfo::SqlLocatorsUpdateCopy, false);
    info.build().map_err(of_flight)
}

/// The types of columns.
pub(super) fn types() -> Result<XdbcTypeInfoData, Status> {
    use XdbcDataType as Xdbc;
    let quoted = |prefix: &str| (Some(prefix.to_owned()), Some("'".to_owned()));
    let mut types = XdbcTypeInfoDataBuilder::new();
    let mut add = |name: &str, data_type: Xdbc, size: i32, more: &dyn Fn(&mut XdbcTypeInfo)| {
        let mut info = XdbcTypeInfo {
            type_name: name.into(),
            data_type,
            sql_data_type: data_type,
            column_size: Some(size),
            nullable: Nullable::NullabilityNullable,
            searchable: Searchable::Full,
            local_type_name: Some(name.into()),
            ..XdbcTypeInfo::default()
        };
        more(&mut info);
        types.append(info);
    };
    let text = |info: &mut XdbcTypeInfo| {
        (info.literal_prefix, info.literal_suffix) = quoted("'");
        info.case_sensitive = true;
    };
    let length = |info: &mut XdbcTypeInfo| {
        text(info);
        info.create_params = Some(vec!["length".into()]);
    };
    let number = |radix: i32, exact: bool| {
        move |info: &mut XdbcTypeInfo| {
            info.num_prec_radix = Some(radix);
            info.unsigned_attribute = Some(false);
            info.auto_increment = Some(false);
            if exact {
                (info.minimum_scale, info.maximum_scale) = (Some(0), Some(0));
            }
        }
    };
    let decimal = |info: &mut XdbcTypeInfo| {
        number(10, true)(info);
        info.create_params = Some(vec!["precision".into(), "scale".into()]);
        info.maximum_scale = Some(38);
    };
    let time = |prefix: &'static str, subcode: XdbcDatetimeSubcode, digits: i32| {
        move |info: &mut XdbcTypeInfo| {
            (info.literal_prefix, info.literal_suffix) = (Some(prefix.to_owned()), Some("'".to_owned()));
            info.sql_data_type = XdbcDataType::XdbcDatetime;
            info.datetime_subcode = Some(subcode);
            (info.minimum_scale, info.maximum_scale) = (Some(0), Some(digits));
        }
    };
    let bytes = |info: &mut XdbcTypeInfo| (info.literal_prefix, info.literal_suffix) = quoted("'\\x");
    let interval = |info: &mut XdbcTypeInfo| (info.literal_prefix, info.literal_suffix) = quoted("INTERVAL '");
    const LONG: i32 = i32::MAX;
    add("boolean", Xdbc::XdbcBit, 1, &|_| {});
    add("smallint", Xdbc::XdbcSmallint, 16, &number(2, true));
    add("integer", Xdbc::XdbcInteger, 32, &number(2, true));
    add("bigint", Xdbc::XdbcBigint, 64, &number(2, true));
    add("real", Xdbc::XdbcReal, 24, &number(2, false));
    add("double precision", Xdbc::XdbcDouble, 53, &number(2, false));
    add("numeric", Xdbc::XdbcNumeric, 38, &decimal);
    add("character", Xdbc::XdbcChar, LONG, &length);
    add("character varying", Xdbc::XdbcVarchar, LONG, &length);
    add("text", Xdbc::XdbcVarchar, LONG, &text);
    add("uuid", Xdbc::XdbcBinary, 16, &text);
    add("jsonb", Xdbc::XdbcVarchar, LONG, &text);
    add("bytea", Xdbc::XdbcVarbinary, LONG, &bytes);
    // The number of a date is the same as that of a year.
    add("date", Xdbc::XdbcDate, 10, &time("DATE '", XdbcDatetimeSubcode::XdbcSubcodeYear, 0));
    add("time without time zone", Xdbc::XdbcTime, 15, &time("TIME '", XdbcDatetimeSubcode::XdbcSubcodeTime, 6));
    let stamp = XdbcDatetimeSubcode::XdbcSubcodeTimestamp;
    add("timestamp without time zone", Xdbc::XdbcTimestamp, 26, &time("TIMESTAMP '", stamp, 6));
    let stamp = XdbcDatetimeSubcode::XdbcSubcodeTimestampWithTimezone;
    add("timestamp with time zone", Xdbc::XdbcTimestamp, 32, &time("TIMESTAMPTZ '", stamp, 6));
    add("interval", Xdbc::XdbcInterval, 49, &interval);
    types.build().map_err(of_flight)
}
