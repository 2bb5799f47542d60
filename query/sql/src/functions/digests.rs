//! Digests of texts, in hexadecimal digits.

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::Definition;
use super::row::{Context, Val};
use crate::types::SqlType::{self, Keyword, Long};

type Answer<'a> = Result<Val<'a>, String>;

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "md5" => Definition::new(one_text, |args, _| Ok(digest::<Md5>(args))),
        "sha1" => Definition::new(one_text, |args, _| Ok(digest::<Sha1>(args))),
        "sha2" => Definition::new(
            |types| match types {
                [text, bits] if one_text(&[*text]).is_some() && bits.is_integer() => {
                    Some((vec![Keyword, Long], Keyword))
                }
                _ => None,
            },
            sha2_of,
        ),
        _ => return None,
    })
}

fn one_text(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    match types {
        [ty] if !ty.is_json() && *ty != SqlType::Interval => Some((vec![Keyword], Keyword)),
        _ => None,
    }
}

fn digest<'a, D: Digest>(args: &[Val<'a>]) -> Val<'a> {
    let bytes = D::digest(args.first().map_or("", Val::text).as_bytes());
    Val::str(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn sha2_of<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    match args.get(1).map_or(0, Val::int) {
        224 => Ok(digest::<Sha224>(args)),
        0 | 256 => Ok(digest::<Sha256>(args)),
        384 => Ok(digest::<Sha384>(args)),
        512 => Ok(digest::<Sha512>(args)),
        bits => Err(format!("Unsupported SHA2 algorithm: [{bits}] is none of 224, 256, 384 and 512 bits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_other_tools() {
        let run = |name: &str, args: &[Val<'static>]| {
            (find(name).unwrap().eval)(args, Context { now: 0, ty: Keyword })
        };
        assert_eq!(run("md5", &[Val::str("hello")]), Ok(Val::str("5d41402abc4b2a76b9719d911017c592")));
        let sha1 = "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d";
        assert_eq!(run("sha1", &[Val::str("hello")]), Ok(Val::str(sha1)));
        let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert_eq!(run("sha2", &[Val::str("hello"), Val::Int(256)]), Ok(Val::str(sha256)));
        assert!(run("sha2", &[Val::str("hello"), Val::Int(100)]).is_err());
    }
}
