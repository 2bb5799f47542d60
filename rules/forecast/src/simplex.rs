//! The downhill simplex method (Nelder and Mead 1965), with fixed steps, so that a search is the same on every machine.

/// Searches a minimum from a start with a step for each coordinate. The function is infinite where it has no value.
pub(crate) fn minimize(
    start: &[f64],
    steps: &[f64],
    evaluations: usize,
    mut function: impl FnMut(&[f64]) -> f64,
) -> (Vec<f64>, f64) {
    let count = start.len();
    let mut evaluate = |point: &[f64]| {
        let value = function(point);
        if value.is_nan() { f64::INFINITY } else { value }
    };
    let mut corners: Vec<(Vec<f64>, f64)> = Vec::with_capacity(count + 1);
    corners.push((start.to_vec(), evaluate(start)));
    for at in 0..count {
        let mut point = start.to_vec();
        point[at] += steps[at];
        let value = evaluate(&point);
        corners.push((point, value));
    }
    let mut used = count + 1;
    while used < evaluations && count > 0 {
        // A stable sort keeps the order of equal corners.
        corners.sort_by(|one, other| one.1.total_cmp(&other.1));
        let (best, worst) = (corners[0].1, corners[count].1);
        if worst.is_finite() && worst - best <= 1e-10 * (best.abs() + 1e-10) {
            break;
        }
        let mut center = vec![0.0; count];
        for (point, _) in &corners[..count] {
            center.iter_mut().zip(point).for_each(|(center, one)| *center += one / count as f64);
        }
        let along = |share: f64, worst: &[f64]| -> Vec<f64> {
            center.iter().zip(worst).map(|(center, worst)| center + share * (worst - center)).collect()
        };
        let reflected = along(-1.0, &corners[count].0);
        let value = evaluate(&reflected);
        used += 1;
        if value < best {
            let expanded = along(-2.0, &corners[count].0);
            let further = evaluate(&expanded);
            used += 1;
            corners[count] = if further < value { (expanded, further) } else { (reflected, value) };
            continue;
        }
        if value < corners[count - 1].1 {
            corners[count] = (reflected, value);
            continue;
        }
        let share = if value < worst { -0.5 } else { 0.5 };
        let contracted = along(share, &corners[count].0);
        let nearer = evaluate(&contracted);
        used += 1;
        if nearer < worst.min(value) {
            corners[count] = (contracted, nearer);
            continue;
        }
        let first = corners[0].0.clone();
        for corner in &mut corners[1..] {
            corner.0.iter_mut().zip(&first).for_each(|(one, best)| *one = best + 0.5 * (*one - best));
            corner.1 = evaluate(&corner.0);
            used += 1;
        }
    }
    corners.sort_by(|one, other| one.1.total_cmp(&other.1));
    corners.swap_remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_valley_of_rosenbrock_is_followed() {
        let function = |p: &[f64]| (1.0 - p[0]).powi(2) + 100.0 * (p[1] - p[0] * p[0]).powi(2);
        let (point, value) = minimize(&[-1.2, 1.0], &[0.5, 0.5], 2000, function);
        assert!(value < 1e-8 && (point[0] - 1.0).abs() < 1e-3, "{point:?} {value}");
        let (point, _) = minimize(&[3.0], &[1.0], 200, |p| if p[0] < 2.0 { f64::NAN } else { p[0] });
        assert!((point[0] - 2.0).abs() < 1e-6);
    }
}
