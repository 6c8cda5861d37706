//! Points in time as people write them.

use thalweg_model::Timestamp;
use thalweg_world::Clock;

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

/// `500ms`, `90s`, `15m`, `6h`, `2d`, in milliseconds; `None` for anything else.
pub fn parse_duration(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(unit_ms)
}

/// This machine's clock.
pub fn now() -> Timestamp {
    Clock::real().wall()
}

/// `2026-01-31T13:05:09Z`.
pub fn format(time: Timestamp) -> String {
    let (mut days, of_day) = (time.0.div_euclid(86_400_000), time.0.rem_euclid(86_400_000) / 1_000);
    // A year is never longer than 366 days, so this is at or before the right one.
    let mut year = 1970 + days / 366;
    while days >= days_since_1970(year + 1, 1, 1) {
        year += 1;
    }
    days -= days_since_1970(year, 1, 1);
    let mut month = 1;
    while days >= days_in(year, month) {
        days -= days_in(year, month);
        month += 1;
    }
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

/// A span as people say it: `850 ms`, `3.2 s`, `4 min 10 s`, `2 h 5 min`, `3 d 4 h`.
pub fn span(ms: i64) -> String {
    let seconds = ms / 1_000;
    match ms {
        ..=999 => format!("{ms} ms"),
        1_000..=59_999 => format!("{}.{} s", seconds, ms / 100 % 10),
        60_000..=3_599_999 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600_000..=86_399_999 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
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
    fn times_are_written_as_they_are_read() {
        for text in ["1970-01-01T00:00:00Z", "2000-02-29T23:59:59Z", "2024-12-31T00:00:01Z", "2026-01-01T12:00:00Z"] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
    }

    #[test]
    fn durations_are_read_and_spans_said() {
        assert_eq!(
            ["500ms", "90s", "15m", "6h", "2d"].map(parse_duration),
            [500, 90_000, 900_000, 21_600_000, 172_800_000].map(Some)
        );
        assert_eq!(["", "5", "h", "-5s", "1.5h", "99999999999999999d"].map(parse_duration), [None; 6]);
        let spans = [0, 999, 3_249, 250_000, 7_500_000, 273_600_000].map(span);
        assert_eq!(spans, ["0 ms", "999 ms", "3.2 s", "4 min 10 s", "2 h 5 min", "3 d 4 h"]);
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in ["", "-5", "yesterday", "2023-02-29", "2023-13-01", "2023-01-01T24:00", "2023-1", "2023-01-01T"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
