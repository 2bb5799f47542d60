//! Collection of files that no snapshot needs: a pure decision.

use std::collections::{HashMap, HashSet};

use crate::contents::IndexContents;
use crate::digest::ContentDigest;
use crate::manifest::Manifest;

/// Files that snapshots need.
#[derive(Debug, Default)]
pub(crate) struct References(HashSet<ContentDigest>);

impl References {
    /// Adds what a manifest names itself; returns the contents of indices that were not known yet, which name more.
    pub(crate) fn add_manifest(&mut self, manifest: &Manifest) -> Vec<(ContentDigest, u64)> {
        let own = manifest.global_state.iter().chain(&manifest.accounts);
        self.0.extend(own.map(|(digest, _)| *digest));
        let indices = manifest.indices.iter().map(|index| (index.contents, index.contents_bytes));
        indices.filter(|(digest, _)| self.0.insert(*digest)).collect()
    }

    /// Adds the files that an index names.
    pub(crate) fn add_index(&mut self, contents: &IndexContents) {
        self.0.extend(contents.files().map(|file| file.sha256));
    }

    /// Lists the files that are there and not needed, with their lengths, in order.
    pub(crate) fn unreferenced(&self, present: &HashMap<ContentDigest, u64>) -> Vec<(ContentDigest, u64)> {
        let unneeded = present.iter().filter(|(digest, _)| !self.0.contains(*digest));
        let mut unneeded: Vec<_> = unneeded.map(|(digest, bytes)| (*digest, *bytes)).collect();
        unneeded.sort_unstable();
        unneeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::IndexSummary;
    use crate::manifest::tests::manifest;

    #[test]
    fn what_any_manifest_names_stays() {
        let digest = |number: u8| ContentDigest::of_bytes(&[number]);
        let index = |number: u8| IndexSummary {
            name: format!("i{number}"),
            uuid: uuid::Uuid::from_u128(u128::from(number)),
            shards: 1,
            system: false,
            contents: digest(number),
            contents_bytes: 1,
            files: 0,
            bytes: 0,
        };
        let mut references = References::default();
        let one = Manifest { indices: vec![index(1), index(2)], ..manifest("one") };
        let two = Manifest {
            indices: vec![index(2)],
            global_state: Some((digest(9), 1)),
            accounts: Some((digest(10), 1)),
            ..manifest("two")
        };
        assert_eq!(references.add_manifest(&one).len(), 2);
        assert!(references.add_manifest(&two).is_empty(), "contents that are known are not read twice");
        let present: HashMap<_, _> = [1, 2, 3, 9, 10, 4].map(|number| (digest(number), 5)).into();
        let mut expected = vec![(digest(3), 5), (digest(4), 5)];
        expected.sort_unstable();
        assert_eq!(references.unreferenced(&present), expected);
    }
}
