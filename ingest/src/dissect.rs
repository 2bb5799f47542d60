//! Patterns of `dissect`: fields with fixed delimiters between them.
//!
//! A [`DissectPattern`] cuts a text into the texts of its [`DissectField`]s. Logstash and OpenSearch share the notation but for
//! what [`DissectDialect`] says. The filter `dissect` and the processor of the same name put the texts into fields.

use memchr::memmem::Finder;

/// Most fields of one pattern.
const MAX_FIELDS: usize = 1_000;

/// Notation of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DissectDialect {
    /// `%{?name}` names the value of `%{&name}`; two fields have a delimiter between them.
    Logstash,
    /// `%{*name}` names the value of `%{&name}`; a pattern without a delimiter matches nothing.
    OpenSearch,
}

/// Use of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DissectModifier {
    /// `%{name}`: the text is the value.
    Plain,
    /// `%{?name}` or `%{}`: the text is passed over.
    Skip,
    /// `%{+name}`: the text is appended to the value.
    Append,
    /// `%{*name}`: the text is the name of a field.
    ReferenceKey,
    /// `%{&name}`: the text is the value of the field that another text names.
    ReferenceValue,
}

/// A field of a pattern.
#[derive(Debug)]
pub struct DissectField {
    /// Use.
    pub modifier: DissectModifier,
    /// Name.
    pub name: String,
    /// Order among the parts of an appended value.
    pub order: Option<usize>,
    /// Delimiter behind the field; empty at the end of the pattern.
    pub delimiter: String,
    finder: Finder<'static>,
    /// `true` if the delimiter may be repeated.
    padded: bool,
}

/// A compiled pattern.
#[derive(Debug)]
pub struct DissectPattern {
    /// Text before the first field.
    start: String,
    fields: Vec<DissectField>,
}

/// Notation of a field of a pattern.
struct FieldSpec<'a> {
    modifier: DissectModifier,
    name: &'a str,
    order: Option<usize>,
    padded: bool,
}

impl<'a> FieldSpec<'a> {
    fn parse(text: &'a str, dialect: DissectDialect) -> Result<Self, String> {
        use DissectModifier as M;
        let wrong = |why: &str| format!("[%{{{text}}}] is not a field of a mapping: {why}");
        let (inner, padded) = match text.strip_suffix("->") {
            Some(inner) => (inner, true),
            None => (text, false),
        };
        let (modifier, rest) = match inner.as_bytes().first() {
            None => (M::Skip, inner),
            Some(b'?') => (M::Skip, &inner[1..]),
            Some(b'+') => (M::Append, &inner[1..]),
            Some(b'&') => (M::ReferenceValue, &inner[1..]),
            Some(b'*') if dialect == DissectDialect::OpenSearch => (M::ReferenceKey, &inner[1..]),
            Some(_) => (M::Plain, inner),
        };
        let (name, order) = match rest.rsplit_once('/') {
            Some((name, order)) if modifier == M::Append => {
                (name, Some(order.parse().map_err(|_| wrong("its order is not a number"))?))
            }
            _ => (rest, None),
        };
        if name.is_empty() && modifier != M::Skip {
            return Err(wrong("it has no name"));
        }
        if name.starts_with(['?', '+', '&']) {
            return Err(wrong("it has more than one modifier"));
        }
        Ok(Self { modifier, name, order, padded })
    }
}

impl DissectPattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The fault of the pattern, naming it.
    pub fn parse(text: &str, dialect: DissectDialect) -> Result<Self, String> {
        let mut pieces = text.split("%{");
        let start = pieces.next().unwrap_or_default().to_owned();
        let mut fields: Vec<DissectField> = Vec::new();
        for piece in pieces {
            let (inner, delimiter) = piece
                .split_once('}')
                .ok_or_else(|| format!("the mapping [{text}] has a field that is not closed"))?;
            let spec = FieldSpec::parse(inner, dialect)?;
            if fields.len() >= MAX_FIELDS {
                return Err(format!("a mapping has at most {MAX_FIELDS} fields"));
            }
            let adjoins = fields.last().is_some_and(|field| field.delimiter.is_empty());
            if adjoins && dialect == DissectDialect::Logstash {
                return Err(format!("the mapping [{text}] has two fields without a delimiter between them"));
            }
            fields.push(DissectField {
                modifier: spec.modifier,
                name: spec.name.to_owned(),
                order: spec.order,
                delimiter: delimiter.to_owned(),
                finder: Finder::new(delimiter).into_owned(),
                padded: spec.padded,
            });
        }
        match (fields.is_empty(), dialect) {
            (false, _) => Ok(Self { start, fields }),
            (true, DissectDialect::Logstash) => Err(format!("the mapping [{text}] has no field")),
            (true, DissectDialect::OpenSearch) => Err("Unable to find any keys or delimiters.".to_owned()),
        }
    }

    /// Returns the fields in order.
    pub fn fields(&self) -> &[DissectField] {
        &self.fields
    }

    /// Returns the text of each field; `None` where the delimiters are not all there.
    pub fn cut<'a>(&self, text: &'a str) -> Option<Vec<&'a str>> {
        let mut rest = text.strip_prefix(self.start.as_str())?;
        let mut parts = Vec::with_capacity(self.fields.len());
        for (at, field) in self.fields.iter().enumerate() {
            if field.delimiter.is_empty() {
                if at + 1 < self.fields.len() {
                    return None;
                }
                parts.push(rest);
                rest = "";
                continue;
            }
            let (part, behind) = rest.split_at_checked(field.finder.find(rest.as_bytes())?)?;
            parts.push(part);
            rest = behind.get(field.delimiter.len()..)?;
            if field.padded {
                rest = rest.trim_start_matches(field.delimiter.as_str());
            }
        }
        Some(parts)
    }
}
