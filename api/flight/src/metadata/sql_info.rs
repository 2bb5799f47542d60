//! Abilities of the server and its SQL, as `GetSqlInfo` lists them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{
    CommandGetSqlInfo, SqlInfo, SqlNullOrdering, SqlOuterJoinsSupportLevel, SqlSupportedCaseSensitivity,
    SqlSupportedGroupBy, SqlSupportedResultSetConcurrency, SqlSupportedResultSetType,
    SqlSupportedTransaction, SqlTransactionIsolationLevel, SupportedSqlGrammar,
};
use datafusion::arrow::array::RecordBatch;
use tonic::Status;

use crate::limits::MAX_STATEMENT;
use crate::status;

/// Version of the Arrow format that is spoken.
const ARROW_VERSION: &str = "1.5";
/// Words of statements beyond those of SQL:2003.
const KEYWORDS: &[&str] = &["DESCRIBE", "EXPLAIN", "LIMIT", "OFFSET", "REGEXP", "RLIKE", "SHOW", "TABLES"];
const NUMERIC: &[&str] = &[
    "abs", "acos", "asin", "atan", "atan2", "cbrt", "ceil", "ceiling", "conv", "cos", "cosh", "cot", "crc32",
    "degrees", "e", "exp", "expm1", "floor", "ln", "log", "log10", "log2", "pi", "pow", "power", "radians",
    "rand", "rint", "round", "sign", "signum", "sin", "sinh", "sqrt", "tan", "tanh", "truncate",
];
const STRING: &[&str] = &[
    "ascii",
    "char_length",
    "character_length",
    "concat",
    "concat_ws",
    "lcase",
    "left",
    "length",
    "locate",
    "lower",
    "ltrim",
    "octet_length",
    "position",
    "regexp",
    "replace",
    "reverse",
    "right",
    "rtrim",
    "strcmp",
    "substr",
    "substring",
    "trim",
    "ucase",
    "upper",
];
const DATETIME: &[&str] = &[
    "adddate",
    "addtime",
    "convert_tz",
    "curdate",
    "current_date",
    "current_time",
    "current_timestamp",
    "curtime",
    "date",
    "date_add",
    "date_format",
    "date_sub",
    "datediff",
    "datetime",
    "day",
    "dayname",
    "dayofmonth",
    "dayofweek",
    "dayofyear",
    "extract",
    "from_days",
    "from_unixtime",
    "get_format",
    "hour",
    "last_day",
    "localtime",
    "localtimestamp",
    "makedate",
    "maketime",
    "microsecond",
    "minute",
    "month",
    "monthname",
    "now",
    "period_add",
    "period_diff",
    "quarter",
    "sec_to_time",
    "second",
    "str_to_date",
    "subdate",
    "subtime",
    "sysdate",
    "time",
    "time_format",
    "time_to_sec",
    "timediff",
    "timestamp",
    "timestampadd",
    "timestampdiff",
    "to_days",
    "to_seconds",
    "unix_timestamp",
    "utc_date",
    "utc_time",
    "utc_timestamp",
    "week",
    "weekday",
    "year",
    "yearweek",
];

/// Returns all information.
pub(super) fn data() -> Result<&'static SqlInfoData, Status> {
    static DATA: OnceLock<Option<SqlInfoData>> = OnceLock::new();
    let data = DATA.get_or_init(|| build().ok());
    data.as_ref().ok_or_else(|| status::internal(&"what the server can do cannot be told"))
}

/// Returns the information of a command; all of it where it asks for nothing. What is not known is left out.
pub(super) fn asked(mut command: CommandGetSqlInfo) -> Result<RecordBatch, Status> {
    let data = data()?;
    if !command.info.is_empty() {
        // Each takes a look at all there is, and a command has room for half a million.
        command
            .info
            .retain(|number| i32::try_from(*number).is_ok_and(|number| SqlInfo::try_from(number).is_ok()));
        command.info.sort_unstable();
        command.info.dedup();
        if command.info.is_empty() {
            return Ok(RecordBatch::new_empty(data.schema()));
        }
    }
    command.into_builder(data).build().map_err(|error| status::internal(&error))
}

/// Returns the bits of what is supported.
fn bits(supported: &[i32]) -> i32 {
    supported.iter().fold(0, |bits, place| bits | 1 << place)
}

fn build() -> Result<SqlInfoData, impl std::fmt::Display> {
    use SqlInfo as I;
    let mut data = SqlInfoDataBuilder::new();
    data.append(I::FlightSqlServerName, "Millrace");
    data.append(I::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    data.append(I::FlightSqlServerArrowVersion, ARROW_VERSION);
    for (info, word) in [
        (I::SqlIdentifierQuoteChar, "`"),
        // Of LIKE.
        (I::SqlSearchStringEscape, "\\"),
        (I::SqlExtraNameCharacters, "-.*"),
        (I::SqlSchemaTerm, "schema"),
        (I::SqlProcedureTerm, "procedure"),
        (I::SqlCatalogTerm, "cluster"),
    ] {
        data.append(info, word);
    }
    for (info, holds) in [
        // DELETE, and ingestion.
        (I::FlightSqlServerReadOnly, false),
        (I::FlightSqlServerSql, true),
        (I::FlightSqlServerSubstrait, false),
        (I::FlightSqlServerCancel, true),
        (I::FlightSqlServerBulkIngestion, true),
        (I::FlightSqlServerIngestTransactionsSupported, false),
        (I::SqlDdlCatalog, false),
        (I::SqlDdlSchema, false),
        (I::SqlDdlTable, false),
        (I::SqlAllTablesAreSelectable, true),
        (I::SqlSupportsColumnAliasing, true),
        (I::SqlNullPlusNullIsNull, true),
        (I::SqlSupportsTableCorrelationNames, true),
        (I::SqlSupportsDifferentTableCorrelationNames, false),
        (I::SqlSupportsExpressionsInOrderBy, true),
        (I::SqlSupportsOrderByUnrelated, true),
        (I::SqlSupportsLikeEscapeClause, false),
        (I::SqlSupportsNonNullableColumns, false),
        (I::SqlSupportsIntegrityEnhancementFacility, false),
        (I::SqlCatalogAtStart, false),
        (I::SqlSelectForUpdateSupported, false),
        (I::SqlStoredProceduresSupported, false),
        (I::SqlCorrelatedSubqueriesSupported, false),
        (I::SqlMaxRowSizeIncludesBlobs, true),
        (I::SqlTransactionsSupported, false),
        (I::SqlDataDefinitionCausesTransactionCommit, false),
        (I::SqlDataDefinitionsInTransactionsIgnored, false),
        (I::SqlBatchUpdatesSupported, true),
        (I::SqlSavepointsSupported, false),
        (I::SqlNamedParametersSupported, false),
        (I::SqlLocatorsUpdateCopy, false),
    ] {
        data.append(info, holds);
    }
    for (info, number) in [
        (I::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32),
        (I::FlightSqlServerStatementTimeout, 0),
        (I::FlightSqlServerTransactionTimeout, 0),
        // Names are as they were written, quoted or not.
        (I::SqlIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32),
        (I::SqlQuotedIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32),
        (I::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedAtEnd as i32),
        (I::SqlSupportedGroupBy, bits(&[SqlSupportedGroupBy::SqlGroupByUnrelated as i32])),
        (I::SqlSupportedGrammar, bits(&[SupportedSqlGrammar::SqlMinimumGrammar as i32])),
        (I::SqlAnsi92SupportedLevel, 0),
        (I::SqlOuterJoinsSupportLevel, SqlOuterJoinsSupportLevel::SqlLimitedOuterJoins as i32),
        // Names have no catalog or schema before them.
        (I::SqlSchemasSupportedActions, 0),
        (I::SqlCatalogsSupportedActions, 0),
        (I::SqlSupportedPositionedCommands, 0),
        (I::SqlSupportedSubqueries, 0),
        (I::SqlSupportedUnions, 0),
        (I::SqlDefaultTransactionIsolation, SqlTransactionIsolationLevel::SqlTransactionNone as i32),
        (I::SqlSupportedTransactionsIsolationLevels, 0),
        (
            I::SqlSupportedResultSetTypes,
            bits(&[SqlSupportedResultSetType::SqlResultSetTypeForwardOnly as i32]),
        ),
        (
            I::SqlSupportedConcurrenciesForResultSetForwardOnly,
            bits(&[SqlSupportedResultSetConcurrency::SqlResultSetConcurrencyReadOnly as i32]),
        ),
        (I::SqlSupportedConcurrenciesForResultSetUnspecified, 0),
        (I::SqlSupportedConcurrenciesForResultSetScrollSensitive, 0),
        (I::SqlSupportedConcurrenciesForResultSetScrollInsensitive, 0),
    ] {
        data.append(info, number);
    }
    for (info, most) in [
        // Those that are not bounded, or not for themselves, are 0.
        (I::SqlMaxBinaryLiteralLength, 0),
        (I::SqlMaxCharLiteralLength, 0),
        (I::SqlMaxColumnNameLength, 0),
        (I::SqlMaxColumnsInGroupBy, 0),
        (I::SqlMaxColumnsInIndex, 0),
        (I::SqlMaxColumnsInOrderBy, 0),
        (I::SqlMaxColumnsInSelect, 0),
        (I::SqlMaxColumnsInTable, 0),
        (I::SqlMaxConnections, 0),
        (I::SqlMaxCursorNameLength, 0),
        (I::SqlMaxIndexLength, 0),
        (I::SqlDbSchemaNameLength, 0),
        (I::SqlMaxProcedureNameLength, 0),
        (I::SqlMaxCatalogNameLength, 0),
        (I::SqlMaxRowSize, crate::wire::MAX_MESSAGE as i64),
        (I::SqlMaxStatementLength, MAX_STATEMENT as i64),
        (I::SqlMaxStatements, 0),
        (I::SqlMaxTableNameLength, 255),
        (I::SqlMaxTablesInSelect, 0),
        (I::SqlMaxUsernameLength, 0),
    ] {
        data.append(info, most);
    }
    for (info, words) in [
        (I::SqlKeywords, KEYWORDS),
        (I::SqlNumericFunctions, NUMERIC),
        (I::SqlStringFunctions, STRING),
        (I::SqlSystemFunctions, &["ifnull", "isnull", "nullif", "typeof"]),
        (I::SqlDatetimeFunctions, DATETIME),
    ] {
        data.append(info, words);
    }
    data.append(I::SqlSupportsConvert, BTreeMap::<i32, Vec<i32>>::new());
    data.build()
}
