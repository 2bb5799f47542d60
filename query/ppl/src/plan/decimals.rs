//! Sums, differences and products of decimal literals, which are exact: `0.06 + 0.01` is `0.07`.

use sqlparser::ast;

use super::syntax;

/// Most digits of a literal; products of two fit a 128-bit integer.
const MAX_DIGITS: usize = 18;

/// A decimal number: `digits` divided by ten to the power of `scale`.
#[derive(Clone, Copy)]
struct Decimal {
    digits: i128,
    scale: u32,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let count = whole.len() + fraction.len();
        if count == 0 || count > MAX_DIGITS || !text.bytes().all(|c| c == b'.' || c.is_ascii_digit()) {
            return None;
        }
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some(Self { digits, scale: u32::try_from(fraction.len()).ok()? })
    }

    /// Reads a literal, in parentheses or not.
    fn from_literal(expr: &ast::Expr) -> Option<Self> {
        match expr {
            ast::Expr::Nested(inner) => Self::from_literal(inner),
            ast::Expr::Value(value) => match &value.value {
                ast::Value::Number(text, _) => Self::parse(text),
                _ => None,
            },
            _ => None,
        }
    }

    fn at_scale(self, scale: u32) -> Option<i128> {
        self.digits.checked_mul(10_i128.checked_pow(scale.checked_sub(self.scale)?)?)
    }

    fn text(self) -> String {
        let scale = self.scale as usize;
        let digits = format!("{:0>width$}", self.digits, width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len().saturating_sub(scale));
        format!("{whole}.{fraction}")
    }
}

/// Computes an operation of two literals, one of which has a fraction; `None` for any other expression, and where the result is
/// negative or long.
pub(super) fn folded(expr: &ast::Expr) -> Option<ast::Expr> {
    let ast::Expr::BinaryOp { left, op, right } = expr else { return None };
    let (left, right) = (Decimal::from_literal(left)?, Decimal::from_literal(right)?);
    let scale = left.scale.max(right.scale);
    let aligned = || Some((left.at_scale(scale)?, right.at_scale(scale)?));
    let (digits, scale) = match op {
        ast::BinaryOperator::Plus => (aligned().and_then(|(left, right)| left.checked_add(right))?, scale),
        ast::BinaryOperator::Minus => (aligned().and_then(|(left, right)| left.checked_sub(right))?, scale),
        ast::BinaryOperator::Multiply => {
            (left.digits.checked_mul(right.digits)?, left.scale.checked_add(right.scale)?)
        }
        _ => return None,
    };
    (scale > 0 && digits >= 0).then(|| syntax::number(Decimal { digits, scale }.text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        let number = |text: &str| Box::new(syntax::number(text));
        for (left, op, right, expected) in [
            (".06", ast::BinaryOperator::Plus, "0.01", Some("0.07")),
            ("0.06", ast::BinaryOperator::Minus, ".01", Some("0.05")),
            ("0.1", ast::BinaryOperator::Plus, "0.2", Some("0.3")),
            ("0.5", ast::BinaryOperator::Plus, "0.5", Some("1.0")),
            ("1.1", ast::BinaryOperator::Multiply, "3", Some("3.3")),
            ("1", ast::BinaryOperator::Plus, "2", None),
            ("0.1", ast::BinaryOperator::Minus, "0.2", None),
            ("1.0", ast::BinaryOperator::Divide, "3.0", None),
            ("1e3", ast::BinaryOperator::Plus, "0.1", None),
            ("123456789012345678.9", ast::BinaryOperator::Plus, "0.1", None),
        ] {
            let expr = ast::Expr::BinaryOp { left: number(left), op, right: number(right) };
            assert_eq!(folded(&expr).map(|expr| expr.to_string()).as_deref(), expected, "{expr}");
        }
    }
}
