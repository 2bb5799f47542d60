//! `minimum_should_match` in all its forms: `2`, `-1`, `75%`, `-25%`, `3<90%`, `2<-25% 9<-3`.

use millrace_work::error::{Error, Result};

/// A parsed specification.
#[derive(Clone, Debug, PartialEq)]
pub struct MinimumShouldMatch {
    /// `(n, rule)`: the last rule whose `n` is below the number of clauses applies; without any
    /// bound the one rule applies always.
    steps: Vec<(Option<i64>, Rule)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Count(i64),
    Percent(i64),
}

impl MinimumShouldMatch {
    /// Makes the specification of a share.
    pub(crate) fn percent(percent: i64) -> Self {
        Self { steps: vec![(None, Rule::Percent(percent))] }
    }

    /// Parses a specification.
    pub fn parse(text: &str) -> Result<Self> {
        let spec = text.trim();
        let mut steps = Vec::new();
        if spec.contains('<') {
            let mut joined = spec.replace(" <", "<").replace("< ", "<");
            while joined.contains(" <") || joined.contains("< ") {
                joined = joined.replace(" <", "<").replace("< ", "<");
            }
            for part in joined.split_whitespace() {
                // What comes behind a second sign is not looked at.
                let mut sides = part.split('<');
                let (Some(bound), Some(rule)) = (sides.next(), sides.next()) else { return Err(bad(part)) };
                steps.push((Some(number(bound)?), rule_of(rule)?));
            }
        } else {
            steps.push((None, rule_of(spec)?));
        }
        Ok(Self { steps })
    }

    /// Computes how many of `clauses` optional clauses must match.
    pub fn required(&self, clauses: usize) -> usize {
        let count = clauses as i64;
        let mut required = count;
        for (bound, rule) in &self.steps {
            if let Some(bound) = bound
                && count <= *bound
            {
                return usize::try_from(required).unwrap_or(0);
            }
            let (asked, of_all) = match rule {
                Rule::Count(n) => (*n, *n < 0),
                Rule::Percent(percent) => {
                    let share = (count as f32 * *percent as f32) * (1.0 / 100.0);
                    (share as i64, share < 0.0)
                }
            };
            required = (if of_all { count + asked } else { asked }).max(0);
        }
        usize::try_from(required).unwrap_or(0)
    }
}

fn rule_of(text: &str) -> Result<Rule> {
    match text.strip_suffix('%') {
        Some(percent) => Ok(Rule::Percent(number(percent)?)),
        None => Ok(Rule::Count(number(text)?)),
    }
}

fn number(text: &str) -> Result<i64> {
    text.trim().parse::<i32>().map(i64::from).map_err(|_| bad(text))
}

fn bad(text: &str) -> Error {
    super::json::not_a_number(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_the_specification() {
        let required = |spec: &str, n| MinimumShouldMatch::parse(spec).unwrap().required(n);
        assert_eq!(required("2", 5), 2);
        assert_eq!(required("-1", 5), 4);
        assert_eq!(required("75%", 5), 3);
        assert_eq!(required("-25%", 5), 4);
        assert_eq!(required("-25%", 3), 3);
        assert_eq!(required("3<90%", 3), 3);
        assert_eq!(required("3<90%", 10), 9);
        assert_eq!(required("2<-25% 9<-3", 2), 2);
        assert_eq!(required("2<-25% 9<-3", 8), 6);
        assert_eq!(required("2 < -25% 9 < -3", 12), 9);
        assert_eq!(required("-9", 3), 0);
        assert!(MinimumShouldMatch::parse("many").is_err());
    }
}
