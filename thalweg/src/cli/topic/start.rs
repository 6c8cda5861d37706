//! Where to start reading, as people write it.

use std::str::FromStr;

use thalweg_client::{OffsetSpec, StartAt};
use thalweg_model::{Offset, Timestamp};

use crate::cli::time;

/// `-o`: a place in every partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPoint {
    Beginning,
    End,
    /// The group's committed offset.
    Stored,
    At(Offset),
    /// So many records before the end.
    BeforeEnd(i64),
    Time(Timestamp),
}

impl FromStr for StartPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<StartPoint, String> {
        let unknown = || {
            format!(
                "'{text}' is none of: beginning, end, stored, 123, -10 (before the end), @time (ms or 2026-01-31T12:00)"
            )
        };
        match text {
            "beginning" | "start" | "earliest" => return Ok(StartPoint::Beginning),
            "end" | "latest" => return Ok(StartPoint::End),
            "stored" | "committed" => return Ok(StartPoint::Stored),
            _ => {}
        }
        let time = text.strip_prefix('@').or_else(|| text.strip_prefix("s@"));
        if let Some(time) = time {
            return time::parse(time).map(StartPoint::Time).ok_or_else(unknown);
        }
        match text.parse::<i64>() {
            Ok(offset) if offset >= 0 && !text.starts_with('-') => Ok(StartPoint::At(Offset(offset))),
            Ok(offset) => Ok(StartPoint::BeforeEnd(offset.saturating_neg())),
            Err(_) => Err(unknown()),
        }
    }
}

impl StartPoint {
    /// The consumer's words for it, in a partition whose log is `start..end`.
    pub fn resolve(self, start: Offset, end: Offset) -> StartAt {
        match self {
            StartPoint::Beginning => StartAt::Spec(OffsetSpec::Earliest),
            StartPoint::End => StartAt::Offset(end),
            StartPoint::Stored => StartAt::Committed,
            StartPoint::At(offset) => StartAt::Offset(offset),
            StartPoint::BeforeEnd(count) => StartAt::Offset(end.plus(count.saturating_neg()).max(start)),
            StartPoint::Time(time) => StartAt::Spec(OffsetSpec::AtTime(time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starting_points_are_read() {
        for (text, point) in [
            ("beginning", StartPoint::Beginning),
            ("end", StartPoint::End),
            ("stored", StartPoint::Stored),
            ("0", StartPoint::At(Offset(0))),
            ("17", StartPoint::At(Offset(17))),
            ("-5", StartPoint::BeforeEnd(5)),
            ("@1700000000000", StartPoint::Time(Timestamp(1_700_000_000_000))),
            ("s@0", StartPoint::Time(Timestamp(0))),
            ("@1970-01-02", StartPoint::Time(Timestamp(86_400_000))),
        ] {
            assert_eq!(text.parse(), Ok(point), "{text}");
        }
        for text in ["", "x", "@", "@x", "1.5", "--1"] {
            assert!(text.parse::<StartPoint>().unwrap_err().contains("beginning"), "{text}");
        }
    }

    #[test]
    fn the_last_records_of_a_short_log_are_all_of_it() {
        assert_eq!(StartPoint::BeforeEnd(5).resolve(Offset(2), Offset(4)), StartAt::Offset(Offset(2)));
        assert_eq!(StartPoint::BeforeEnd(5).resolve(Offset(2), Offset(40)), StartAt::Offset(Offset(35)));
    }
}
