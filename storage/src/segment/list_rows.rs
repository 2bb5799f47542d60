//! Row sets as lists.

use roaring::bitmap::Iter;

/// Lists rows of a set, many at a time: several times as fast as one by one.
pub fn list_rows(mut rows: Iter<'_>) -> Vec<u32> {
    let mut list = vec![0; rows.size_hint().0];
    let mut end = 0;
    while end < list.len() {
        match rows.next_many(&mut list[end..]).len() {
            0 => break,
            more => end += more,
        }
    }
    list.truncate(end);
    list.extend(rows);
    list
}

#[cfg(test)]
mod tests {
    use roaring::RoaringBitmap;

    use super::*;

    #[test]
    fn a_list_has_the_rows_of_arrays_bits_and_runs() {
        let mut set: RoaringBitmap = (0..70_000).step_by(3).chain([70_001, 200_000, u32::MAX]).collect();
        set.insert_range(300_000..450_000);
        set.optimize();
        for range in [0..=u32::MAX, 5..=70_001, 65_535..=65_536, 310_000..=310_007, 80_000..=90_000] {
            let expected: Vec<u32> = set.range(range.clone()).collect();
            assert_eq!(list_rows(set.range(range)), expected);
        }
    }
}
