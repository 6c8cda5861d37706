//! Medians and spreads.

/// The same figure from several runs.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<f64>);

impl Series {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    /// `NaN` when there was no run.
    pub fn median(&self) -> f64 {
        let values = &self.0;
        match values.len() {
            0 => f64::NAN,
            count if count % 2 == 1 => values[count / 2],
            count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
        }
    }

    pub fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    pub fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    /// The median, and least and greatest in parentheses when there were several runs.
    pub fn show(&self) -> String {
        match self.0.len() {
            0 => "-".to_owned(),
            1 => number(self.median()),
            _ => format!("{} ({}–{})", number(self.median()), number(self.min()), number(self.max())),
        }
    }
}

/// The value below which `per_mille` of the sorted `values` lie.
pub fn quantile(values: &mut [f64], per_mille: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((values.len() * per_mille / 1000).min(last)).copied().unwrap_or(f64::NAN)
}

/// Three significant digits, no more than a noisy machine can support.
pub fn number(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

pub fn mb_per_s(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds
}

/// CPU seconds spent on each 10^9 bytes.
pub fn cpu_s_per_gb(cpu_seconds: f64, bytes: u64) -> f64 {
    cpu_seconds / (bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_of_an_even_count_lies_between_the_middle_two() {
        let mut series = Series::default();
        for value in [9.0, 1.0, 3.0, 2.0] {
            series.push(value);
        }
        assert_eq!(series.median(), 2.5);
        assert_eq!((series.min(), series.max()), (1.0, 9.0));
    }

    #[test]
    fn a_quantile_never_leaves_the_values() {
        let mut values = vec![5.0, 1.0, 3.0];
        assert_eq!(quantile(&mut values, 0), 1.0);
        assert_eq!(quantile(&mut values, 500), 3.0);
        assert_eq!(quantile(&mut values, 1000), 5.0);
        assert!(quantile(&mut [], 500).is_nan());
    }
}
