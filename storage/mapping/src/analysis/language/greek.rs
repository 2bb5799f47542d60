//! The stemmer for Greek: G. Ntais, "Development of a Stemmer for the Greek Language", 2006, in the form
//! that Lucene gives it. Words come without accents and without the final sigma.

use super::light::{ends, swap};

/// Vowels at its end that keep a stem from losing a suffix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vowel {
    No,
    All,
    NotUpsilon,
}

/// Takes a suffix off, and puts a part of it back behind stems that have it from the start.
struct Step {
    /// Suffixes; the first that fits goes. One with `=` may be the whole word.
    endings: &'static [&'static str],
    back: &'static str,
    /// Stems that get it back,
    whole: &'static [&'static str],
    /// or how they end,
    tails: &'static [&'static str],
    /// with which vowels.
    vowel: Vowel,
    /// The stems that end so are those that do not get it back.
    negated: bool,
}

/// Words of their own, and what they lose.
#[rustfmt::skip]
const WORDS: [(usize, &[&str]); 12] = [
    (4, &["καθεστωτοσ", "καθεστωτων", "γεγονοτοσ", "γεγονοτων"]),
    (3, &["καθεστωτα"]),
    (4, &["τατογιου", "τατογιων"]),
    (3, &["γεγονοτα"]),
    (2, &["καθεστωσ"]),
    (4, &[
        "σκαγιου", "σκαγιων", "ολογιου", "ολογιων", "κρεατοσ", "κρεατων", "περατοσ", "περατων",
        "τερατοσ", "τερατων"
    ]),
    (3, &["τατογια"]),
    (2, &["γεγονοσ"]),
    (4, &["φαγιου", "φαγιων", "σογιου", "σογιων"]),
    (3, &["σκαγια", "ολογια", "κρεατα", "περατα", "τερατα", "φαγια", "σογια", "φωτοσ", "φωτων"]),
    (2, &["κρεασ", "περασ", "τερασ", "φωτα"]),
    (1, &["φωσ"]),
];

#[rustfmt::skip]
const FIRST: [Step; 12] = [
    Step {
        endings: &["αδεσ", "αδων"],
        back: "αδ",
        whole: &[],
        tails: &["οκ", "μαμ", "μαν", "μπαμπ", "πατερ", "γιαγι", "νταντ", "κυρ", "θει", "πεθερ"],
        vowel: Vowel::No,
        negated: true,
    },
    Step {
        endings: &["εδεσ", "εδων"],
        back: "εδ",
        whole: &[],
        tails: &["οπ", "ιπ", "εμπ", "υπ", "γηπ", "δαπ", "κρασπ", "μιλ"],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["ουδεσ", "ουδων"],
        back: "ουδ",
        whole: &[],
        tails: &[
            "αρκ", "καλιακ", "πεταλ", "λιχ", "πλεξ", "σκ", "σ", "φλ", "φρ", "βελ", "λουλ", "χν", "σπ",
            "τραγ", "φε"
        ],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["εωσ", "εων"],
        back: "ε",
        whole: &["θ", "δ", "ελ", "γαλ", "ν", "π", "ιδ", "παρ"],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["ια", "ιου", "ιων"],
        back: "ι",
        whole: &[],
        tails: &[],
        vowel: Vowel::All,
        negated: false,
    },
    Step {
        endings: &["ικα", "ικο", "ικου", "ικων"],
        back: "ικ",
        whole: &[
            "αλ", "αδ", "ενδ", "αμαν", "αμμοχαλ", "ηθ", "ανηθ", "αντιδ", "φυσ", "βρωμ", "γερ", "εξωδ",
            "καλπ", "καλλιν", "καταδ", "μουλ", "μπαν", "μπαγιατ", "μπολ", "μποσ", "νιτ", "ξικ",
            "συνομηλ", "πετσ", "πιτσ", "πικαντ", "πλιατσ", "ποστελν", "πρωτοδ", "σερτ", "συναδ",
            "τσαμ", "υποδ", "φιλον", "φυλοδ", "χασ"
        ],
        tails: &[],
        vowel: Vowel::All,
        negated: false,
    },
    Step {
        endings: &["ηθηκαμε", "ουσαμε", "αγαμε", "ησαμε", "ηκαμε"],
        back: "",
        whole: &[],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["αμε"],
        back: "αμ",
        whole: &["αναπ", "αποθ", "αποκ", "αποστ", "βουβ", "ξεθ", "ουλ", "πεθ", "πικρ", "ποτ", "σιχ", "χ"],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &[
            "ιουντανε", "ιοντανε", "=ουντανε", "=ηθηκανε", "ιοτανε", "=οντανε", "=ουσανε", "αγανε",
            "=ησανε", "=οτανε", "=ηκανε"
        ],
        back: "αγαν",
        whole: &["τρ", "τσ"],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["ανε"],
        back: "αν",
        whole: &[
            "βετερ", "βουλκ", "βραχμ", "γ", "δραδουμ", "θ", "καλπουζ", "καστελ", "κορμορ", "λαοπλ",
            "μωαμεθ", "μ", "μουσουλμ", "ν", "ουλ", "π", "πελεκ", "πλ", "πολισ", "πορτολ", "σαρακατσ",
            "σουλτ", "τσαρλατ", "ορφ", "τσιγγ", "τσοπ", "φωτοστεφ", "χ", "ψυχοπλ", "αγ", "γαλ", "γερ",
            "δεκ", "διπλ", "αμερικαν", "ουρ", "πιθ", "πουριτ", "σ", "ζωντ", "ικ", "καστ", "κοπ", "λιχ",
            "λουθηρ", "μαιντ", "μελ", "σιγ", "σπ", "στεγ", "τραγ", "τσαγ", "φ", "ερ", "αδαπ", "αθιγγ",
            "αμηχ", "ανικ", "ανοργ", "απηγ", "απιθ", "ατσιγγ", "βασ", "βασκ", "βαθυγαλ", "βιομηχ",
            "βραχυκ", "διατ", "διαφ", "ενοργ", "θυσ", "καπνοβιομηχ", "καταγαλ", "κλιβ", "κοιλαρφ",
            "λιβ", "μεγλοβιομηχ", "μικροβιομηχ", "νταβ", "ξηροκλιβ", "ολιγοδαμ", "ολογαλ", "πενταρφ",
            "περηφ", "περιτρ", "πλατ", "πολυδαπ", "πολυμηχ", "στεφ", "ταβ", "τετ", "υπερηφ", "υποκοπ",
            "χαμηλοδαπ", "ψηλοταβ"
        ],
        tails: &[],
        vowel: Vowel::NotUpsilon,
        negated: false,
    },
    Step {
        endings: &["ησετε"],
        back: "",
        whole: &[],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["ετε"],
        back: "ετ",
        whole: &[
            "αβαρ", "βεν", "εναρ", "αβρ", "αδ", "αθ", "αν", "απλ", "βαρον", "ντρ", "σκ", "κοπ", "μπορ",
            "νιφ", "παγ", "παρακαλ", "σερπ", "σκελ", "συρφ", "τοκ", "υ", "δ", "εμ", "θαρρ", "θ"
        ],
        tails: &[
            "οδ", "αιρ", "φορ", "ταθ", "διαθ", "σχ", "ενδ", "ευρ", "τιθ", "υπερθ", "ραθ", "ενθ", "ροθ",
            "σθ", "πυρ", "αιν", "συνδ", "συν", "συνθ", "χωρ", "πον", "βρ", "καθ", "ευθ", "εκθ", "νετ",
            "ρον", "αρκ", "βαρ", "βολ", "ωφελ"
        ],
        vowel: Vowel::NotUpsilon,
        negated: false,
    },
];

#[rustfmt::skip]
const SECOND: [Step; 11] = [
    Step {
        endings: &["ομαστε"],
        back: "ομαστ",
        whole: &["ον"],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["ιεστε"],
        back: "ιεστ",
        whole: &["π", "απ", "συμπ", "ασυμπ", "ακαταπ", "αμεταμφ"],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["εστε"],
        back: "εστ",
        whole: &["αλ", "αρ", "εκτελ", "ζ", "μ", "ξ", "παρακαλ", "προ", "νισ"],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["ηθηκεσ", "ηθηκα", "ηθηκε"],
        back: "",
        whole: &[],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["ηκεσ", "ηκα", "ηκε"],
        back: "ηκ",
        whole: &["διαθ", "θ", "παρακαταθ", "προσθ", "συνθ"],
        tails: &["σκωλ", "σκουλ", "ναρθ", "σφ", "οθ", "πιθ"],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["ουσεσ", "ουσα", "ουσε"],
        back: "ουσ",
        whole: &[
            "φαρμακ", "χαδ", "αγκ", "αναρρ", "βρομ", "εκλιπ", "λαμπιδ", "λεχ", "μ", "πατ", "ρ", "λ",
            "μεδ", "μεσαζ", "υποτειν", "αμ", "αιθ", "ανηκ", "δεσποζ", "ενδιαφερ", "δε", "δευτερευ",
            "καθαρευ", "πλε", "τσα"
        ],
        tails: &[
            "ποδαρ", "βλεπ", "πανταχ", "φρυδ", "μαντιλ", "μαλλ", "κυματ", "λαχ", "ληγ", "φαγ", "ομ",
            "πρωτ"
        ],
        vowel: Vowel::All,
        negated: false,
    },
    Step {
        endings: &["αγεσ", "αγα", "αγε"],
        back: "αγ",
        whole: &[
            "αβαστ", "πολυφ", "αδηφ", "παμφ", "ρ", "ασπ", "αφ", "αμαλ", "αμαλλι", "ανυστ", "απερ",
            "ασπαρ", "αχαρ", "δερβεν", "δροσοπ", "ξεφ", "νεοπ", "νομοτ", "ολοπ", "ομοτ", "προστ",
            "προσωποπ", "συμπ", "συντ", "τ", "υποτ", "χαρ", "αειπ", "αιμοστ", "ανυπ", "αποτ", "αρτιπ",
            "διατ", "εν", "επιτ", "κροκαλοπ", "σιδηροπ", "λ", "ναυ", "ουλαμ", "ουρ", "π", "τρ", "μ"
        ],
        tails: &["οφ", "πελ", "χορτ", "λλ", "σφ", "ρπ", "φρ", "πρ", "λοχ", "σμην"],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["ησου", "ησε", "ησα"],
        back: "ησ",
        whole: &["ν", "χερσον", "δωδεκαν", "ερημον", "μεγαλον", "επταν"],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["ηστε"],
        back: "ηστ",
        whole: &["ασβ", "σβ", "αχρ", "χρ", "απλ", "αειμν", "δυσχρ", "ευχρ", "κοινοχρ", "παλιμψ"],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["ησουνε", "ηθουνε", "ουνε"],
        back: "ουν",
        whole: &["ν", "ρ", "σπι", "στραβομουτσ", "κακομουτσ", "εξων"],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
    Step {
        endings: &["ησουμε", "ηθουμε", "ουμε"],
        back: "ουμ",
        whole: &["παρασουσ", "φ", "χ", "ωριοπλ", "αζ", "αλλοσουσ", "ασουσ"],
        tails: &[],
        vowel: Vowel::No,
        negated: false,
    },
];

/// Suffixes of words that no other rule has changed, longest first.
#[rustfmt::skip]
const LONG: &[&str] = &[
    "ιοντουσαν", "ιομασταν", "ιοσασταν", "ιουμαστε", "οντουσαν", "ιεμαστε", "ιεσαστε", "ιομουνα",
    "ιοσαστε", "ιοσουνα", "ιουνται", "ιουνταν", "ηθηκατε", "ομασταν", "οσασταν", "ουμαστε", "ιομουν",
    "ιονταν", "ιοσουν", "ηθειτε", "ηθηκαν", "ομουνα", "οσαστε", "οσουνα", "ουνται", "ουνταν", "ουσατε",
    "αγατε", "ιεμαι", "ιεται", "ιεσαι", "ιοταν", "ιουμα", "ηθεισ", "ηθουν", "ηκατε", "ησατε", "ησουν",
    "ομουν", "ονται", "ονταν", "οσουν", "ουμαι", "ουσαν", "αγαν", "αμαι", "ασαι", "αται", "ειτε",
    "εσαι", "εται", "ηδεσ", "ηδων", "ηθει", "ηκαν", "ησαν", "ησει", "ησεσ", "ομαι", "οταν", "αει",
    "εισ", "ηθω", "ησω", "ουν", "ουσ", "αν", "ασ", "αω", "ει", "εσ", "ησ", "οι", "οσ", "ου", "υσ",
    "ων"
];

fn is_vowel(c: Option<&char>, vowel: Vowel) -> bool {
    match (c, vowel) {
        (_, Vowel::No) => false,
        (Some('υ'), kind) => kind == Vowel::All,
        (Some('α' | 'ε' | 'η' | 'ι' | 'ο' | 'ω'), _) => true,
        _ => false,
    }
}

impl Step {
    fn apply(&self, word: &mut Vec<char>) {
        let found = self.endings.iter().find_map(|ending| {
            let (suffix, least) = ending.strip_prefix('=').map_or((*ending, 1), |suffix| (suffix, 0));
            let length = suffix.chars().count();
            (word.len() >= length + least && ends(word, suffix)).then_some(length)
        });
        let Some(length) = found else { return };
        swap(word, length, "");
        let is = |stem: &str| word.len() == stem.chars().count() && ends(word, stem);
        let kept = is_vowel(word.last(), self.vowel)
            || self.whole.iter().any(|stem| is(stem))
            || self.tails.iter().any(|tail| ends(word, tail));
        // Two stems that a tail would keep lose the suffix all the same.
        let excepted =
            self.back == "αγ" && (["ψοφ", "ναυλοχ"].iter().any(|stem| is(stem)) || ends(word, "κολλ"));
        if kept != self.negated && !excepted {
            word.extend(self.back.chars());
        }
    }
}

pub(super) fn stem(word: &mut Vec<char>) {
    if word.len() < 4 {
        return;
    }
    let length = word.len();
    let own = WORDS.iter().find(|(_, words)| words.iter().any(|ending| ends(word, ending)));
    if let Some((count, _)) = own {
        swap(word, *count, "");
    }
    for step in &FIRST {
        // A word that is itself an ending loses its last letter, and nothing else by that step.
        if step.back.is_empty() && step.endings[0] == "ηθηκαμε" && word.len() == 5 && ends(word, "αγαμε")
        {
            word.pop();
            continue;
        }
        step.apply(word);
    }
    if word.len() > 5 && ["οντασ", "ωντασ"].iter().any(|suffix| ends(word, suffix)) {
        swap(word, 5, "");
        if word.len() == 3 && ends(word, "αρχ") {
            swap(word, 0, "οντ");
        } else if ends(word, "κρε") {
            swap(word, 0, "ωντ");
        }
    }
    for step in &SECOND {
        step.apply(word);
    }
    if word.len() > 5 && ["ματων", "ματοσ"].iter().any(|suffix| ends(word, suffix)) {
        swap(word, 3, "");
    } else if word.len() > 4 && ends(word, "ματα") {
        swap(word, 2, "");
    }
    if word.len() == length {
        let found = LONG
            .iter()
            .map(|suffix| (suffix, suffix.chars().count()))
            .find(|(suffix, count)| word.len() > *count && ends(word, suffix));
        if let Some((_, count)) = found {
            swap(word, count, "");
        } else if word.len() > 1 && is_vowel(word.last(), Vowel::All) {
            word.pop();
        }
    }
    let degree = ["εστερ", "εστατ", "οτερ", "οτατ", "υτερ", "υτατ", "ωτερ", "ωτατ"];
    if let Some(suffix) = degree.iter().find(|suffix| ends(word, suffix)) {
        swap(word, suffix.chars().count(), "");
    }
}
