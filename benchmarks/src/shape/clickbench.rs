//! Hits of a web analytics service, in the shape of ClickBench: its columns that statements read, with their cardinality and skew.
//!
//! ClickBench's table has 100 million rows of July 2013; a corpus has a part of them. Distinct users, pages, referrers and phrases grow
//! with the corpus as they do there.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::Generator;
use crate::query::Operation;
use crate::random::{Random, Zipf};
use crate::timestamp::push_iso;
use crate::words::WORDS;

/// First millisecond of the corpus: 1 July 2013 UTC.
const START_MS: i64 = 1_372_636_800_000;
/// Milliseconds that a corpus covers: 31 days.
const SPAN_MS: i64 = 31 * 86_400_000;
const WIDTHS: [u16; 12] = [1368, 1920, 1280, 1440, 1600, 1024, 1680, 1152, 768, 800, 2560, 0];
const MODELS: [&str; 16] = [
    "iPad",
    "iPhone",
    "A500",
    "N8-00",
    "GT-I9300",
    "GT-P3100",
    "C5",
    "Desire",
    "Nexus 7",
    "Lumia 820",
    "GT-N7000",
    "ST26i",
    "W8",
    "LG-E612",
    "A1-810",
    "One X",
];
const HOSTS: [&str; 8] = [
    "example.ru",
    "market.example.com",
    "auto.example.ru",
    "news.example.org",
    "video.example.com",
    "holodilnik.example.ru",
    "irr.example.ru",
    "google.example.com",
];
/// Share of hits that came with a search phrase.
const SEARCHED: f64 = 0.13;
/// Share of the rows that are distinct pages.
const PAGES: f64 = 0.18;

/// The generator.
pub(super) struct ClickBench {
    random: Random,
    position: u64,
    total: u64,
    by_counter: Zipf,
    by_region: Zipf,
    by_word: Zipf,
    by_width: Zipf,
    by_host: Zipf,
}

impl ClickBench {
    pub(super) fn new(seed: u64, total: u64) -> Self {
        Self {
            random: Random::new(seed),
            position: 0,
            total: total.max(1),
            by_counter: Zipf::new(6_500, 1.1),
            by_region: Zipf::new(9_000, 1.2),
            by_word: Zipf::new(WORDS.len(), 0.9),
            by_width: Zipf::new(WIDTHS.len(), 0.9),
            by_host: Zipf::new(HOSTS.len(), 1.6),
        }
    }

    /// Draws one of `count` things, of which few are met often.
    fn skewed(&mut self, count: u64) -> u64 {
        let unit = self.random.unit();
        ((count.max(1) as f64) * unit * unit * unit) as u64
    }

    /// Draws a number that depends on another alone.
    fn hash(of: u64, salt: u64) -> u64 {
        Random::new(of ^ (salt << 48)).next()
    }

    /// Writes words that belong to a number.
    fn words(&self, out: &mut Vec<u8>, of: u64, count: usize) {
        let mut random = Random::new(of);
        for at in 0..count {
            if at > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(WORDS[self.by_word.draw(&mut random)].as_bytes());
        }
    }

    /// Writes the address of a page.
    fn url(&self, out: &mut Vec<u8>, page: u64) {
        let host = HOSTS[self.by_host.draw(&mut Random::new(page ^ 0x5eed))];
        let _ = write!(out, "http://{host}/{}/{page:x}.html", WORDS[page as usize % WORDS.len()]);
    }
}

impl Generator for ClickBench {
    fn next(&mut self, out: &mut Vec<u8>) {
        let time = START_MS + (SPAN_MS as f64 * (self.position as f64 / self.total as f64)) as i64;
        let watch = Self::hash(self.position, 1) >> 1;
        self.position += 1;
        let users = (self.total as f64 * 0.17) as u64;
        let user = self.skewed(users);
        let pages = (self.total as f64 * PAGES) as u64;
        let (page, referer) = (self.skewed(pages), self.skewed(pages));
        let has_referer = self.random.chance(0.8);
        let counter = self.by_counter.draw(&mut self.random);
        let region = self.by_region.draw(&mut self.random);
        let width = WIDTHS[self.by_width.draw(&mut self.random)];
        let phrase = self.random.chance(SEARCHED).then(|| self.skewed((self.total as f64 * 0.06) as u64));
        let model = self.random.chance(0.055).then(|| MODELS[self.skewed(MODELS.len() as u64) as usize]);
        // Writing to a vector cannot fail.
        let _ = write!(out, "{{\"WatchID\":{watch},\"EventTime\":\"");
        push_iso(out, time);
        out.extend_from_slice(b"\",\"EventDate\":\"");
        push_iso(out, time - time.rem_euclid(86_400_000));
        let _ = write!(
            out,
            "\",\"CounterID\":{counter},\"ClientIP\":{},\"RegionID\":{region},\"UserID\":{},\"URL\":\"",
            Self::hash(user, 2) as u32,
            Self::hash(user, 3) >> 1,
        );
        self.url(out, page);
        out.extend_from_slice(b"\",\"Referer\":\"");
        if has_referer {
            self.url(out, referer);
        }
        out.extend_from_slice(b"\",\"Title\":\"");
        self.words(out, page / 2, 4);
        let _ = write!(
            out,
            "\",\"URLHash\":{},\"RefererHash\":{},\"IsRefresh\":{},\"DontCountHits\":{},\"IsLink\":{},\"IsDownload\":{},\"TraficSourceID\":{}",
            Self::hash(page, 4) >> 1,
            if has_referer { Self::hash(referer, 4) >> 1 } else { 0 },
            u8::from(self.random.chance(0.13)),
            u8::from(self.random.chance(0.1)),
            u8::from(self.random.chance(0.09)),
            u8::from(self.random.chance(0.01)),
            self.skewed(11) as i64 - 1,
        );
        let _ = write!(
            out,
            ",\"ResolutionWidth\":{width},\"ResolutionHeight\":{},\"WindowClientWidth\":{},\"WindowClientHeight\":{},\"AdvEngineID\":{},\"SearchEngineID\":{},\"SearchPhrase\":\"",
            width / 16 * 9,
            self.random.below(u64::from(width) + 1),
            self.random.below(1_000),
            if self.random.chance(0.0063) { self.skewed(18) + 1 } else { 0 },
            if phrase.is_some() { self.skewed(95) + 1 } else { 0 },
        );
        if let Some(phrase) = phrase {
            self.words(out, phrase, 3);
        }
        let _ = write!(
            out,
            "\",\"MobilePhone\":{},\"MobilePhoneModel\":\"{}\",\"OS\":{},\"UserAgent\":{},\"Age\":{},\"Sex\":{},\"Income\":{},\"HitColor\":\"{}\"}}",
            if model.is_some() { self.skewed(90) + 1 } else { 0 },
            model.unwrap_or_default(),
            self.skewed(90),
            self.skewed(80),
            self.random.below(60),
            self.random.below(3),
            self.random.below(5),
            if self.random.chance(0.9) { "5" } else { "A" },
        );
    }
}

pub(super) fn index_body() -> Value {
    let mut properties = Map::new();
    for name in ["EventTime", "EventDate"] {
        properties.insert(name.to_owned(), json!({"type": "date"}));
    }
    for name in ["URL", "Referer", "Title", "SearchPhrase", "MobilePhoneModel", "HitColor"] {
        properties.insert(name.to_owned(), json!({"type": "keyword"}));
    }
    for name in ["WatchID", "ClientIP", "UserID", "URLHash", "RefererHash"] {
        properties.insert(name.to_owned(), json!({"type": "long"}));
    }
    for name in ["CounterID", "RegionID"] {
        properties.insert(name.to_owned(), json!({"type": "integer"}));
    }
    for name in [
        "IsRefresh",
        "DontCountHits",
        "IsLink",
        "IsDownload",
        "TraficSourceID",
        "ResolutionWidth",
        "ResolutionHeight",
        "WindowClientWidth",
        "WindowClientHeight",
        "AdvEngineID",
        "SearchEngineID",
        "MobilePhone",
        "OS",
        "UserAgent",
        "Age",
        "Sex",
        "Income",
    ] {
        properties.insert(name.to_owned(), json!({"type": "short"}));
    }
    json!({
        "settings": {"number_of_shards": 1, "number_of_replicas": 0},
        "mappings": {"dynamic": "strict", "properties": properties},
    })
}

pub(super) fn operations(index: &str) -> Vec<Operation> {
    vec![
        Operation::search("term", index, json!({"query": {"term": {"CounterID": 62}}})),
        Operation::search(
            "newest",
            index,
            json!({"query": {"match_all": {}}, "sort": [{"EventTime": "desc"}]}),
        ),
        Operation::count("pages like", index, json!({"query": {"wildcard": {"URL": "*google*"}}})),
    ]
}
