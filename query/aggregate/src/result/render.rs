//! Results as the JSON that OpenSearch answers.

use millrace_matching::address::AddressText;
use millrace_work::answer::AnswerBuffer;
use millrace_work::error::Result;
use serde_json::{Map, Value, json};

use super::format::{double, plain};
use super::{
    Bucket, Buckets, BucketsKind, Detail, Entry, ExtendedStats, Format, Key, KeyType, MatrixStats, Metric,
    Outcome, PercentileMethod, Percentiles, Results, SingleKind, Stats,
};

impl Results {
    /// Writes the results as an object; `typed` puts the type before each name, as `typed_keys` asks.
    ///
    /// # Errors
    /// As [`AnswerBuffer::check`].
    pub fn write(&self, typed: bool, out: &mut AnswerBuffer) -> Result<()> {
        out.push(b'{');
        self.write_members(typed, out)?;
        out.push(b'}');
        out.check()
    }

    fn write_members(&self, typed: bool, out: &mut AnswerBuffer) -> Result<()> {
        for entry in &self.0 {
            match typed {
                true => out.key(&format!("{}#{}", entry.outcome.type_name(), entry.header.name)),
                false => out.key(&entry.header.name),
            }
            entry.write(typed, out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Results {
    /// Makes a value of what is written.
    pub(crate) fn to_value(&self, typed: bool) -> Value {
        let mut out = AnswerBuffer::new(&millrace_work::QueryContext::default());
        self.write(typed, &mut out).unwrap();
        serde_json::from_slice(&out.finish().unwrap()).unwrap()
    }
}

impl Outcome {
    /// The type before the names of `typed_keys`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Metric(metric) => metric.type_name(),
            Self::TopHits { .. } => "top_hits",
            Self::Single(single) => match single.kind {
                SingleKind::Filter => "filter",
                SingleKind::Global => "global",
                SingleKind::Missing => "missing",
                SingleKind::Nested => "nested",
                SingleKind::ReverseNested => "reverse_nested",
                SingleKind::Sampler => "sampler",
            },
            Self::Buckets(buckets) => match &buckets.shape {
                BucketsKind::Terms { key_type, .. } => match key_type {
                    KeyType::Strings | KeyType::Unmapped => "sterms",
                    KeyType::Longs => "lterms",
                    KeyType::Unsigned => "ulterms",
                    KeyType::Doubles => "dterms",
                },
                BucketsKind::MultiTerms { .. } => "multi_terms",
                BucketsKind::RareTerms(key_type) => match key_type {
                    KeyType::Strings => "srareterms",
                    // So says OpenSearch of a field that no index has.
                    KeyType::Unmapped => "sterms",
                    _ => "lrareterms",
                },
                BucketsKind::SignificantTerms { key_type, .. } => match key_type {
                    KeyType::Strings | KeyType::Unmapped => "sigsterms",
                    _ => "siglterms",
                },
                BucketsKind::Composite { .. } => "composite",
                BucketsKind::DateHistogram => "date_histogram",
                BucketsKind::AutoDateHistogram { .. } => "auto_date_histogram",
                BucketsKind::Histogram => "histogram",
                BucketsKind::Range => "range",
                BucketsKind::DateRange => "date_range",
                BucketsKind::IpRange => "ip_range",
                BucketsKind::Filters => "filters",
                BucketsKind::AdjacencyMatrix => "adjacency_matrix",
            },
        }
    }
}

impl Metric {
    fn type_name(&self) -> &'static str {
        let by_method = |method, tdigest, hdr| match method {
            PercentileMethod::TDigest => tdigest,
            PercentileMethod::Hdr => hdr,
        };
        match self {
            Self::Avg { .. } => "avg",
            Self::Sum(_) => "sum",
            Self::Min(_) => "min",
            Self::Max(_) => "max",
            Self::ValueCount(_) => "value_count",
            Self::Cardinality(_) => "cardinality",
            Self::Stats(_) => "stats",
            Self::ExtendedStats(_) => "extended_stats",
            Self::Percentiles(found) => by_method(found.method, "tdigest_percentiles", "hdr_percentiles"),
            Self::PercentileRanks(found) => {
                by_method(found.method, "tdigest_percentile_ranks", "hdr_percentile_ranks")
            }
            Self::MedianAbsoluteDeviation(_) => "median_absolute_deviation",
            Self::WeightedAvg { .. } => "weighted_avg",
            Self::GeoBounds(_) => "geo_bounds",
            Self::MatrixStats(_) => "matrix_stats",
            Self::Simple(_) => "simple_value",
            Self::Derivative { .. } => "derivative",
            Self::BucketValue { .. } => "bucket_metric_value",
            Self::StatsBucket(_) => "stats_bucket",
            Self::ExtendedStatsBucket(_) => "extended_stats_bucket",
            Self::PercentilesBucket(_) => "percentiles_bucket",
        }
    }
}

impl Entry {
    fn write(&self, typed: bool, out: &mut AnswerBuffer) -> Result<()> {
        out.push(b'{');
        if let Some(meta) = &self.header.meta {
            out.member("meta", meta.as_ref());
        }
        match &self.outcome {
            Outcome::Metric(metric) => {
                let mut object = Map::new();
                metric.render(&self.header.format, &mut object);
                write_members(&object, out);
            }
            Outcome::TopHits { text, .. } => {
                out.key("hits");
                out.extend(text);
            }
            Outcome::Single(single) => {
                out.member("doc_count", &single.doc_count);
                single.subs.write_members(typed, out)?;
            }
            Outcome::Buckets(buckets) => buckets.write(&self.header.format, typed, out)?,
        }
        out.push(b'}');
        out.check()
    }
}

/// Writes members of the object at hand.
fn write_members(members: &Map<String, Value>, out: &mut AnswerBuffer) {
    for (name, value) in members {
        out.member(name, value);
    }
}

impl Buckets {
    fn write(&self, format: &Format, typed: bool, out: &mut AnswerBuffer) -> Result<()> {
        match &self.shape {
            BucketsKind::Terms { other, .. } | BucketsKind::MultiTerms { other, .. } => {
                out.member("doc_count_error_upper_bound", &0);
                out.member("sum_other_doc_count", other);
            }
            // As OpenSearch says nothing of a field that no index has.
            BucketsKind::SignificantTerms { key_type: KeyType::Unmapped, .. } => {}
            BucketsKind::SignificantTerms { doc_count, background, .. } => {
                out.member("doc_count", doc_count);
                out.member("bg_count", background);
            }
            BucketsKind::Composite { parts, after: Some(after) } => {
                out.member("after_key", &composite_key(parts, after));
            }
            _ => {}
        }
        out.key("buckets");
        out.push(if self.keyed { b'{' } else { b'[' });
        for bucket in &self.buckets {
            match self.keyed {
                true => out.key(&self.key_text(bucket, format)),
                false => out.item(),
            }
            out.push(b'{');
            write_members(&self.head(bucket, format), out);
            bucket.subs.write_members(typed, out)?;
            out.push(b'}');
            out.check()?;
        }
        out.push(if self.keyed { b'}' } else { b']' });
        if let BucketsKind::AutoDateHistogram { interval } = &self.shape {
            out.member("interval", interval.as_ref());
        }
        Ok(())
    }

    /// Makes the members of a bucket before the results of its sub-aggregations.
    fn head(&self, bucket: &Bucket, format: &Format) -> Map<String, Value> {
        let mut object = Map::new();
        let key = &bucket.key;
        match &self.shape {
            BucketsKind::Terms { .. } | BucketsKind::RareTerms(_) | BucketsKind::SignificantTerms { .. } => {
                object.insert("key".into(), plain(key));
                if !format.is_raw() && matches!(key, Key::Long(_) | Key::Unsigned(_) | Key::Double(_)) {
                    object.insert("key_as_string".into(), json!(format.key_text(key)));
                }
            }
            BucketsKind::MultiTerms { formats, .. } => {
                if let Key::List(keys) = key {
                    let parts = keys.iter().zip(formats.iter());
                    object.insert("key".into(), parts.map(|(key, format)| format.part(key)).collect());
                }
                object.insert("key_as_string".into(), json!(self.key_text(bucket, format)));
            }
            BucketsKind::Composite { parts, .. } => {
                object.insert("key".into(), composite_key(parts, key));
            }
            BucketsKind::DateHistogram | BucketsKind::AutoDateHistogram { .. } | BucketsKind::Histogram => {
                if !format.is_raw() {
                    object.insert("key_as_string".into(), json!(format.key_text(key)));
                }
                object.insert("key".into(), plain(key));
            }
            BucketsKind::Range
            | BucketsKind::DateRange
            | BucketsKind::IpRange
            | BucketsKind::AdjacencyMatrix
                if !self.keyed =>
            {
                object.insert("key".into(), json!(self.key_text(bucket, format)));
            }
            _ => {}
        }
        match bucket.detail {
            Detail::Range { from, to } => {
                for (name, bound) in [("from", from), ("to", to)] {
                    let Some(bound) = bound.filter(|bound| bound.is_finite()) else { continue };
                    object.insert(name.into(), double(bound));
                    if !format.is_raw() {
                        object.insert(format!("{name}_as_string"), json!(format.text(bound)));
                    }
                }
            }
            Detail::IpRange { from, to } => {
                for (name, bound) in [("from", from), ("to", to)] {
                    if let Some(bound) = bound {
                        object.insert(name.into(), json!(&*AddressText::new(bound)));
                    }
                }
            }
            Detail::None | Detail::Significant { .. } => {}
        }
        object.insert("doc_count".into(), json!(bucket.doc_count));
        match (&self.shape, &bucket.detail) {
            (
                BucketsKind::Terms { show_error: true, .. }
                | BucketsKind::MultiTerms { show_error: true, .. },
                _,
            ) => {
                object.insert("doc_count_error_upper_bound".into(), json!(0));
            }
            (_, Detail::Significant { score, background }) => {
                object.insert("score".into(), double(*score));
                object.insert("bg_count".into(), json!(background));
            }
            _ => {}
        }
        object
    }
}

impl Bucket {
    /// Writes the key of a range that has no name: its bounds.
    pub(super) fn range_text(&self, format: &Format) -> Option<String> {
        let text = |from: Option<String>, to: Option<String>| {
            let open = || "*".to_owned();
            Some(format!("{}-{}", from.unwrap_or_else(open), to.unwrap_or_else(open)))
        };
        match self.detail {
            Detail::Range { from, to } => {
                let bound = |bound: Option<f64>| {
                    bound.filter(|bound| bound.is_finite()).map(|bound| format.text(bound))
                };
                text(bound(from), bound(to))
            }
            Detail::IpRange { from, to } => {
                let shown = |bound: [u8; 16]| AddressText::new(bound).to_string();
                text(from.map(shown), to.map(shown))
            }
            _ => None,
        }
    }
}

fn composite_key(parts: &[(std::sync::Arc<str>, Format)], key: &Key) -> Value {
    let Key::List(keys) = key else { return Value::Null };
    let members = parts.iter().zip(keys.iter());
    Value::Object(members.map(|((name, format), key)| (name.to_string(), format.part(key))).collect())
}

/// Adds a value, null where it is absent, and its text where the format has one.
fn value(object: &mut Map<String, Value>, format: &Format, number: Option<f64>) {
    object.insert("value".into(), number.map_or(Value::Null, double));
    if let Some(number) = number.filter(|_| !format.is_raw()) {
        object.insert("value_as_string".into(), json!(format.text(number)));
    }
}

/// Adds numbers, and behind them their texts.
fn numbers(object: &mut Map<String, Value>, format: &Format, numbers: &[(&str, f64)]) {
    for (name, number) in numbers {
        object.insert((*name).to_owned(), double(*number));
    }
    if !format.is_raw() {
        for (name, number) in numbers {
            object.insert(format!("{name}_as_string"), json!(format.text(*number)));
        }
    }
}

impl Metric {
    fn render(&self, format: &Format, object: &mut Map<String, Value>) {
        let finite = |number: f64| Some(number).filter(|number| number.is_finite());
        match self {
            Self::Avg { sum, count } => {
                value(object, format, (*count > 0).then(|| sum / *count as f64));
            }
            Self::Sum(sum) => value(object, format, Some(*sum)),
            Self::Min(number) | Self::Max(number) => {
                value(object, format, Some(*number).filter(|number| !number.is_infinite()));
            }
            Self::ValueCount(count) | Self::Cardinality(count) => {
                object.insert("value".into(), json!(count));
            }
            Self::Stats(stats) | Self::StatsBucket(stats) => stats.render(format, object),
            Self::ExtendedStats(stats) | Self::ExtendedStatsBucket(stats) => stats.render(format, object),
            Self::Percentiles(found) | Self::PercentileRanks(found) => {
                found.render(format, object, |_| "value_as_string".to_owned());
            }
            Self::PercentilesBucket(found) => {
                found.render(format, object, |key| format!("{key}_as_string"));
            }
            Self::MedianAbsoluteDeviation(number) => {
                value(object, format, Some(*number).filter(|number| !number.is_nan()));
            }
            Self::WeightedAvg { sum, weight } => {
                value(object, format, (*weight != 0.0).then(|| sum / weight));
            }
            Self::GeoBounds(None) => {}
            Self::GeoBounds(Some(bounds)) => {
                let corners = json!({
                    "top_left": {"lat": bounds.top, "lon": bounds.left},
                    "bottom_right": {"lat": bounds.bottom, "lon": bounds.right},
                });
                object.insert("bounds".into(), corners);
            }
            Self::MatrixStats(matrix) => matrix.render(object),
            Self::Simple(number) => value(object, format, finite(*number)),
            Self::Derivative { value: number, normalized } => {
                value(object, format, finite(*number));
                if let Some(normalized) = normalized {
                    let shown = finite(*normalized);
                    object.insert("normalized_value".into(), shown.map_or(Value::Null, double));
                    if let Some(shown) = shown.filter(|_| !format.is_raw()) {
                        object.insert("normalized_value_as_string".into(), json!(format.text(shown)));
                    }
                }
            }
            Self::BucketValue { value: number, keys } => {
                value(object, format, Some(*number).filter(|number| !number.is_infinite()));
                object.insert("keys".into(), json!(&**keys));
            }
        }
    }
}

impl Stats {
    fn render(&self, format: &Format, object: &mut Map<String, Value>) {
        object.insert("count".into(), json!(self.count));
        if self.count == 0 {
            for name in ["min", "max", "avg"] {
                object.insert(name.into(), Value::Null);
            }
            object.insert("sum".into(), json!(0.0));
            return;
        }
        let shown = [("min", self.min), ("max", self.max), ("avg", self.avg()), ("sum", self.sum)];
        numbers(object, format, &shown);
    }
}

/// Names of the bounds of `extended_stats`.
const BOUNDS: [&str; 6] =
    ["upper", "lower", "upper_population", "lower_population", "upper_sampling", "lower_sampling"];

impl ExtendedStats {
    fn render(&self, format: &Format, object: &mut Map<String, Value>) {
        self.stats.render(format, object);
        let (population, sampling) = (self.variance(), self.variance_sampling());
        let shown = [
            ("sum_of_squares", self.squares),
            ("variance", population),
            ("variance_population", population),
            ("variance_sampling", sampling),
            ("std_deviation", population.sqrt()),
            ("std_deviation_population", population.sqrt()),
            ("std_deviation_sampling", sampling.sqrt()),
        ];
        if self.stats.count == 0 {
            for (name, _) in shown {
                object.insert(name.into(), Value::Null);
            }
            let none: Map<String, Value> =
                BOUNDS.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
            object.insert("std_deviation_bounds".into(), Value::Object(none));
            return;
        }
        for (name, number) in shown {
            object.insert(name.into(), double(number));
        }
        let ((upper, lower), (upper_sampling, lower_sampling)) =
            (self.bounds(population), self.bounds(sampling));
        let bounds = [upper, lower, upper, lower, upper_sampling, lower_sampling];
        let named = |write: &dyn Fn(f64) -> Value| -> Value {
            let members = BOUNDS.iter().zip(bounds);
            Value::Object(members.map(|(name, bound)| ((*name).to_owned(), write(bound))).collect())
        };
        object.insert("std_deviation_bounds".into(), named(&double));
        if !format.is_raw() {
            for (name, number) in shown {
                object.insert(format!("{name}_as_string"), json!(format.text(number)));
            }
            let texts = named(&|bound| json!(format.text(bound)));
            object.insert("std_deviation_bounds_as_string".into(), texts);
        }
    }
}

impl Percentiles {
    fn render(&self, format: &Format, object: &mut Map<String, Value>, text_name: fn(&str) -> String) {
        let shown = |number: f64| if number.is_nan() { Value::Null } else { double(number) };
        let text = |number: f64| (!format.is_raw() && !number.is_nan()).then(|| json!(format.text(number)));
        let values = if self.keyed {
            let mut members = Map::new();
            for (key, number) in &self.values {
                let key = super::format::java_double(*key);
                let text = text(*number);
                members.insert(key.clone(), shown(*number));
                if let Some(text) = text {
                    members.insert(format!("{key}_as_string"), text);
                }
            }
            Value::Object(members)
        } else {
            let item = |(key, number): &(f64, f64)| {
                let mut item = Map::new();
                item.insert("key".into(), double(*key));
                item.insert("value".into(), shown(*number));
                if let Some(text) = text(*number) {
                    item.insert(text_name(&super::format::java_double(*key)), text);
                }
                Value::Object(item)
            };
            self.values.iter().map(item).collect()
        };
        object.insert("values".into(), values);
    }
}

impl MatrixStats {
    fn render(&self, object: &mut Map<String, Value>) {
        object.insert("doc_count".into(), json!(self.doc_count));
        if self.fields.is_empty() {
            return;
        }
        let by_name = |numbers: &[f64]| -> Value {
            let names = self.fields.iter().map(|field| field.name.to_string());
            Value::Object(names.zip(numbers.iter().map(|number| double(*number))).collect())
        };
        let fields = self.fields.iter().map(|field| {
            json!({
                "name": &*field.name,
                "count": self.doc_count,
                "mean": double(field.mean),
                "variance": double(field.variance),
                "skewness": double(field.skewness),
                "kurtosis": double(field.kurtosis),
                "covariance": by_name(&field.covariance),
                "correlation": by_name(&field.correlation),
            })
        });
        object.insert("fields".into(), fields.collect());
    }
}
