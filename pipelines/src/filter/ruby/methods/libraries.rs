//! Modules of functions: JSON, Base64, digests, random values, mathematics, addresses.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use md5::{Digest as _, Md5};
use percent_encoding::percent_decode_str;
use ring::digest;

use super::super::interpreter::{Evaluated, Flow, Interpreter};
use super::super::value::{Key, RaisedError, Val};
use super::{arg, int_arg, parse_json, text_arg};

pub(super) fn json(run: &mut Interpreter<'_>, name: &str, args: &[Val]) -> Option<Evaluated> {
    let answer = || -> Evaluated {
        match name {
            "parse" | "load" => {
                let text = text_arg(args, 0)?;
                run.allocate(text.len().saturating_mul(2))?;
                run.step(text.len() / 16)?;
                let parsed = parse_json(&text)?;
                let symbols = matches!(args.get(1), Some(Val::Hash(options))
                    if options.lock().get(&Key::Symbol(Arc::from("symbolize_names"))).is_some_and(Val::is_true));
                Ok(if symbols { symbolized(&parsed) } else { parsed })
            }
            _ => {
                let value = run.json(arg(args, 0)?)?;
                let text = if name == "pretty_generate" {
                    serde_json::to_string_pretty(&value).unwrap_or_default()
                } else {
                    value.to_string()
                };
                run.text(text)
            }
        }
    };
    matches!(name, "parse" | "load" | "generate" | "dump" | "pretty_generate").then(answer)
}

/// Makes symbols of the keys of hashes.
fn symbolized(value: &Val) -> Val {
    match value {
        Val::Array(elements) => Val::array(elements.lock().iter().map(symbolized).collect()),
        Val::Hash(members) => {
            let symbol = |(key, value): (&Key, &Val)| (Key::Symbol(key.value().to_text()), symbolized(value));
            Val::hash(members.lock().iter().map(symbol).collect())
        }
        other => other.clone(),
    }
}

pub(super) fn base64(run: &mut Interpreter<'_>, name: &str, args: &[Val]) -> Option<Evaluated> {
    let decoded = |bytes: Result<Vec<u8>, base64::DecodeError>| {
        let bytes = bytes.map_err(|_| RaisedError::argument("invalid base64"))?;
        Ok::<String, RaisedError>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let answer = || -> Result<String, RaisedError> {
        let text = text_arg(args, 0)?;
        match name {
            // Lines of 60 letters, as Ruby has them.
            "encode64" => {
                let encoded = STANDARD.encode(text.as_bytes());
                let mut lines = String::with_capacity(encoded.len() + encoded.len() / 60 + 1);
                for (at, letter) in encoded.chars().enumerate() {
                    if at > 0 && at % 60 == 0 {
                        lines.push('\n');
                    }
                    lines.push(letter);
                }
                lines.push('\n');
                Ok(lines)
            }
            "strict_encode64" => Ok(STANDARD.encode(text.as_bytes())),
            "urlsafe_encode64" => Ok(URL_SAFE.encode(text.as_bytes())),
            "urlsafe_decode64" => decoded(URL_SAFE.decode(text.as_bytes())),
            "strict_decode64" => decoded(STANDARD.decode(text.as_bytes())),
            _ => {
                let letters: String = text
                    .chars()
                    .filter(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '/'))
                    .collect();
                decoded(STANDARD_NO_PAD.decode(letters))
            }
        }
    };
    let known = name.ends_with("code64");
    known.then(|| answer().map_err(Flow::from).and_then(|text| run.text(text)))
}

pub(super) fn hash(run: &mut Interpreter<'_>, class: &str, name: &str, args: &[Val]) -> Option<Evaluated> {
    if !matches!(name, "hexdigest" | "base64digest") {
        return None;
    }
    let text = match text_arg(args, 0) {
        Ok(text) => text,
        Err(error) => return Some(Err(error.into())),
    };
    let bytes = match class {
        "Digest::MD5" => Md5::digest(text.as_bytes()).to_vec(),
        "Digest::SHA1" => {
            digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()).as_ref().to_vec()
        }
        "Digest::SHA384" => digest::digest(&digest::SHA384, text.as_bytes()).as_ref().to_vec(),
        "Digest::SHA512" => digest::digest(&digest::SHA512, text.as_bytes()).as_ref().to_vec(),
        _ => digest::digest(&digest::SHA256, text.as_bytes()).as_ref().to_vec(),
    };
    let text = if name == "hexdigest" { hexadecimal(&bytes) } else { STANDARD.encode(&bytes) };
    Some(run.text(text))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn random(run: &mut Interpreter<'_>, name: &str, args: &[Val]) -> Option<Evaluated> {
    let length = |default: usize| {
        args.first()
            .map_or(default, |_| int_arg(args, 0).map_or(default, |length| length.clamp(0, 4096) as usize))
    };
    Some(match name {
        "uuid" => run.text(uuid::Uuid::new_v4().to_string()),
        "hex" => {
            let bytes: Vec<u8> = (0..length(16)).map(|_| rand::random()).collect();
            run.text(hexadecimal(&bytes))
        }
        "alphanumeric" => {
            const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
            let letter = |_| char::from(LETTERS[rand::random::<u32>() as usize % LETTERS.len()]);
            let text: String = (0..length(16)).map(letter).collect();
            run.text(text)
        }
        "random_number" | "rand" => super::number::random(args.first()),
        _ => return None,
    })
}

pub(super) fn math(name: &str, args: &[Val]) -> Option<Evaluated> {
    let number = |at: usize| -> Result<f64, RaisedError> {
        let value = arg(args, at)?;
        value
            .number()
            .ok_or_else(|| RaisedError::type_error(format!("can't convert {} into Float", value.class())))
    };
    let function: fn(f64) -> f64 = match name {
        "sqrt" => f64::sqrt,
        "cbrt" => f64::cbrt,
        "log2" => f64::log2,
        "log10" => f64::log10,
        "exp" => f64::exp,
        "sin" => f64::sin,
        "cos" => f64::cos,
        "tan" => f64::tan,
        "atan" => f64::atan,
        "log" if args.len() < 2 => f64::ln,
        "log" | "pow" | "atan2" | "hypot" => {
            let both = || -> Result<f64, RaisedError> {
                let (a, b) = (number(0)?, number(1)?);
                Ok(match name {
                    "log" => a.log(b),
                    "pow" => a.powf(b),
                    "atan2" => a.atan2(b),
                    _ => a.hypot(b),
                })
            };
            return Some(both().map(Val::Float).map_err(Flow::from));
        }
        _ => return None,
    };
    Some(number(0).map(|number| Val::Float(function(number))).map_err(Flow::from))
}

pub(super) fn web(run: &mut Interpreter<'_>, class: &str, name: &str, args: &[Val]) -> Option<Evaluated> {
    let plus = class == "CGI" || name.ends_with("_www_form_component");
    let text = match text_arg(args, 0) {
        Ok(text) => text,
        Err(error) => return Some(Err(error.into())),
    };
    let changed = match name {
        "unescape" | "decode" | "decode_www_form_component" => percent_decoded(&text, plus),
        "escape" | "encode" | "encode_www_form_component" => percent_encoded(&text, plus),
        "escapeHTML" => text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;")
            .replace('\'', "&#39;"),
        "unescapeHTML" => text
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&quot;", "\"")
            .replace("&#39;", "'")
            .replace("&amp;", "&"),
        _ => return None,
    };
    Some(run.text(changed))
}

fn percent_decoded(text: &str, plus: bool) -> String {
    // A plus sign that is written `%2B` stays one.
    let text = if plus { Cow::Owned(text.replace('+', " ")) } else { Cow::Borrowed(text) };
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

fn percent_encoded(text: &str, plus: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => out.push(char::from(byte)),
            b' ' if plus => out.push('+'),
            b'~' | b'!' | b'\'' | b'(' | b')' | b';' | b'/' | b'?' | b':' | b'@' | b'&' | b'=' | b'+'
            | b'$' | b',' | b'[' | b']'
                if !plus =>
            {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
