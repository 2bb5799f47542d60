//! Date math of queries: an anchor (`now`, or a date before `||`), then steps such as `+1M`, `-7d`, `/w`.

use super::{DateFormat, Instant, calendar};

const MILLI: i128 = 1_000_000;
const DAY: i128 = 86_400_000 * MILLI;

/// Evaluates an expression.
pub(super) fn evaluate(
    format: &DateFormat,
    text: &str,
    now: Instant,
    round_up: bool,
) -> Result<Instant, String> {
    if let Some(steps) = text.strip_prefix("now") {
        return apply(now, steps, round_up);
    }
    let unreadable =
        |part: &str| format!("failed to parse date field [{part}] with format [{}]", format.as_str());
    match text.split_once("||") {
        None => format.read(text, round_up).ok_or_else(|| unreadable(text)),
        Some((anchor, steps)) => {
            let anchor = format.read(anchor, false).ok_or_else(|| unreadable(anchor))?;
            apply(anchor, steps, round_up)
        }
    }
}

fn apply(anchor: Instant, steps: &str, round_up: bool) -> Result<Instant, String> {
    let mut at = anchor;
    let bytes = steps.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let (round, sign) = match bytes[i] {
            b'/' => (true, 1i64),
            b'+' => (false, 1),
            b'-' => (false, -1),
            _ => return Err(format!("operator not supported for date math [{steps}]")),
        };
        i += 1;
        let start = i;
        while i < bytes.len() && bytes[i].is_ascii_digit() {
            i += 1;
        }
        let amount = if start == i {
            1
        } else {
            steps[start..i].parse::<i64>().map_err(|_| format!("truncated date math [{steps}]"))?
        };
        if round && start != i && amount != 1 {
            return Err(format!("rounding `/` can only be used on single unit types [{steps}]"));
        }
        let Some(&unit) = bytes.get(i) else {
            return Err(format!("truncated date math [{steps}]"));
        };
        i += 1;
        let next = if round {
            round_to(at, unit, round_up)
        } else {
            amount.checked_mul(sign).and_then(|amount| add(at, unit, amount))
        };
        at = next.ok_or_else(|| match unit {
            b'y' | b'M' | b'w' | b'd' | b'h' | b'H' | b'm' | b's' => {
                format!("date math [{steps}] leaves the range of dates")
            }
            _ => format!(
                "unit [{}] not supported for date math [{steps}]",
                steps.get(i - 1..).and_then(|rest| rest.chars().next()).unwrap_or('?')
            ),
        })?;
    }
    Ok(at)
}

/// Instants that date math may reach: nine-digit years.
fn bounded(nanos: i128) -> Option<Instant> {
    (nanos.unsigned_abs() < 366u128 * 1_000_000_000 * DAY.unsigned_abs()).then_some(Instant(nanos))
}

fn add(at: Instant, unit: u8, amount: i64) -> Option<Instant> {
    let months = match unit {
        b'y' => amount.checked_mul(12)?,
        b'M' => amount,
        _ => {
            let length = match unit {
                b'w' => 7 * DAY,
                b'd' => DAY,
                b'h' | b'H' => DAY / 24,
                b'm' => DAY / 1440,
                b's' => 1000 * MILLI,
                _ => return None,
            };
            return bounded(at.0.checked_add(length.checked_mul(i128::from(amount))?)?);
        }
    };
    let days = i64::try_from(at.0.div_euclid(DAY)).ok()?;
    let (year, month, day) = calendar::civil_from_days(days);
    let total = year.checked_mul(12)?.checked_add(i64::from(month) - 1)?.checked_add(months)?;
    let (year, month) = (total.div_euclid(12), total.rem_euclid(12) as u32 + 1);
    if year.abs() > 999_999_999 {
        return None;
    }
    let day = day.min(calendar::days_in_month(year, month));
    bounded(i128::from(calendar::days_from_civil(year, month, day)) * DAY + at.0.rem_euclid(DAY))
}

fn round_to(at: Instant, unit: u8, round_up: bool) -> Option<Instant> {
    let days = i64::try_from(at.0.div_euclid(DAY)).ok()?;
    let (year, month, _) = calendar::civil_from_days(days);
    let floor = match unit {
        b'y' => i128::from(calendar::days_from_civil(year, 1, 1)) * DAY,
        b'M' => i128::from(calendar::days_from_civil(year, month, 1)) * DAY,
        b'w' => i128::from(days - i64::from(calendar::iso_weekday(days)) + 1) * DAY,
        b'd' => i128::from(days) * DAY,
        b'h' | b'H' => at.0.div_euclid(DAY / 24) * (DAY / 24),
        b'm' => at.0.div_euclid(DAY / 1440) * (DAY / 1440),
        b's' => at.0.div_euclid(1000 * MILLI) * 1000 * MILLI,
        _ => return None,
    };
    if !round_up {
        return bounded(floor);
    }
    add(Instant(floor), unit, 1).and_then(|next| bounded(next.0 - 1))
}
