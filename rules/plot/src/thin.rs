//! Lines with no more points than can be seen.

/// Splits a line where it has no values, and leaves of each column of pixels its first, lowest, highest and last point. A column in
/// which a value is missing stands by itself.
pub(crate) fn line(points: &[(i64, Option<f64>)], width: usize) -> Vec<Vec<(i64, f64)>> {
    // Short lines have a column a point.
    let count = if points.len() > 4 * width { width } else { points.len() };
    let (mut parts, mut part) = (Vec::new(), Vec::new());
    for column in columns(points.len(), count) {
        let column = &points[column];
        if column.iter().all(|(_, value)| value.is_some_and(f64::is_finite)) {
            part.extend(extremes(column));
        } else {
            parts.extend([std::mem::take(&mut part), extremes(column)]);
        }
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    parts
}

fn columns(count: usize, width: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..width).map(move |at| at * count / width..(at + 1) * count / width)
}

fn extremes(points: &[(i64, Option<f64>)]) -> Vec<(i64, f64)> {
    let there: Vec<(i64, f64)> = points
        .iter()
        .filter_map(|(time, value)| value.filter(|value| value.is_finite()).map(|value| (*time, value)))
        .collect();
    let by_value = |one: &&(i64, f64), other: &&(i64, f64)| one.1.total_cmp(&other.1);
    let mut kept: Vec<(i64, f64)> =
        [there.first(), there.iter().min_by(by_value), there.iter().max_by(by_value), there.last()]
            .into_iter()
            .flatten()
            .copied()
            .collect();
    kept.sort_by_key(|(time, _)| *time);
    kept.dedup();
    kept
}

/// Leaves of each column of pixels one point, as wide as the widest there.
pub(crate) fn band(points: &[(i64, f64, f64)], width: usize) -> Vec<(i64, f64, f64)> {
    let is_finite = |(_, low, high): &&(i64, f64, f64)| low.is_finite() && high.is_finite();
    let points: Vec<(i64, f64, f64)> = points.iter().filter(is_finite).copied().collect();
    if points.len() <= 2 * width {
        return points;
    }
    let widest = |column: std::ops::Range<usize>| {
        let first = points[column.start];
        points[column]
            .iter()
            .fold(first, |(time, low, high), (_, one, other)| (time, low.min(*one), high.max(*other)))
    };
    columns(points.len(), width).filter(|column| !column.is_empty()).map(widest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_remain() {
        let points: Vec<(i64, Option<f64>)> =
            (0..100_000).map(|at| (at, Some(if at == 54_321 { 9.0 } else { 1.0 }))).collect();
        let thin = line(&points, 100);
        assert_eq!(thin.len(), 1);
        assert!(thin[0].len() <= 400 && thin[0].contains(&(54_321, 9.0)));
        assert!(thin[0].is_sorted_by_key(|(time, _)| *time));
    }

    #[test]
    fn gaps_break_lines() {
        let points =
            [(0, Some(1.0)), (1, Some(2.0)), (2, None), (3, Some(f64::NAN)), (4, Some(3.0)), (5, None)];
        assert_eq!(line(&points, 100), [vec![(0, 1.0), (1, 2.0)], vec![(4, 3.0)]]);
        assert!(line(&[], 100).is_empty());
        // Of many points, too: a long gap, and one that is narrower than a pixel.
        let missing = |at: i64| (2_000..3_500).contains(&at) || at == 7_777;
        let points: Vec<(i64, Option<f64>)> =
            (0..10_000).map(|at| (at, (!missing(at)).then_some(1.0))).collect();
        let ends: Vec<(i64, i64)> =
            line(&points, 100).iter().map(|part| (part[0].0, part[part.len() - 1].0)).collect();
        assert_eq!(ends, [(0, 1_999), (3_500, 7_699), (7_700, 7_799), (7_800, 9_999)]);
        let wide = band(&(0..10_000).map(|at| (at, -(at as f64), at as f64)).collect::<Vec<_>>(), 10);
        assert_eq!((wide.len(), wide[9]), (10, (9000, -9999.0, 9999.0)));
    }
}
