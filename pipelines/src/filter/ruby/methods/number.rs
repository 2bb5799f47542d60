//! Methods of numbers.

use millrace_ingest::number::{float, integer};

use super::super::interpreter::{Evaluated, Flow, Interpreter};
use super::super::syntax::Block;
use super::super::value::{RaisedError, Val};
use super::{arg, int_arg, needs_block};

/// Methods of numbers.
pub(super) const NAMES: &[&str] = &[
    "+",
    "-",
    "*",
    "/",
    "%",
    "**",
    "-@",
    "+@",
    "<=>",
    "<",
    "<=",
    ">",
    ">=",
    "==",
    "&",
    "|",
    "^",
    "~",
    "<<",
    ">>",
    "abs",
    "magnitude",
    "round",
    "floor",
    "ceil",
    "truncate",
    "to_i",
    "to_int",
    "to_f",
    "to_s",
    "to_r",
    "to_c",
    "zero?",
    "nonzero?",
    "positive?",
    "negative?",
    "even?",
    "odd?",
    "integer?",
    "finite?",
    "infinite?",
    "nan?",
    "divmod",
    "div",
    "modulo",
    "fdiv",
    "remainder",
    "pow",
    "times",
    "upto",
    "downto",
    "step",
    "chr",
    "ord",
    "pred",
    "succ",
    "next",
    "between?",
    "clamp",
    "digits",
    "gcd",
    "lcm",
    "bit_length",
    "coerce",
];

/// Returns a number at random: below 1, or below a bound, or within a range.
pub(super) fn random(bound: Option<&Val>) -> Evaluated {
    let below = |most: i64| (rand::random::<u64>() % most.unsigned_abs().max(1)) as i64;
    Ok(match bound {
        Some(Val::Int(most)) if *most != 0 => Val::Int(below(*most)),
        Some(Val::Float(most)) => Val::Float(rand::random::<f64>() * most),
        Some(Val::Range { from, to, exclusive }) => match (&**from, &**to) {
            (Val::Int(from), Val::Int(to)) if from <= to => Val::Int(
                from.saturating_add(below(to.saturating_sub(*from).saturating_add(i64::from(!exclusive)))),
            ),
            _ => return Err(RaisedError::argument("invalid argument of rand").into()),
        },
        _ => Val::Float(rand::random::<f64>()),
    })
}

/// Converts as `Integer()` does.
pub(super) fn integer_of(value: &Val, base: Option<&Val>) -> Evaluated {
    let text = match value {
        Val::Int(_) => return Ok(value.clone()),
        Val::Float(number) => return whole(number.trunc()),
        Val::Text(text) => text,
        other => {
            return Err(
                RaisedError::type_error(format!("can't convert {} into Integer", other.class())).into()
            );
        }
    };
    let trimmed = text.trim().replace('_', "");
    let (sign, digits) = match trimmed.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", trimmed.strip_prefix('+').unwrap_or(&trimmed)),
    };
    let radix = match base {
        Some(Val::Int(base)) => u32::try_from(*base).ok().filter(|base| (2..=36).contains(base)),
        _ => None,
    };
    let (radix, digits) = match (radix, digits.get(..2)) {
        (Some(radix), _) => (radix, digits.trim_start_matches("0x")),
        (None, Some("0x" | "0X")) => (16, digits.get(2..).unwrap_or_default()),
        (None, Some("0b" | "0B")) => (2, digits.get(2..).unwrap_or_default()),
        (None, _) if digits.len() > 1 && digits.starts_with('0') => (8, digits),
        (None, _) => (10, digits),
    };
    match i64::from_str_radix(&format!("{sign}{digits}"), radix) {
        Ok(number) => Ok(Val::Int(number)),
        Err(_) => Err(RaisedError::argument(format!("invalid value for Integer(): {text:?}")).into()),
    }
}

/// Converts as `Float()` does.
pub(super) fn float_of(value: &Val) -> Evaluated {
    match value {
        Val::Int(number) => Ok(Val::Float(*number as f64)),
        Val::Float(_) => Ok(value.clone()),
        Val::Text(text) => {
            let trimmed = text.trim().replace('_', "");
            let is_number = trimmed.ends_with(|last: char| last.is_ascii_digit())
                && trimmed.trim_start_matches(['-', '+']).starts_with(|first: char| first.is_ascii_digit());
            match trimmed.parse() {
                Ok(number) if is_number => Ok(Val::Float(number)),
                _ => Err(RaisedError::argument(format!("invalid value for Float(): {text:?}")).into()),
            }
        }
        other => Err(RaisedError::type_error(format!("can't convert {} into Float", other.class())).into()),
    }
}

/// Reads the number that a text begins with, as `to_i` does.
pub(super) fn leading_integer(text: &str, base: u32) -> Val {
    if base == 10 {
        let number = integer(text);
        return number.as_i64().map_or_else(|| Val::Float(number.as_f64().unwrap_or(0.0)), Val::Int);
    }
    let text = text.trim().to_lowercase();
    let (sign, digits) = text.strip_prefix('-').map_or((1, text.as_str()), |digits| (-1, digits));
    let digits = match base {
        16 => digits.strip_prefix("0x").unwrap_or(digits),
        2 => digits.strip_prefix("0b").unwrap_or(digits),
        8 => digits.strip_prefix("0o").unwrap_or(digits),
        _ => digits,
    };
    let mut number = 0_i64;
    for digit in digits.chars().map_while(|letter| letter.to_digit(base)) {
        number = number.saturating_mul(i64::from(base)).saturating_add(i64::from(digit));
    }
    Val::Int(sign * number)
}

/// Reads the number that a text begins with, as `to_f` does.
pub(super) fn leading_float(text: &str) -> Val {
    Val::Float(float(text))
}

/// Makes a whole number of one with a fraction.
fn whole(number: f64) -> Evaluated {
    if number.is_finite() && number.abs() < 9.2e18 {
        Ok(Val::Int(number as i64))
    } else {
        Err(RaisedError::new("FloatDomainError", format!("[{number}] has no whole number of 64 bits")).into())
    }
}

fn overflow() -> Flow {
    RaisedError::new("RangeError", "a whole number exceeds 64 bits").into()
}

fn operand(args: &[Val]) -> Result<&Val, RaisedError> {
    let value = arg(args, 0)?;
    match value {
        Val::Int(_) | Val::Float(_) => Ok(value),
        other => {
            let what = match other {
                Val::Nil => "nil".to_owned(),
                other => other.class().to_owned(),
            };
            Err(RaisedError::type_error(format!("{what} can't be coerced into a number")))
        }
    }
}

/// Calls a method of a number.
pub(super) fn call(
    run: &mut Interpreter<'_>,
    receiver: &Val,
    name: &'static str,
    args: &[Val],
    block: Option<&Block>,
) -> Option<Evaluated> {
    let answer = match name {
        "+" | "-" | "*" | "/" | "%" | "modulo" | "**" | "pow" | "div" | "fdiv" | "remainder" | "divmod" => {
            arithmetic(run, receiver, name, args)
        }
        "<=>" | "<" | "<=" | ">" | ">=" | "between?" | "clamp" => comparison(receiver, name, args),
        "&" | "|" | "^" | "<<" | ">>" | "~" | "gcd" | "lcm" | "digits" | "bit_length" => {
            bits(run, receiver, name, args)
        }
        "round" | "floor" | "ceil" | "truncate" => rounded(receiver, name, args),
        "times" | "upto" | "downto" | "step" => repeated(run, receiver, name, args, block),
        "to_s" | "inspect" if args.len() == 1 => match (receiver, int_arg(args, 0)) {
            (Val::Int(number), Ok(base @ 2..=36)) => {
                let text = in_base(*number, base as u64);
                run.text(text)
            }
            _ => Err(RaisedError::argument("invalid radix").into()),
        },
        _ => return simple(run, receiver, name),
    };
    Some(answer)
}

/// Methods without arguments.
fn simple(run: &mut Interpreter<'_>, receiver: &Val, name: &str) -> Option<Evaluated> {
    let number = receiver.number()?;
    let int = if let Val::Int(number) = receiver { Some(*number) } else { None };
    Some(match (name, int) {
        ("-@", Some(number)) => number.checked_neg().map(Val::Int).ok_or_else(overflow),
        ("-@", None) => Ok(Val::Float(-number)),
        ("+@" | "to_r" | "to_c", _) => Ok(receiver.clone()),
        ("abs" | "magnitude", Some(number)) => number.checked_abs().map(Val::Int).ok_or_else(overflow),
        ("abs" | "magnitude", None) => Ok(Val::Float(number.abs())),
        ("to_i" | "to_int", Some(_)) => Ok(receiver.clone()),
        ("to_i" | "to_int", None) => whole(number.trunc()),
        ("to_f", _) => Ok(Val::Float(number)),
        ("zero?", _) => Ok(Val::Bool(number == 0.0)),
        ("nonzero?", _) => Ok(if number == 0.0 { Val::Nil } else { receiver.clone() }),
        ("positive?", _) => Ok(Val::Bool(number > 0.0)),
        ("negative?", _) => Ok(Val::Bool(number < 0.0)),
        ("even?", Some(number)) => Ok(Val::Bool(number % 2 == 0)),
        ("odd?", Some(number)) => Ok(Val::Bool(number % 2 != 0)),
        ("integer?", _) => Ok(Val::Bool(int.is_some())),
        ("finite?", _) => Ok(Val::Bool(number.is_finite())),
        ("infinite?", _) => {
            Ok(if number.is_infinite() { Val::Int(if number > 0.0 { 1 } else { -1 }) } else { Val::Nil })
        }
        ("nan?", _) => Ok(Val::Bool(number.is_nan())),
        ("ord", Some(_)) => Ok(receiver.clone()),
        ("pred", Some(number)) => number.checked_sub(1).map(Val::Int).ok_or_else(overflow),
        ("succ" | "next", Some(number)) => number.checked_add(1).map(Val::Int).ok_or_else(overflow),
        ("chr", Some(number)) => match u32::try_from(number).ok().and_then(char::from_u32) {
            Some(letter) => run.text(letter.to_string()),
            None => Err(RaisedError::new("RangeError", format!("{number} out of char range")).into()),
        },
        _ => return None,
    })
}

fn arithmetic(run: &mut Interpreter<'_>, receiver: &Val, name: &str, args: &[Val]) -> Evaluated {
    let other = operand(args)?;
    if name == "divmod" {
        let quotient = arithmetic(run, receiver, "div", args)?;
        let rest = arithmetic(run, receiver, "%", args)?;
        return run.array(vec![quotient, rest]);
    }
    if let (Val::Int(a), Val::Int(b)) = (receiver, other)
        && name != "fdiv"
    {
        let (a, b) = (*a, *b);
        if b == 0 && matches!(name, "/" | "div" | "%" | "modulo" | "remainder") {
            return Err(RaisedError::new("ZeroDivisionError", "divided by 0").into());
        }
        let result = match name {
            "+" => a.checked_add(b),
            "-" => a.checked_sub(b),
            "*" => a.checked_mul(b),
            "/" | "div" => a
                .checked_div(b)
                .map(|quotient| if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }),
            "%" | "modulo" => {
                a.checked_rem(b).map(|rest| if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
            }
            "remainder" => a.checked_rem(b),
            _ if b < 0 => return Ok(Val::Float((a as f64).powf(b as f64))),
            _ => u32::try_from(b).ok().and_then(|exponent| a.checked_pow(exponent)),
        };
        return result.map(Val::Int).ok_or_else(overflow);
    }
    let (a, b) = (receiver.number().unwrap_or(0.0), other.number().unwrap_or(0.0));
    Ok(Val::Float(match name {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" | "fdiv" => a / b,
        "div" => return whole((a / b).floor()),
        "%" | "modulo" => a - b * (a / b).floor(),
        "remainder" => a % b,
        _ => a.powf(b),
    }))
}

fn comparison(receiver: &Val, name: &str, args: &[Val]) -> Evaluated {
    let other = arg(args, 0)?;
    let order = receiver.order(other).filter(|_| other.number().is_some());
    if name == "<=>" {
        return Ok(order.map_or(Val::Nil, |order| Val::Int(order as i64)));
    }
    let failed = || {
        let what = if matches!(other, Val::Nil) { "nil".to_owned() } else { other.class().to_owned() };
        RaisedError::argument(format!("comparison of {} with {what} failed", receiver.class()))
    };
    if let (Some(a), Some(b)) = (receiver.number(), other.number())
        && (a.is_nan() || b.is_nan())
    {
        return Ok(Val::Bool(false));
    }
    let order = order.ok_or_else(failed)?;
    Ok(match name {
        "<" => Val::Bool(order.is_lt()),
        "<=" => Val::Bool(order.is_le()),
        ">" => Val::Bool(order.is_gt()),
        ">=" => Val::Bool(order.is_ge()),
        _ => {
            let most = arg(args, 1)?;
            let above = receiver.order(most).ok_or_else(failed)?;
            match name {
                "between?" => Val::Bool(order.is_ge() && above.is_le()),
                _ if order.is_lt() => other.clone(),
                _ if above.is_gt() => most.clone(),
                _ => receiver.clone(),
            }
        }
    })
}

fn bits(run: &mut Interpreter<'_>, receiver: &Val, name: &str, args: &[Val]) -> Evaluated {
    let Val::Int(a) = receiver else {
        return Err(RaisedError::new(
            "NoMethodError",
            format!("undefined method '{name}' for an instance of Float"),
        )
        .into());
    };
    let a = *a;
    match name {
        "~" => return Ok(Val::Int(!a)),
        "bit_length" => return Ok(Val::Int(i64::from(64 - if a < 0 { !a } else { a }.leading_zeros()))),
        "digits" => {
            let digits: Vec<Val> = a
                .unsigned_abs()
                .to_string()
                .bytes()
                .rev()
                .map(|digit| Val::Int(i64::from(digit - b'0')))
                .collect();
            return run.array(digits);
        }
        _ => {}
    }
    let b = int_arg(args, 0)?;
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let shift = |a: i64, by: i64| match u32::try_from(by.unsigned_abs()) {
        Ok(by @ 0..=62) if a.checked_shl(by).is_some_and(|shifted| shifted >> by == a) => Some(a << by),
        _ if a == 0 => Some(0),
        _ => None,
    };
    let right = |a: i64, by: i64| a >> by.clamp(0, 63);
    match name {
        "&" => Ok(Val::Int(a & b)),
        "|" => Ok(Val::Int(a | b)),
        "^" => Ok(Val::Int(a ^ b)),
        "<<" if b >= 0 => shift(a, b).map(Val::Int).ok_or_else(overflow),
        "<<" => Ok(Val::Int(right(a, b.saturating_neg()))),
        ">>" if b >= 0 => Ok(Val::Int(right(a, b))),
        ">>" => shift(a, b).map(Val::Int).ok_or_else(overflow),
        _ => {
            let divisor = gcd(a.unsigned_abs(), b.unsigned_abs());
            let number = if name == "gcd" {
                i64::try_from(divisor).ok()
            } else {
                a.checked_div(i64::try_from(divisor.max(1)).unwrap_or(i64::MAX))
                    .and_then(|part| part.checked_mul(b))
                    .and_then(i64::checked_abs)
            };
            number.map(Val::Int).ok_or_else(overflow)
        }
    }
}

fn rounded(receiver: &Val, name: &str, args: &[Val]) -> Evaluated {
    let places = match args.first() {
        Some(Val::Int(places)) => i32::try_from(*places).unwrap_or(0),
        _ => 0,
    };
    let round = |number: f64| match name {
        "round" => number.round(),
        "floor" => number.floor(),
        "ceil" => number.ceil(),
        _ => number.trunc(),
    };
    match receiver {
        Val::Int(_) if places >= 0 => Ok(receiver.clone()),
        Val::Float(number) if places > 0 => {
            if places >= 15 || !number.is_finite() {
                return Ok(receiver.clone());
            }
            if name == "round" {
                // As written with so many digits, which is nearer than a product.
                let text = format!("{:.*}", places as usize, number);
                let factor = 10_f64.powi(places);
                let scaled = (number * factor).round() / factor;
                let written: f64 = text.parse().unwrap_or(scaled);
                let is_half = ((number * factor).fract().abs() - 0.5).abs() < 1e-9;
                return Ok(Val::Float(if is_half { scaled } else { written }));
            }
            let factor = 10_f64.powi(places);
            Ok(Val::Float(round(number * factor) / factor))
        }
        _ => {
            let factor = 10_f64.powi(-places.clamp(-18, 0));
            whole(round(receiver.number().unwrap_or(0.0) / factor) * factor)
        }
    }
}

fn repeated(
    run: &mut Interpreter<'_>,
    receiver: &Val,
    name: &str,
    args: &[Val],
    block: Option<&Block>,
) -> Evaluated {
    let Val::Int(from) = receiver else {
        return Err(RaisedError::type_error("only whole numbers count").into());
    };
    let (first, last, by) = match name {
        "times" => (0, from.saturating_sub(1), 1),
        "upto" => (*from, int_arg(args, 0)?, 1),
        "downto" => (*from, int_arg(args, 0)?, -1),
        _ => (*from, int_arg(args, 0)?, args.get(1).map_or(Ok(1), |_| int_arg(args, 1))?),
    };
    if by == 0 {
        return Err(RaisedError::argument("step can't be 0").into());
    }
    let mut number = first;
    let mut numbers = Vec::new();
    while if by > 0 { number <= last } else { number >= last } {
        match block {
            Some(block) => drop(run.run_block(block, vec![Val::Int(number)])?),
            None => {
                run.step(1)?;
                run.allocate(32)?;
                numbers.push(Val::Int(number));
            }
        }
        match number.checked_add(by) {
            Some(next) => number = next,
            None => break,
        }
    }
    match block {
        Some(_) => Ok(receiver.clone()),
        // `5.times.map` works on the numbers.
        None if name == "times" => Ok(Val::array(numbers)),
        None => needs_block(block).map(|_| Val::Nil).map_err(Flow::from),
    }
}

fn in_base(number: i64, base: u64) -> String {
    let mut rest = number.unsigned_abs();
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit((rest % base) as u32, base as u32).unwrap_or('0'));
        rest /= base;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        digits.push('-');
    }
    digits.iter().rev().collect()
}
