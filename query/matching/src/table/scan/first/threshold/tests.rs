use std::sync::Arc;

use datafusion::arrow::array::Int64Array;

use super::*;

const ASKED: TopRowsRequest =
    TopRowsRequest { limit: 2, grouped: false, descending: false, by_address: false, after: None };

fn admitted(threshold: &Threshold, segment: u32, rows: &[u32], codes: &[u64]) -> Vec<bool> {
    threshold.admit(segment, rows, &ComparableKeys::Codes(codes.to_vec()), None).unwrap()
}

#[test]
fn the_threshold_falls_as_better_rows_come() {
    let threshold = Threshold::of_codes(ASKED);
    assert_eq!(admitted(&threshold, 0, &[0], &[9]), [true]);
    assert_eq!(admitted(&threshold, 0, &[1, 2], &[5, 7]), [true, true]);
    assert_eq!(admitted(&threshold, 0, &[3, 4], &[7, 8]), [true, false]);
    assert!(threshold.admits_run(9, (7, 20)) && !threshold.admits_run(9, (8, 20)));
}

#[test]
fn among_rows_of_one_code_the_first_are_wanted() {
    let threshold = Threshold::of_codes(TopRowsRequest { by_address: true, ..ASKED });
    admitted(&threshold, 1, &[4, 6, 7], &[5, 5, 5]);
    assert_eq!(admitted(&threshold, 1, &[6, 7], &[5, 5]), [true, false]);
    assert!(threshold.admits_run(address(1, 5), (5, 5)) && !threshold.admits_run(address(1, 7), (5, 5)));
    assert!(threshold.admits_run(address(0, 9), (5, 5)) && threshold.admits_run(address(2, 0), (4, 5)));
    assert_eq!(admitted(&threshold, 1, &[3], &[5]), [true]);
    assert!(!threshold.admits_run(address(1, 5), (5, 5)));
}

#[test]
fn rows_before_the_point_are_left_out_and_its_own_do_not_count() {
    let after = codes::of_scalar(&ScalarValue::Int64(Some(10)), true);
    let threshold = Threshold::of_codes(TopRowsRequest { limit: 1, descending: true, after, ..ASKED });
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![11, 10, 9, 8]));
    let keys = threshold.compared(&keys).unwrap();
    assert_eq!(threshold.admit(0, &[0, 1, 2, 3], &keys, None).unwrap(), [false, true, true, false]);
}
