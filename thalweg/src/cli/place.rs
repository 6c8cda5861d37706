//! A place in a log, as people write it, and where it is in each partition.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use thalweg_client::{Client, Isolation, ListedOffset, OffsetSpec};
use thalweg_model::{Offset, Timestamp, TopicPartition};

use super::failure::Failure;
use super::time;

/// The value of `--to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Earliest,
    Latest,
    At(Offset),
    /// Records forward, or back.
    By(i64),
    Time(Timestamp),
    /// Milliseconds before now.
    Ago(i64),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let unknown = || {
            format!(
                "'{text}' is none of: earliest, latest, 123, +10, -10, 2026-01-31T12:00, @1767225600000, 90s, 15m, 6h, 2d"
            )
        };
        match text {
            "earliest" | "beginning" | "start" => return Ok(Place::Earliest),
            "latest" | "end" => return Ok(Place::Latest),
            _ => {}
        }
        if let Some(time) = text.strip_prefix('@') {
            return time::parse(time).map(Place::Time).ok_or_else(unknown);
        }
        if text.starts_with(['+', '-']) {
            return text.parse().map(Place::By).map_err(|_| unknown());
        }
        if let Ok(offset) = text.parse::<i64>() {
            return Ok(Place::At(Offset(offset)));
        }
        let ago = time::parse_duration(text).map(Place::Ago);
        ago.or_else(|| time::parse(text).map(Place::Time)).ok_or_else(unknown)
    }
}

/// What is known of some logs for finding one place in each.
#[derive(Debug)]
pub struct Logs {
    place: Place,
    starts: BTreeMap<TopicPartition, ListedOffset>,
    ends: BTreeMap<TopicPartition, ListedOffset>,
    /// Only for a place in time.
    at_time: BTreeMap<TopicPartition, ListedOffset>,
}

impl Logs {
    /// # Errors
    /// A partition whose leader does not answer.
    pub async fn ask(
        client: &Client,
        partitions: &BTreeSet<TopicPartition>,
        place: Place,
        isolation: Isolation,
    ) -> Result<Logs, Failure> {
        let ask = |spec: OffsetSpec| {
            let specs: BTreeMap<TopicPartition, OffsetSpec> = partitions.iter().map(|tp| (tp.clone(), spec)).collect();
            async move { client.list_offsets(&specs, isolation).await }
        };
        let at_time = match place {
            Place::Time(time) => ask(OffsetSpec::AtTime(time)).await?,
            Place::Ago(ms) => ask(OffsetSpec::AtTime(Timestamp(time::now().0.saturating_sub(ms)))).await?,
            Place::Earliest | Place::Latest | Place::At(_) | Place::By(_) => BTreeMap::new(),
        };
        Ok(Logs { place, starts: ask(OffsetSpec::Earliest).await?, ends: ask(OffsetSpec::Latest).await?, at_time })
    }

    /// The first readable offset.
    pub fn start(&self, tp: &TopicPartition) -> Option<Offset> {
        Some(self.starts.get(tp)?.offset)
    }

    /// Where the next record will be.
    pub fn end(&self, tp: &TopicPartition) -> Option<Offset> {
        Some(self.ends.get(tp)?.offset)
    }

    /// The place, within the log. `None` if it counts from `from` and that is not known, or the log is not.
    pub fn resolve(&self, tp: &TopicPartition, from: Option<Offset>) -> Option<Offset> {
        let (start, end) = (self.start(tp)?, self.end(tp)?);
        let wanted = match self.place {
            Place::Earliest => start,
            Place::Latest => end,
            Place::At(offset) => offset,
            Place::By(count) => Offset(from?.0.saturating_add(count)),
            // Nothing is as late as that: what comes next is.
            Place::Time(_) | Place::Ago(_) => {
                self.at_time.get(tp).map(|found| found.offset).filter(|offset| *offset >= Offset::ZERO).unwrap_or(end)
            }
        };
        Some(wanted.max(start).min(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_outside_the_log_is_its_nearest_end() {
        let tp = thalweg_client::consumer::topic_partition("t", 0).unwrap();
        let listed = |offset| {
            let (timestamp, leader_epoch) = (Timestamp::NONE, thalweg_model::LeaderEpoch(0));
            [(tp.clone(), ListedOffset { offset: Offset(offset), timestamp, leader_epoch })].into()
        };
        let to = |place, from: Option<i64>, at_time| {
            let logs = Logs { place, starts: listed(10), ends: listed(20), at_time: listed(at_time) };
            logs.resolve(&tp, from.map(Offset)).map(|offset| offset.0)
        };
        assert_eq!(to(Place::At(Offset(5)), None, -1), Some(10));
        assert_eq!(to(Place::By(i64::MAX), Some(15), -1), Some(20));
        assert_eq!(to(Place::By(-3), Some(15), -1), Some(12));
        assert_eq!(to(Place::By(1), None, -1), None);
        assert_eq!(to(Place::Ago(1), None, -1), Some(20), "later than every record");
        assert_eq!(to(Place::Ago(1), None, 13), Some(13));
    }

    #[test]
    fn places_are_read() {
        for (text, place) in [
            ("earliest", Place::Earliest),
            ("end", Place::Latest),
            ("123", Place::At(Offset(123))),
            ("-10", Place::By(-10)),
            ("+10", Place::By(10)),
            ("@5", Place::Time(Timestamp(5))),
            ("1970-01-02", Place::Time(Timestamp(86_400_000))),
            ("90s", Place::Ago(90_000)),
            ("2d", Place::Ago(172_800_000)),
        ] {
            assert_eq!(text.parse(), Ok(place), "{text}");
        }
        for text in ["", "x", "-", "1.5", "5y", "@", "-1h"] {
            assert!(text.parse::<Place>().unwrap_err().contains("earliest"), "{text}");
        }
    }
}
