//! `timewrap`: periods of a `timechart` side by side. Its columns depend on the rows, so it changes the answer behind the plan.
//!
//! [`Timewrap`] is found in a statement whose last command it is. The plan is the one of the commands before; [`Timewrap::table`] lays the
//! rows of its answer side by side.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Datelike, Duration, Months, NaiveDate, NaiveDateTime, NaiveTime};
use millrace_sql::error::{Result, SqlError};
use serde_json::{Value, json};
use sqlparser::ast;

use super::{syntax, times};
use crate::ast::{CommandKind, Pipeline, PipelineSource, SearchCondition, SpanUnit, TimeBound};
use crate::command::{TimewrapAlign, TimewrapCommand, TimewrapSeries};

/// Most columns of an answer.
const MAX_COLUMNS: usize = 1_000;
/// Column of the time.
const TIME: &str = "@timestamp";
/// Form of times in an answer.
const SHOWN: &str = "%Y-%m-%d %H:%M:%S";

/// The last command of a statement, with the end of its search.
#[derive(Clone, Debug)]
pub struct Timewrap {
    command: TimewrapCommand,
    end: Option<NaiveDateTime>,
}

/// A length of periods.
#[derive(Clone, Copy, Debug)]
enum Period {
    Seconds(i64),
    Months(i64),
}

impl Timewrap {
    /// Finds the command at the end of a pipeline; `None` where there is another.
    ///
    /// # Errors
    /// No `timechart` without `by` stands before it, or its length has parts of units.
    pub(super) fn find(pipeline: &Pipeline, now_ms: i64) -> Result<Option<Self>> {
        let Some((last, before)) = pipeline.commands.split_last() else { return Ok(None) };
        let CommandKind::Timewrap(command) = &last.kind else { return Ok(None) };
        match before.last().map(|command| &command.kind) {
            Some(CommandKind::Timechart(chart)) if chart.by.is_none() => {}
            _ => {
                return Err(SqlError::Semantic(
                    "timewrap has to follow a timechart without a field behind by".to_owned(),
                ));
            }
        }
        super::spans::whole(&command.length)?;
        let now = DateTime::from_timestamp_millis(now_ms).unwrap_or_default().naive_utc();
        let end = match command.align {
            TimewrapAlign::Now => Some(now),
            TimewrapAlign::End => end_of(pipeline, now_ms),
        };
        Ok(Some(Self { command: command.clone(), end }))
    }

    /// Lays the rows of an answer of the format jdbc side by side.
    ///
    /// # Errors
    /// The answer has no times, or too many periods.
    pub fn table(&self, table: &Value) -> Result<Value> {
        let empty = Vec::new();
        let schema = table["schema"].as_array().unwrap_or(&empty);
        let rows = table["datarows"].as_array().unwrap_or(&empty);
        let Some((time, values)) = schema.split_first() else {
            return Err(SqlError::Semantic("timewrap needs a column of times".to_owned()));
        };
        let read = |row: &Value| {
            let text = row.get(0).and_then(Value::as_str)?;
            NaiveDateTime::parse_from_str(text, &format!("{SHOWN}%.f")).ok()
        };
        let times: Vec<Option<NaiveDateTime>> = rows.iter().map(read).collect();
        let Some(last) = times.iter().flatten().max().copied() else {
            return Ok(json!({"schema": [time], "datarows": [], "total": 0, "size": 0, "status": 200}));
        };
        let period = self.period();
        let current = period.number(last);
        let later = self.end.map_or(0, |end| period.between(last, end));
        let mut cells: BTreeMap<NaiveDateTime, BTreeMap<i64, &Value>> = BTreeMap::new();
        let mut numbers: BTreeSet<i64> = BTreeSet::new();
        for (at, row) in times.iter().zip(rows) {
            let Some(at) = at else { continue };
            let number = period.number(*at);
            let shown = period.start(current).checked_add_signed(*at - period.start(number)).unwrap_or(*at);
            numbers.insert(number);
            cells.entry(shown).or_default().insert(number, row);
        }
        if numbers.len().saturating_mul(values.len()) > MAX_COLUMNS {
            return Err(SqlError::TooLarge(format!("timewrap makes more than {MAX_COLUMNS} columns")));
        }
        let mut columns = vec![time.clone()];
        for number in &numbers {
            for value in values {
                let name = value["name"].as_str().unwrap_or_default();
                let name = self.name(name, current - number + later, period.start(*number));
                columns.push(json!({"name": name, "type": value["type"]}));
            }
        }
        let mut wrapped = Vec::with_capacity(cells.len());
        for (shown, own) in &cells {
            let mut row = vec![json!(shown.format(SHOWN).to_string())];
            for number in &numbers {
                for at in 0..values.len() {
                    row.push(own.get(number).and_then(|row| row.get(at + 1)).cloned().unwrap_or_default());
                }
            }
            wrapped.push(Value::Array(row));
        }
        let size = wrapped.len();
        Ok(json!({"schema": columns, "datarows": wrapped, "total": size, "size": size, "status": 200}))
    }

    fn period(&self) -> Period {
        let count = (self.command.length.count as i64).max(1);
        match self.command.length.unit.unwrap_or(SpanUnit::Second) {
            SpanUnit::Minute => Period::Seconds(60 * count),
            SpanUnit::Hour => Period::Seconds(3_600 * count),
            SpanUnit::Day => Period::Seconds(86_400 * count),
            SpanUnit::Week => Period::Seconds(604_800 * count),
            SpanUnit::Month => Period::Months(count),
            SpanUnit::Quarter => Period::Months(3 * count),
            SpanUnit::Year => Period::Months(12 * count),
            _ => Period::Seconds(count),
        }
    }

    /// Names a value of the period that lies so many periods back.
    fn name(&self, value: &str, back: i64, start: NaiveDateTime) -> String {
        let unit = match self.command.length.unit.unwrap_or(SpanUnit::Second) {
            SpanUnit::Minute => "minute",
            SpanUnit::Hour => "hour",
            SpanUnit::Day => "day",
            SpanUnit::Week => "week",
            SpanUnit::Month => "month",
            SpanUnit::Quarter => "quarter",
            SpanUnit::Year => "year",
            _ => "second",
        };
        match self.command.series {
            TimewrapSeries::Short => format!("{value}_s{back}"),
            TimewrapSeries::Exact => {
                let format = self.command.time_format.as_deref().unwrap_or("%Y-%m-%d");
                format!("{value}_{}", shown_in(start, format))
            }
            TimewrapSeries::Relative if back == 0 => format!("{value}_latest_{unit}"),
            TimewrapSeries::Relative => {
                let units = back.saturating_mul((self.command.length.count as i64).max(1));
                let plural = if units == 1 { "" } else { "s" };
                format!("{value}_{units}{unit}{plural}_before")
            }
        }
    }
}

/// Writes a time in a format of `strftime`; as a date where the format has a letter that stands for nothing.
fn shown_in(at: NaiveDateTime, format: &str) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    match write!(out, "{}", at.format(format)) {
        Ok(()) => out,
        Err(_) => at.format("%Y-%m-%d").to_string(),
    }
}

/// The day that periods of seconds are counted from, a Monday.
fn origin() -> NaiveDateTime {
    NaiveDate::from_ymd_opt(1969, 12, 29).unwrap_or_default().and_time(NaiveTime::MIN)
}

impl Period {
    /// Returns the number of the period that a time is in.
    fn number(self, at: NaiveDateTime) -> i64 {
        match self {
            Self::Seconds(length) => (at - origin()).num_seconds().div_euclid(length),
            Self::Months(length) => months(at).div_euclid(length),
        }
    }

    /// Returns the start of a period.
    fn start(self, number: i64) -> NaiveDateTime {
        match self {
            Self::Seconds(length) => {
                let moved = Duration::try_seconds(number.saturating_mul(length))
                    .and_then(|seconds| origin().checked_add_signed(seconds));
                moved.unwrap_or_else(origin)
            }
            Self::Months(length) => {
                let months = u32::try_from(number.saturating_mul(length).unsigned_abs()).unwrap_or(u32::MAX);
                let first = NaiveDate::from_ymd_opt(1970, 1, 1).unwrap_or_default().and_time(NaiveTime::MIN);
                let moved = match number < 0 {
                    true => first.checked_sub_months(Months::new(months)),
                    false => first.checked_add_months(Months::new(months)),
                };
                moved.unwrap_or(first)
            }
        }
    }

    /// Returns the whole periods between two times.
    fn between(self, from: NaiveDateTime, to: NaiveDateTime) -> i64 {
        let whole = match self {
            Self::Seconds(length) => (to - from).num_seconds().div_euclid(length),
            Self::Months(length) => {
                let is_short = (to.day(), to.time()) < (from.day(), from.time());
                (months(to) - months(from) - i64::from(is_short)).div_euclid(length)
            }
        };
        whole.max(0)
    }
}

/// Returns the months since 1970.
fn months(at: NaiveDateTime) -> i64 {
    (i64::from(at.year()) - 1970) * 12 + i64::from(at.month0())
}

/// Finds the last time that a pipeline reads, where its conditions tell it.
fn end_of(pipeline: &Pipeline, now_ms: i64) -> Option<NaiveDateTime> {
    let mut ends: Vec<NaiveDateTime> = Vec::new();
    if let PipelineSource::Search(search) = &pipeline.source {
        let mut open: Vec<&SearchCondition> = search.condition.iter().collect();
        while let Some(condition) = open.pop() {
            match condition {
                SearchCondition::And(parts) => open.extend(parts),
                SearchCondition::Time(modifier) if modifier.bound == TimeBound::Latest => {
                    ends.extend(times::instant(&modifier.value, now_ms).ok());
                }
                _ => {}
            }
        }
    }
    for command in &pipeline.commands {
        let CommandKind::Where(own) = &command.kind else { continue };
        let mut open = vec![&own.condition.expr];
        while let Some(condition) = open.pop() {
            match condition {
                ast::Expr::Nested(inner) => open.push(inner),
                ast::Expr::BinaryOp { left, op: ast::BinaryOperator::And, right } => {
                    open.extend([left.as_ref(), right.as_ref()]);
                }
                ast::Expr::BinaryOp {
                    left,
                    op: ast::BinaryOperator::Lt | ast::BinaryOperator::LtEq,
                    right,
                } if syntax::path(left).as_deref() == Some(TIME) => {
                    ends.extend(
                        spelt(right).and_then(|text| {
                            times::instant(&crate::parser::time_of_text(&text), now_ms).ok()
                        }),
                    );
                }
                _ => {}
            }
        }
    }
    ends.into_iter().min()
}

/// Returns the text of a literal.
fn spelt(expr: &ast::Expr) -> Option<String> {
    match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        ast::Expr::TypedString(typed) => match &typed.value.value {
            ast::Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        ast::Expr::Function(call) => match super::functions::arguments(call).as_slice() {
            [argument] => spelt(argument),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, rows: Value) -> Value {
        let query = crate::parse(text).unwrap();
        let wrap = Timewrap::find(&query.pipeline, 1_800_000_000_000).unwrap().unwrap();
        let schema = json!([{"name": "@timestamp", "type": "timestamp"}, {"name": "n", "type": "bigint"}]);
        wrap.table(&json!({"schema": schema, "datarows": rows})).unwrap()
    }

    #[test]
    fn periods_lie_side_by_side() {
        let rows =
            json!([["2024-07-01 00:00:00", 1], ["2024-07-01 12:00:00", 2], ["2024-07-02 00:00:00", 3]]);
        let table = wrapped("source=a | timechart span=12h count() | timewrap 1day", rows.clone());
        let names: Vec<&str> =
            table["schema"].as_array().unwrap().iter().filter_map(|column| column["name"].as_str()).collect();
        assert_eq!(names, ["@timestamp", "n_1day_before", "n_latest_day"]);
        assert_eq!(
            table["datarows"],
            json!([["2024-07-02 00:00:00", 1, 3], ["2024-07-02 12:00:00", 2, null]])
        );
        // The search ends two days behind the last row.
        let text = "source=a | where @timestamp <= '2024-07-04 06:00:00' | timechart span=12h count() | timewrap 1day";
        assert_eq!(wrapped(text, rows)["schema"][2]["name"], "n_2days_before");
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        let rows = json!([["2024-01-15 00:00:00", 1], ["2024-04-15 00:00:00", 2]]);
        let table = wrapped("source=a | timechart span=1d count() | timewrap 1quarter series=short", rows);
        assert_eq!(table["datarows"], json!([["2024-04-15 00:00:00", 1, 2]]));
        assert_eq!(table["schema"][1]["name"], "n_s1");
    }
}
