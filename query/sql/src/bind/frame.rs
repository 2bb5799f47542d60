//! Frames of windows: ROWS, GROUPS and RANGE with their bounds.

use datafusion::logical_expr::{
    Expr, SortExpr, WindowFrame, WindowFrameBound as FrameBound, WindowFrameUnits as Units, cast,
};
use datafusion::scalar::ScalarValue;
use sqlparser::ast;

use super::{Binder, ExpressionContext, Literal, Scope, unsupported};
use crate::error::{Result, SqlError};
use crate::functions;
use crate::types::{SqlType, TIMESTAMP};

impl Binder<'_> {
    /// Binds the frame of a window over an order, whose keys have `types`.
    pub(super) fn frame(
        &mut self,
        frame: Option<&ast::WindowFrame>,
        order_by: &mut Vec<SortExpr>,
        types: &[SqlType],
        scope: &mut Scope,
    ) -> Result<WindowFrame> {
        let Some(frame) = frame else {
            return Ok(WindowFrame::new((!order_by.is_empty()).then_some(false)));
        };
        let invalid =
            |what: &str| Err(SqlError::Semantic(format!("the frame of a window is invalid: {what}")));
        let units = match frame.units {
            ast::WindowFrameUnits::Rows => Units::Rows,
            ast::WindowFrameUnits::Groups => Units::Groups,
            ast::WindowFrameUnits::Range => Units::Range,
        };
        if units == Units::Groups && order_by.is_empty() {
            return invalid("GROUPS needs ORDER BY");
        }
        let end = frame.end_bound.as_ref().unwrap_or(&ast::WindowFrameBound::CurrentRow);
        let mut key = None;
        if units == Units::Range && (has_offset(&frame.start_bound) || has_offset(end)) {
            let ([sort], [ty]) = (order_by.as_mut_slice(), types) else {
                return invalid("an offset of RANGE needs ORDER BY with one key");
            };
            key = Some(range_key(sort, *ty)?);
        }
        let start = self.frame_bound(&frame.start_bound, key, scope)?;
        let end = self.frame_bound(end, key, scope)?;
        let ordered = match (&start, &end) {
            (FrameBound::Following(offset), _) | (_, FrameBound::Preceding(offset)) if offset.is_null() => {
                false
            }
            (start, _) if start.is_unbounded() => true,
            (_, end) if end.is_unbounded() => true,
            (FrameBound::Preceding(from), FrameBound::Preceding(to)) => from >= to,
            (FrameBound::Following(from), FrameBound::Following(to)) => from <= to,
            (FrameBound::CurrentRow, FrameBound::Preceding(_))
            | (FrameBound::Following(_), FrameBound::CurrentRow | FrameBound::Preceding(_)) => false,
            _ => true,
        };
        if !ordered {
            return invalid("it ends before it begins");
        }
        let frame = WindowFrame::new_bounds(units, start, end);
        frame.regularize_order_bys(order_by)?;
        Ok(frame)
    }

    /// Binds a bound; `key` is the type of the key that the offset of a RANGE is added to.
    fn frame_bound(
        &mut self,
        bound: &ast::WindowFrameBound,
        key: Option<SqlType>,
        scope: &mut Scope,
    ) -> Result<FrameBound> {
        let (make, offset): (fn(ScalarValue) -> FrameBound, _) = match bound {
            ast::WindowFrameBound::CurrentRow => return Ok(FrameBound::CurrentRow),
            ast::WindowFrameBound::Preceding(offset) => (FrameBound::Preceding, offset),
            ast::WindowFrameBound::Following(offset) => (FrameBound::Following, offset),
        };
        let Some(offset) = offset else { return Ok(make(ScalarValue::UInt64(None))) };
        let wrong = |wanted: &str| {
            Err(SqlError::Semantic(format!("the offset of [{bound}] has to be a literal, {wanted}")))
        };
        let offset = self.expr(offset, scope, ExpressionContext::Row)?;
        let is_interval = key == Some(TIMESTAMP);
        let offset = if is_interval { offset } else { self.spelt_out(offset, Literal::Int(1)) };
        let value = match (key, &offset.literal, &offset.expr) {
            (None, Some(Literal::Int(rows)), _) if *rows >= 0 => {
                ScalarValue::UInt64(u64::try_from(*rows).ok())
            }
            (None, ..) => return wrong("an integer that is not negative"),
            (Some(SqlType::Long), Some(Literal::Int(offset)), _) if *offset >= 0 => {
                ScalarValue::Int64(Some(*offset))
            }
            (Some(SqlType::Long), ..) => return wrong("an integer that is not negative"),
            (Some(SqlType::Double), Some(Literal::Int(offset)), _) if *offset >= 0 => {
                ScalarValue::Float64(Some(*offset as f64))
            }
            (Some(SqlType::Double), Some(Literal::Float(offset)), _) if *offset >= 0.0 => {
                ScalarValue::Float64(Some(*offset))
            }
            (Some(SqlType::Double), ..) => return wrong("a number that is not negative"),
            (_, _, Expr::Literal(value @ ScalarValue::IntervalMonthDayNano(Some(span)), _))
                if span.months >= 0 && span.days >= 0 && span.nanoseconds >= 0 =>
            {
                value.clone()
            }
            _ => return wrong("an INTERVAL that is not negative"),
        };
        Ok(make(value))
    }
}

fn has_offset(bound: &ast::WindowFrameBound) -> bool {
    matches!(bound, ast::WindowFrameBound::Preceding(Some(_)) | ast::WindowFrameBound::Following(Some(_)))
}

/// Makes the key of an order one that the offsets of a RANGE are added to; returns its type: long, double or timestamp.
fn range_key(sort: &mut SortExpr, ty: SqlType) -> Result<SqlType> {
    let wider = match ty {
        SqlType::Byte | SqlType::Short | SqlType::Integer => SqlType::Long,
        SqlType::Float => SqlType::Double,
        SqlType::Date => {
            sort.expr = functions::convert(&super::Bound::new(sort.expr.clone(), ty), TIMESTAMP)?;
            return Ok(TIMESTAMP);
        }
        SqlType::Timestamp(_) => return Ok(TIMESTAMP),
        SqlType::Long | SqlType::Double => return Ok(ty),
        other => {
            return unsupported(format!("a RANGE with an offset over the type {}", other.general_name()));
        }
    };
    sort.expr = cast(sort.expr.clone(), wider.arrow());
    Ok(wider)
}
