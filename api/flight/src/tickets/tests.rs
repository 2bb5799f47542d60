use std::sync::Arc;

use millrace_catalog::access::{ActionSet, Privileges};
use proptest::prelude::*;

use super::*;

fn principal(caller: Caller) -> Principal {
    Principal::new(caller, Vec::new(), Arc::new(Privileges::new(ActionSet::NONE, Vec::new())))
}

fn owner(caller: Caller) -> Owner {
    Owner::new(&principal(caller))
}

fn user(name: &str) -> Owner {
    owner(Caller::User(name.into()))
}

#[test]
fn a_ticket_is_its_owners_until_its_end() {
    let seals = Seals::new();
    let ticket = Ticket::new(Kind::Statement, [7; 16], "SELECT 1", 1_000);
    let sealed = seals.seal(&user("ann"), &ticket);
    assert_eq!(seals.open(&user("ann"), &sealed, 1_000).unwrap(), ticket);
    let key = Caller::ApiKey { id: "ann".into(), name: "n".into(), owner: "ann".into() };
    for other in [user("bob"), owner(key), owner(Caller::Pipeline("ann".into()))] {
        let error = seals.open(&other, &sealed, 1_000).unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
    }
    assert!(Seals::new().open(&user("ann"), &sealed, 1_000).is_err());
    let error = seals.open(&user("ann"), &sealed, ticket.ends_ms).unwrap_err();
    assert_eq!(error.code(), tonic::Code::NotFound);
}

#[test]
fn an_api_key_has_things_of_its_own_and_the_bounds_of_its_user() {
    let key = |id: &str, owner: &str| {
        principal(Caller::ApiKey { id: id.into(), name: "n".into(), owner: owner.into() })
    };
    let ann = principal(Caller::User("ann".into()));
    let keys = [key("a", "ann"), key("b", "ann"), key("a", "bob")];
    assert_eq!(keys.each_ref().map(|key| User::new(key) == User::new(&ann)), [true, true, false]);
    assert_eq!(keys.each_ref().map(|key| Owner::new(key) == Owner::new(&ann)), [false; 3]);
    assert_ne!(Owner::new(&keys[0]), Owner::new(&keys[1]));
}

/// Number of mutated tickets that the test tries: a few seconds of a debug build.
const MUTATIONS: u64 = 1_000_000;

/// Numbers that look random and are the same each time (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Changes bytes; some of it may be that of another ticket.
    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let (place, byte) = (self.below(bytes.len()), self.next() as u8);
        match self.below(9) {
            0 => bytes[place] ^= 1 << self.below(8),
            1 => bytes[place] = byte,
            2 => bytes.truncate(place),
            3 => bytes.insert(place, byte),
            4 => drop(bytes.remove(place)),
            5 => bytes.extend((0..=self.below(8)).map(|_| self.0 as u8)),
            6 => {
                let with = self.below(bytes.len());
                bytes.swap(place, with);
            }
            7 => {
                let end = place + self.below(bytes.len() - place);
                let part = bytes[place..end].to_vec();
                bytes.splice(place..place, part);
            }
            _ => {
                let end = place + self.below(bytes.len().min(other.len()).saturating_sub(place));
                let part = other.get(place..end).unwrap_or_default().to_vec();
                let end = place + part.len();
                bytes.splice(place..end, part);
            }
        }
    }
}

#[test]
fn of_a_million_changed_tickets_and_handles_none_is_taken() {
    let (seals, ann, bob) = (Seals::with_key(&[7; 32]), user("ann"), user("bob"));
    let (statement, prepared) = (b"SELECT n FROM logs".as_slice(), [7; 24]);
    // Tickets as clients get them, and a handle as it is.
    let sealed = |owner: &Owner, kind| {
        let (body, schema) = match kind {
            Kind::Prepared => (prepared.to_vec(), [1; 16]),
            Kind::Handle => (Vec::new(), [0; 16]),
            _ => (statement.to_vec(), [2; 16]),
        };
        let sealed =
            seals.seal(owner, &Ticket { id: [kind.byte(); 16], ..Ticket::new(kind, schema, body, 0) });
        if kind == Kind::Handle { sealed } else { wrapped(sealed) }
    };
    let taken = |kind, bytes: &Bytes| match kind {
        Kind::Handle => seals.open_handle(&ann, bytes).is_ok(),
        _ => unwrapped(bytes).is_ok_and(|sealed| seals.open(&ann, &sealed, 0).is_ok()),
    };
    let originals: Vec<(Kind, Bytes)> = Kind::ALL.map(|kind| (kind, sealed(&ann, kind))).into();
    // What is cut out of others is of the same owner, or of somebody else.
    let others: Vec<Bytes> =
        [ann, bob].iter().flat_map(|owner| Kind::ALL.map(|kind| sealed(owner, kind))).collect();
    for (kind, original) in &originals {
        assert!(taken(*kind, original));
    }
    let mut random = Random(1);
    let mut tried = 0;
    while tried < MUTATIONS {
        let (kind, original) = &originals[random.below(originals.len())];
        let mut changed = original.to_vec();
        for _ in 0..=random.below(3) {
            if !changed.is_empty() {
                let other = random.below(others.len());
                random.change(&mut changed, &others[other]);
            }
        }
        // What was changed back, or made another one as a whole, is no forgery.
        let changed = Bytes::from(changed);
        if changed != *original && !others.contains(&changed) {
            assert!(!taken(*kind, &changed), "{kind:?} {original:?} {changed:?}");
            tried += 1;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_was_changed_is_not_taken(
        text in "[ -~]{0,64}",
        place in any::<prop::sample::Index>(),
        change in 1u8..,
        cut in any::<prop::sample::Index>(),
        more in proptest::collection::vec(any::<u8>(), 1..8),
    ) {
        let (seals, ann) = (Seals::new(), user("ann"));
        let sealed = seals.seal(&ann, &Ticket::new(Kind::Listing, [0; 16], text.into_bytes(), 0));
        let mut changed = sealed.to_vec();
        let place = place.index(changed.len());
        changed[place] ^= change;
        prop_assert!(seals.open(&ann, &changed.into(), 0).is_err());
        prop_assert!(seals.open(&ann, &sealed.slice(..cut.index(sealed.len())), 0).is_err());
        let mut longer = sealed.to_vec();
        longer.extend(more);
        prop_assert!(seals.open(&ann, &longer.into(), 0).is_err());
    }
}
