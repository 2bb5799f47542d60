//! Names of months and days in other languages than English, as Java has them.

/// Names of a language. Each is in full and short, with bars between; days begin with Monday. Java writes most short names with a full
/// stop.
#[derive(Debug, PartialEq, Eq)]
pub struct TimeNames {
    language: &'static str,
    months: [&'static str; 12],
    days: [&'static str; 7],
}

#[rustfmt::skip]
static LANGUAGES: [TimeNames; 8] = [
    TimeNames {
        language: "da",
        months: ["januar|jan", "februar|feb", "marts|mar", "april|apr", "maj", "juni|jun", "juli|jul", "august|aug",
            "september|sep", "oktober|okt", "november|nov", "december|dec"],
        days: ["mandag|man", "tirsdag|tir", "onsdag|ons", "torsdag|tor", "fredag|fre", "lørdag|lør", "søndag|søn"],
    },
    TimeNames {
        language: "de",
        months: ["Januar|Jänner|Jan|Jän", "Februar|Feb", "März|Mär|Mrz", "April|Apr", "Mai", "Juni|Jun", "Juli|Jul",
            "August|Aug", "September|Sept|Sep", "Oktober|Okt", "November|Nov", "Dezember|Dez"],
        days: ["Montag|Mo", "Dienstag|Di", "Mittwoch|Mi", "Donnerstag|Do", "Freitag|Fr", "Samstag|Sonnabend|Sa",
            "Sonntag|So"],
    },
    TimeNames {
        language: "es",
        months: ["enero|ene", "febrero|feb", "marzo|mar", "abril|abr", "mayo|may", "junio|jun", "julio|jul", "agosto|ago",
            "septiembre|setiembre|sept|sep", "octubre|oct", "noviembre|nov", "diciembre|dic"],
        days: ["lunes|lun", "martes|mar", "miércoles|mié", "jueves|jue", "viernes|vie", "sábado|sáb", "domingo|dom"],
    },
    TimeNames {
        language: "fr",
        months: ["janvier|janv", "février|févr", "mars", "avril|avr", "mai", "juin", "juillet|juil", "août", "septembre|sept",
            "octobre|oct", "novembre|nov", "décembre|déc"],
        days: ["lundi|lun", "mardi|mar", "mercredi|mer", "jeudi|jeu", "vendredi|ven", "samedi|sam", "dimanche|dim"],
    },
    TimeNames {
        language: "it",
        months: ["gennaio|gen", "febbraio|feb", "marzo|mar", "aprile|apr", "maggio|mag", "giugno|giu", "luglio|lug", "agosto|ago",
            "settembre|set", "ottobre|ott", "novembre|nov", "dicembre|dic"],
        days: ["lunedì|lun", "martedì|mar", "mercoledì|mer", "giovedì|gio", "venerdì|ven", "sabato|sab", "domenica|dom"],
    },
    TimeNames {
        language: "nl",
        months: ["januari|jan", "februari|feb", "maart|mrt", "april|apr", "mei", "juni|jun", "juli|jul", "augustus|aug",
            "september|sep", "oktober|okt", "november|nov", "december|dec"],
        days: ["maandag|ma", "dinsdag|di", "woensdag|wo", "donderdag|do", "vrijdag|vr", "zaterdag|za", "zondag|zo"],
    },
    TimeNames {
        language: "pt",
        months: ["janeiro|jan", "fevereiro|fev", "março|mar", "abril|abr", "maio|mai", "junho|jun", "julho|jul", "agosto|ago",
            "setembro|set", "outubro|out", "novembro|nov", "dezembro|dez"],
        days: ["segunda-feira|seg", "terça-feira|ter", "quarta-feira|qua", "quinta-feira|qui", "sexta-feira|sex", "sábado|sáb",
            "domingo|dom"],
    },
    TimeNames {
        language: "sv",
        months: ["januari|jan", "februari|feb", "mars|mar", "april|apr", "maj", "juni|jun", "juli|jul", "augusti|aug",
            "september|sep", "oktober|okt", "november|nov", "december|dec"],
        days: ["måndag|mån", "tisdag|tis", "onsdag|ons", "torsdag|tors|tor", "fredag|fre", "lördag|lör", "söndag|sön"],
    },
];

impl TimeNames {
    /// Finds the names of a locale such as `fr`, `fr-FR` or `fr_FR.UTF-8`: `Some(None)` for those of English, which all have, and
    /// `None` for a language without names here.
    pub fn find(locale: &str) -> Option<Option<&'static Self>> {
        let language = locale.split(['-', '_', '.']).next().unwrap_or_default().to_ascii_lowercase();
        if matches!(language.as_str(), "en" | "c" | "posix") {
            return Some(None);
        }
        LANGUAGES.iter().find(|names| names.language == language).map(Some)
    }

    /// Languages with names here, for people.
    pub fn languages() -> String {
        let own = LANGUAGES.iter().map(|names| names.language);
        std::iter::once("en").chain(own).collect::<Vec<_>>().join(", ")
    }

    /// Reads the month that a text begins with, from 0; returns the text behind it, too. With `takes_stop`, a full stop behind a short
    /// name belongs to it.
    pub(super) fn month<'a>(&self, text: &'a str, takes_stop: bool) -> Option<(u32, &'a str)> {
        find(&self.months, text, takes_stop)
    }

    /// Reads the day that a text begins with, as [`Self::month`] does: 0 is Monday.
    pub(super) fn day<'a>(&self, text: &'a str, takes_stop: bool) -> Option<(u32, &'a str)> {
        find(&self.days, text, takes_stop)
    }
}

/// Finds the longest name that a text begins with, in any case.
fn find<'a>(names: &[&str], text: &'a str, takes_stop: bool) -> Option<(u32, &'a str)> {
    let mut found: Option<(u32, &str)> = None;
    for (at, all) in (0..).zip(names) {
        for (number, name) in all.split('|').enumerate() {
            let Some(mut rest) = strip_name(text, name) else { continue };
            if takes_stop && number > 0 {
                rest = rest.strip_prefix('.').unwrap_or(rest);
            }
            if found.is_none_or(|(_, before)| rest.len() < before.len()) {
                found = Some((at, rest));
            }
        }
    }
    found
}

fn strip_name<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = text.chars();
    let is_same = name.chars().all(|own| {
        rest.next().is_some_and(|given| given == own || given.to_lowercase().eq(own.to_lowercase()))
    });
    is_same.then_some(rest.as_str())
}
