//! Functions of numbers.

use super::Definition;
use super::primitive_kernels;
use super::row::{Context, Val};
use crate::types::SqlType::{self, Double, Float, Integer, Long, Undefined};

fn number(ty: SqlType) -> bool {
    ty.is_number() || ty.is_string() || ty == Undefined
}

/// One number, as a double.
fn double(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    matches!(types, [one] if number(*one)).then(|| (vec![Double], Double))
}

/// Two numbers, as doubles.
fn doubles(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    matches!(types, [one, other] if number(*one) && number(*other)).then(|| (vec![Double, Double], Double))
}

/// One number, of its own type.
fn same(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    match types {
        [Undefined] => Some((vec![Double], SqlType::Byte)),
        [one] if one.is_number() => Some((vec![*one], *one)),
        [one] if one.is_string() => Some((vec![Double], Double)),
        _ => None,
    }
}

fn none(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    types.is_empty().then(|| (Vec::new(), Double))
}

macro_rules! of_double {
    ($function:expr) => {
        Definition::new(double, |args, _| Ok(finite($function(first(args)))))
            .with_kernel(|args, _, _| primitive_kernels::of_doubles(args, $function))
    };
}

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "abs" => Definition::new(same, |args, context| {
            let least = |ty| match ty {
                SqlType::Byte => i8::MIN.into(),
                SqlType::Short => i16::MIN.into(),
                Integer => i32::MIN.into(),
                _ => i64::MIN,
            };
            Ok(match args.first() {
                Some(Val::Int(number)) if context.ty == SqlType::UnsignedLong => Val::Int(*number),
                Some(Val::Int(number)) if context.ty.is_integer() => {
                    if *number == least(context.ty) {
                        return Err(format!("abs({number}) is out of range, cast to DOUBLE before"));
                    }
                    Val::Int(number.abs())
                }
                _ => Val::Float(first(args).abs()),
            })
        })
        .with_kernel(primitive_kernels::abs),
        "acos" => of_double!(f64::acos),
        "asin" => of_double!(f64::asin),
        "atan" => Definition::new(one_or_two, |args, _| {
            Ok(finite(match args {
                [one, other] => one.float().atan2(other.float()),
                _ => first(args).atan(),
            }))
        }),
        "atan2" => Definition::new(doubles, |args, _| Ok(finite(first(args).atan2(second(args))))),
        "cbrt" => of_double!(f64::cbrt),
        "ceil" | "ceiling" => Definition::new(to_long, |args, _| Ok(whole(first(args).ceil()))),
        "floor" => Definition::new(to_long, |args, _| Ok(whole(first(args).floor()))),
        "conv" => Definition::new(conv_types, conv),
        "histogram" => Definition::new(histogram_types, bucket_start),
        "cos" => of_double!(f64::cos),
        "cosh" => of_double!(f64::cosh),
        "cot" => of_double!(|number: f64| 1.0 / number.tan()),
        "crc32" => Definition::new(of_text, |args, _| {
            Ok(Val::Int(i64::from(crc32(args.first().map_or("", Val::text)))))
        }),
        "degrees" => of_double!(f64::to_degrees),
        "e" => Definition::new(none, |_, _| Ok(Val::Float(std::f64::consts::E))),
        "exp" => of_double!(f64::exp),
        "expm1" => of_double!(f64::exp_m1),
        "ln" => of_double!(f64::ln),
        "log" => Definition::new(one_or_two, |args, _| {
            Ok(finite(match args {
                [base, number] => number.float().ln() / base.float().ln(),
                _ => first(args).ln(),
            }))
        }),
        "log10" => of_double!(f64::log10),
        "log2" => of_double!(f64::log2),
        "pi" => Definition::new(none, |_, _| Ok(Val::Float(std::f64::consts::PI))),
        "pow" | "power" => Definition::new(doubles, |args, _| Ok(finite(first(args).powf(second(args))))),
        "radians" => of_double!(f64::to_radians),
        "rand" => Definition::new(rand_types, rand),
        "rint" => of_double!(f64::round_ties_even),
        "round" => Definition::new(round_types, |args, context| Ok(rounded(args, context, false)))
            .with_kernel(primitive_kernels::round),
        "truncate" => Definition::new(truncate_types, |args, context| Ok(rounded(args, context, true))),
        "sign" | "signum" => Definition::new(to_integer, |args, _| {
            let number = first(args);
            Ok(Val::Int(if number > 0.0 { 1 } else { -i64::from(number < 0.0) }))
        }),
        "sin" => of_double!(f64::sin),
        "sinh" => of_double!(f64::sinh),
        "sqrt" => of_double!(f64::sqrt),
        "tan" => of_double!(f64::tan),
        "tanh" => of_double!(f64::tanh),
        _ => return None,
    })
}

fn first(args: &[Val<'_>]) -> f64 {
    args.first().map_or(0.0, Val::float)
}

fn second(args: &[Val<'_>]) -> f64 {
    args.get(1).map_or(0.0, Val::float)
}

/// Returns null for numbers that are not finite.
fn finite<'a>(number: f64) -> Val<'a> {
    if number.is_finite() { Val::Float(number) } else { Val::Null }
}

fn whole<'a>(number: f64) -> Val<'a> {
    if number.abs() < 9.3e18 { Val::Int(number as i64) } else { Val::Null }
}

fn one_or_two(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    double(types).or_else(|| doubles(types))
}

fn to_long(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    double(types).map(|(types, _)| (types, Long))
}

fn to_integer(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    double(types).map(|(types, _)| (types, Integer))
}

fn of_text(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    matches!(types, [one] if one.is_string() || *one == Undefined).then(|| (vec![SqlType::Keyword], Long))
}

fn rand_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    match types {
        [] => Some((Vec::new(), Float)),
        [seed] if seed.is_integer() => Some((vec![Long], Float)),
        _ => None,
    }
}

/// Java's generator: with a seed its first number, without one any.
fn rand<'a>(args: &[Val<'a>], _: Context) -> Result<Val<'a>, String> {
    let Some(seed) = args.first() else { return Ok(Val::Float(f64::from(rand::random::<f32>()))) };
    let mask = (1i64 << 48) - 1;
    let scrambled = (seed.int() ^ 0x5_DEEC_E66D) & mask;
    let next = scrambled.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & mask;
    let bits = next >> 24;
    Ok(Val::Float(bits as f64 / f64::from(1 << 24)))
}

fn round_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let ty = |one: SqlType| if one.is_integer() { Long } else { Double };
    match types {
        [one] if number(*one) => Some((vec![ty(*one)], ty(*one))),
        [one, places] if number(*one) && places.is_integer() => Some((vec![ty(*one), Long], ty(*one))),
        _ => None,
    }
}

fn truncate_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    (types.len() == 2).then(|| round_types(types)).flatten()
}

/// Rounds half away from zero, as the decimal that a number is written as, or cuts.
fn rounded<'a>(args: &[Val<'a>], context: Context, cut: bool) -> Val<'a> {
    let (number, places) = (first(args), args.get(1).map_or(0, Val::int));
    if context.ty == Long && places >= 0 {
        return args.first().cloned().unwrap_or(Val::Null);
    }
    match rounded_double(number, places, cut) {
        Some(result) if context.ty == Long => whole(result),
        Some(result) => Val::Float(result),
        None => Val::Null,
    }
}

/// Rounds a double to so many places, or cuts it; `None` for what is not finite.
pub(super) fn rounded_double(number: f64, places: i64, cut: bool) -> Option<f64> {
    let places = places.clamp(-308, 308) as i32;
    let finite = |number: f64| Some(number).filter(|number| number.is_finite());
    let factor = 10f64.powi(places);
    let scaled = number * factor;
    if !scaled.is_finite() || factor == 0.0 {
        return if places < 0 { Some(0.0) } else { finite(number) };
    }
    // 1.005 * 100 is a little less than 100.5, which is meant.
    let near = (scaled * 2.0).round() / 2.0;
    let scaled = if (scaled - near).abs() < scaled.abs() * 1e-15 { near } else { scaled };
    finite(if cut { scaled.trunc() } else { scaled.round() } / factor)
}

fn histogram_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let [number, width] = types else { return None };
    let taken = |ty: SqlType| ty.is_number() || ty == Undefined;
    let ty = if number.is_integer() && width.is_integer() { Long } else { Double };
    (taken(*number) && taken(*width)).then(|| (vec![ty, ty], ty))
}

/// Returns the start of the bucket of a width that a number is in: the greatest multiple of the width that is not above the number.
fn bucket_start<'a>(args: &[Val<'a>], context: Context) -> Result<Val<'a>, String> {
    let [number, width] = args else { return Ok(Val::Null) };
    if width.float() <= 0.0 {
        return Ok(Val::Null);
    }
    if context.ty != Long {
        return Ok(finite((number.float() / width.float()).floor() * width.float()));
    }
    let (number, width) = (i128::from(number.int()), i128::from(width.int()));
    let start = number - number.rem_euclid(width);
    i64::try_from(start)
        .map(Val::Int)
        .map_err(|_| format!("the bucket of {number} is out of range, cast to DOUBLE before"))
}

fn conv_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let [one, from, to] = types else { return None };
    ((one.is_string() || one.is_integer()) && from.is_integer() && to.is_integer())
        .then(|| (vec![SqlType::Keyword, Long, Long], SqlType::Keyword))
}

/// Writes a number of one base in another.
fn conv<'a>(args: &[Val<'a>], _: Context) -> Result<Val<'a>, String> {
    let [text, from, to] = args else { return Ok(Val::Null) };
    let base = |value: &Val<'_>| u32::try_from(value.int()).ok().filter(|base| (2..=36).contains(base));
    let (Some(from), Some(to)) = (base(from), base(to)) else { return Ok(Val::Null) };
    let Ok(number) = i128::from_str_radix(text.text().trim(), from) else {
        return Err(format!("[{}] is no number of base {from}", text.text()));
    };
    let mut rest = number.unsigned_abs();
    let mut digits = Vec::new();
    loop {
        let digit = u32::try_from(rest % u128::from(to)).unwrap_or(0);
        digits.push(char::from_digit(digit, to).unwrap_or('0'));
        rest /= u128::from(to);
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        digits.push('-');
    }
    Ok(Val::str(digits.into_iter().rev().collect::<String>()))
}

/// The checksum of IEEE 802.3.
fn crc32(text: &str) -> u32 {
    let mut crc = u32::MAX;
    for byte in text.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            let least = crc & 1;
            crc = (crc >> 1) ^ (0xEDB8_8320 & least.wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, args: &[Val<'static>]) -> Val<'static> {
        let ty = if matches!(args.first(), Some(Val::Int(_))) { Long } else { Double };
        (find(name).unwrap().eval)(args, Context { now: 0, ty }).unwrap()
    }

    #[test]
    fn buckets_start_below_their_numbers() {
        let start = |number, width| run("histogram", &[Val::Int(number), Val::Int(width)]);
        for (number, expected) in [(25, 20), (20, 20), (9, 0), (0, 0), (-1, -10), (-10, -10), (-11, -20)] {
            assert_eq!(start(number, 10), Val::Int(expected), "{number}");
        }
        // A double has 53 bits.
        assert_eq!(start((1 << 60) + 3, 2), Val::Int((1 << 60) + 2));
        assert_eq!(start(i64::MIN, 2), Val::Int(i64::MIN));
        let context = Context { now: 0, ty: Long };
        assert!((find("histogram").unwrap().eval)(&[Val::Int(i64::MIN), Val::Int(10)], context).is_err());
        for (number, width, expected) in
            [(-0.5, 2.0, -2.0), (7.5, 2.5, 7.5), (-7.4, 2.5, -7.5), (1e300, 1.0, 1e300)]
        {
            assert_eq!(
                run("histogram", &[Val::Float(number), Val::Float(width)]),
                Val::Float(expected),
                "{number}"
            );
        }
        assert_eq!(start(5, 0), Val::Null);
        assert_eq!(histogram_types(&[SqlType::Keyword, Integer]), None);
    }

    #[test]
    fn numbers_are_those_of_java_and_mysql() {
        assert_eq!(run("crc32", &[Val::str("MySQL")]), Val::Int(3_259_397_556));
        assert_eq!(run("conv", &[Val::str("2c"), Val::Int(16), Val::Int(10)]), Val::str("44"));
        assert_eq!(run("round", &[Val::Float(-3.5)]), Val::Float(-4.0));
        assert_eq!(run("round", &[Val::Float(1.005), Val::Int(2)]), Val::Float(1.01));
        assert_eq!(run("truncate", &[Val::Float(56.78), Val::Int(1)]), Val::Float(56.7));
        assert_eq!(run("sqrt", &[Val::Float(-1.0)]), Val::Null);
        assert_eq!(run("abs", &[Val::Int(-7)]), Val::Int(7));
        let Val::Float(number) = run("rand", &[Val::Int(3)]) else { panic!("no number") };
        assert!((number - 0.731_057_35).abs() < 1e-7);
    }
}
