//! Points in time as people write them.

use thalweg_model::Timestamp;

/// Milliseconds since 1970, or a date `2026-01-31`, or with a time `2026-01-31T13:05:09` (UTC, `Z` or not).
///
/// `None` for anything else.
pub fn parse(text: &str) -> Option<Timestamp> {
    if let Ok(ms) = text.parse::<i64>() {
        return (ms >= 0).then_some(Timestamp(ms));
    }
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let date = numbers(date, '-')?;
    let [year, month, day] = date[..].try_into().ok()?;
    let time = numbers(time, ':')?;
    let (hour, minute, second) = match time[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    in_range.then_some(Timestamp(seconds * 1_000))
}

fn numbers(text: &str, separator: char) -> Option<Vec<i64>> {
    let number = |part: &str| {
        let digits = !part.is_empty() && part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse().ok()).flatten()
    };
    text.split(separator).map(number).collect()
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let leap_days_before = |year: i64| (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400;
    let year_days = (year - 1970) * 365 + leap_days_before(year) - leap_days_before(1970);
    year_days + (1..month).map(|earlier| days_in(year, earlier)).sum::<i64>() + day - 1
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_milliseconds_are_read() {
        for (text, ms) in [
            ("0", 0),
            ("1700000000123", 1_700_000_000_123),
            ("1970-01-01", 0),
            ("2000-03-01", 951_868_800_000),
            ("2024-02-29T12:34:56Z", 1_709_210_096_000),
            ("2026-12-31 23:59", 1_798_761_540_000),
        ] {
            assert_eq!(parse(text), Some(Timestamp(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in ["", "-5", "yesterday", "2023-02-29", "2023-13-01", "2023-01-01T24:00", "2023-1", "2023-01-01T"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
