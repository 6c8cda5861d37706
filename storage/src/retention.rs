//! Which segments are old enough, or too many, to be deleted. A pure decision that says why.

use std::fmt;

use thalweg_model::{Offset, Timestamp};

use crate::config::LogConfig;

/// What retention has to know of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentAge {
    pub base_offset: Offset,
    /// Exclusive.
    pub next_offset: Offset,
    pub size_bytes: u64,
    /// The largest timestamp of its records, but not later than when it was written: a record dated
    /// 2099 must not keep a segment for ever (FAILURES row 68). `None` if neither is known.
    pub newest: Option<Timestamp>,
}

/// Why a segment may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteReason {
    /// All its records are older than `retention.ms`.
    RetentionMs { age_ms: i64, limit_ms: i64 },
    /// The log without it is still as large as `retention.bytes`.
    RetentionBytes { log_bytes: u64, limit_bytes: i64 },
    /// All its records lie below the log's start (delete-records).
    LogStart { log_start_offset: Offset },
}

/// Why the oldest segment stays: what an operator asks when a disk fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// Not every record is below the high watermark (REPLICATION G9).
    AboveHighWatermark { high_watermark: Offset },
    /// Its newest record is not old enough, and the log is not too large.
    WithinLimits { age_ms: Option<i64>, log_bytes: u64 },
    /// There is nothing in it.
    Empty,
    /// `cleanup.policy` does not contain `delete`.
    NotDeleting,
}

/// The oldest segments that go, in order, and why the next one stays (`None`: nothing is left).
pub fn decide(
    segments: &[SegmentAge],
    now: Timestamp,
    high_watermark: Offset,
    log_start_offset: Offset,
    config: &LogConfig,
) -> (Vec<(SegmentAge, DeleteReason)>, Option<KeepReason>) {
    let mut log_bytes: u64 = segments.iter().map(|segment| segment.size_bytes).sum();
    let mut gone = Vec::new();
    for segment in segments {
        match judge(segment, now, high_watermark, log_start_offset, log_bytes, config) {
            Ok(reason) => {
                log_bytes -= segment.size_bytes;
                gone.push((*segment, reason));
            }
            Err(reason) => return (gone, Some(reason)),
        }
    }
    (gone, None)
}

/// What becomes of one segment, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The next look at retention deletes it.
    Goes(DeleteReason),
    /// A rule holds it.
    Held(KeepReason),
    /// It could go, but logs shrink only from the front, and an older one is held.
    Behind(DeleteReason),
}

/// Why each segment is still there, oldest first: [`decide`] for whoever asks about all of them.
pub fn explain(
    segments: &[SegmentAge],
    now: Timestamp,
    high_watermark: Offset,
    log_start_offset: Offset,
    config: &LogConfig,
) -> Vec<Verdict> {
    let mut log_bytes: u64 = segments.iter().map(|segment| segment.size_bytes).sum();
    let mut is_held = false;
    let mut verdicts = Vec::with_capacity(segments.len());
    for segment in segments {
        verdicts.push(match judge(segment, now, high_watermark, log_start_offset, log_bytes, config) {
            Ok(reason) if is_held => Verdict::Behind(reason),
            Ok(reason) => {
                log_bytes -= segment.size_bytes;
                Verdict::Goes(reason)
            }
            Err(reason) => {
                is_held = true;
                Verdict::Held(reason)
            }
        });
    }
    verdicts
}

fn judge(
    segment: &SegmentAge,
    now: Timestamp,
    high_watermark: Offset,
    log_start_offset: Offset,
    log_bytes: u64,
    config: &LogConfig,
) -> Result<DeleteReason, KeepReason> {
    if segment.size_bytes == 0 {
        return Err(KeepReason::Empty);
    }
    if segment.next_offset > high_watermark {
        return Err(KeepReason::AboveHighWatermark { high_watermark });
    }
    if segment.next_offset <= log_start_offset {
        return Ok(DeleteReason::LogStart { log_start_offset });
    }
    if !config.delete {
        return Err(KeepReason::NotDeleting);
    }
    let age_ms = segment.newest.map(|newest| now.ms_since(newest));
    if config.retention_ms >= 0
        && let Some(age_ms) = age_ms
        && age_ms > config.retention_ms
    {
        return Ok(DeleteReason::RetentionMs { age_ms, limit_ms: config.retention_ms });
    }
    let without = log_bytes - segment.size_bytes;
    if u64::try_from(config.retention_bytes).is_ok_and(|limit| without >= limit) {
        return Ok(DeleteReason::RetentionBytes { log_bytes, limit_bytes: config.retention_bytes });
    }
    Err(KeepReason::WithinLimits { age_ms, log_bytes })
}

impl fmt::Display for DeleteReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeleteReason::RetentionMs { age_ms, limit_ms } => {
                write!(f, "its newest record is {age_ms} ms old, retention.ms is {limit_ms}")
            }
            DeleteReason::RetentionBytes { log_bytes, limit_bytes } => {
                write!(f, "the log has {log_bytes} bytes, retention.bytes is {limit_bytes}")
            }
            DeleteReason::LogStart { log_start_offset } => {
                write!(f, "its records were deleted up to offset {log_start_offset}")
            }
        }
    }
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeepReason::AboveHighWatermark { high_watermark } => {
                write!(f, "it reaches above the high watermark {high_watermark}")
            }
            KeepReason::WithinLimits { age_ms: Some(age_ms), log_bytes } => {
                write!(f, "its newest record is only {age_ms} ms old, and the log has only {log_bytes} bytes")
            }
            KeepReason::WithinLimits { age_ms: None, log_bytes } => {
                write!(f, "its age is not known, and the log has only {log_bytes} bytes")
            }
            KeepReason::Empty => write!(f, "it is empty"),
            KeepReason::NotDeleting => write!(f, "cleanup.policy does not contain delete"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments() -> Vec<SegmentAge> {
        (0..4)
            .map(|i| SegmentAge {
                base_offset: Offset(10 * i),
                next_offset: Offset(10 * i + 10),
                size_bytes: 100,
                newest: Some(Timestamp(1000 * i)),
            })
            .collect()
    }

    fn gone(now: i64, high_watermark: i64, log_start: i64, config: &LogConfig) -> (usize, Option<KeepReason>) {
        let (gone, kept) = decide(&segments(), Timestamp(now), Offset(high_watermark), Offset(log_start), config);
        (gone.len(), kept)
    }

    #[test]
    fn age_counts_from_the_newest_record_and_stops_at_the_high_watermark() {
        let config = LogConfig { retention_ms: 500, ..LogConfig::default() };
        assert_eq!(gone(500, 40, 0, &config).0, 0);
        assert_eq!(gone(501, 40, 0, &config).0, 1);
        assert_eq!(gone(9000, 40, 0, &config), (4, None));
        let high_watermark = Offset(25);
        assert_eq!(gone(9000, 25, 0, &config), (2, Some(KeepReason::AboveHighWatermark { high_watermark })));
    }

    #[test]
    fn size_leaves_at_least_the_limit() {
        let of = |retention_bytes| LogConfig { retention_ms: -1, retention_bytes, ..LogConfig::default() };
        assert_eq!(gone(9000, 40, 0, &of(-1)).0, 0);
        assert_eq!(gone(9000, 40, 0, &of(400)).0, 0);
        assert_eq!(gone(9000, 40, 0, &of(301)).0, 0);
        assert_eq!(gone(9000, 40, 0, &of(300)).0, 1);
        assert_eq!(gone(9000, 40, 0, &of(0)).0, 4);
    }

    #[test]
    fn each_segment_has_its_own_verdict_and_one_behind_a_held_one_waits() {
        let verdicts = |segments: &[SegmentAge], high_watermark: i64, config: &LogConfig| {
            explain(segments, Timestamp(2_600), Offset(high_watermark), Offset(0), config)
        };
        let config = LogConfig { retention_ms: 1_500, ..LogConfig::default() };
        let by_age = |age_ms| DeleteReason::RetentionMs { age_ms, limit_ms: 1_500 };
        let within = |age_ms, log_bytes| Verdict::Held(KeepReason::WithinLimits { age_ms: Some(age_ms), log_bytes });
        let high_watermark = Offset(35);
        assert_eq!(
            verdicts(&segments(), 35, &config),
            [
                Verdict::Goes(by_age(2_600)),
                Verdict::Goes(by_age(1_600)),
                within(600, 200),
                Verdict::Held(KeepReason::AboveHighWatermark { high_watermark }),
            ]
        );
        let mut late_first = segments();
        late_first.swap(0, 3);
        let held = verdicts(&late_first, 40, &config);
        assert_eq!(held[1], Verdict::Behind(by_age(1_600)));
        assert_eq!(held[3], Verdict::Behind(by_age(2_600)));
    }

    #[test]
    fn deleted_records_go_whatever_the_policy() {
        let config = LogConfig { delete: false, ..LogConfig::default() };
        assert_eq!(gone(9000, 40, 25, &config), (2, Some(KeepReason::NotDeleting)));
    }
}
