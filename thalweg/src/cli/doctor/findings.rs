//! What is judged, and how.

use thalweg_client::Metadata;
use thalweg_client::admin::report::NodeReport;
use thalweg_model::Timestamp;

use super::clients;
use crate::cli::output::bytes;
use crate::cli::time;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub level: Level,
    pub about: String,
    pub what: String,
    pub remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Good,
    /// It works, and will bite some day.
    Warning,
    Bad,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Good => "good",
            Level::Warning => "warning",
            Level::Bad => "bad",
        }
    }

    pub fn mark(self) -> &'static str {
        match self {
            Level::Good => "ok",
            Level::Warning => "warn",
            Level::Bad => "BAD",
        }
    }
}

impl Finding {
    pub fn good(about: &str, what: String) -> Finding {
        Finding { level: Level::Good, about: about.to_owned(), what, remedy: None }
    }

    pub fn warning(about: &str, what: String, remedy: impl Into<String>) -> Finding {
        Finding { level: Level::Warning, about: about.to_owned(), what, remedy: Some(remedy.into()) }
    }

    pub fn bad(about: &str, what: String, remedy: impl Into<String>) -> Finding {
        Finding { level: Level::Bad, about: about.to_owned(), what, remedy: Some(remedy.into()) }
    }
}

/// A broker by its own words. It was asked at `sent_at` of our clock, and answered within `round_trip_ms`.
pub fn of_node(
    about: &str,
    address: &str,
    report: &NodeReport,
    sent_at: Timestamp,
    round_trip_ms: i64,
) -> Vec<Finding> {
    let mut found = vec![Finding::good(about, format!("answers at {address}, version {}", report.version))];
    found.extend(of_listeners(about, report));
    found.push(of_clock(about, report.now_ms, sent_at, round_trip_ms));
    found.extend(of_disks(about, report));
    found.extend(of_limits(about, report));
    found.extend(clients::judge(about, &report.clients));
    found
}

fn of_listeners(about: &str, report: &NodeReport) -> Vec<Finding> {
    let judge = |listener: &thalweg_client::admin::report::ListenerReport| {
        let place = format!("listener {} on {}", listener.name, listener.address);
        let is_open = !listener.address.starts_with("127.") && !listener.address.starts_with("[::1]");
        let advertised_loopback =
            |at: &String| at.starts_with("127.") || at.starts_with("localhost:") || at.starts_with("[::1]");
        match &listener.advertised {
            Some(at) if is_open && advertised_loopback(at) => Finding::bad(
                about,
                format!("{place} tells clients to connect to {at}: on every other machine that is another machine"),
                "see `thalweg doctor listeners`; right only where a port of every client's own machine leads here",
            ),
            Some(at) => Finding::good(about, format!("{place} tells clients {at}")),
            None => Finding::good(about, format!("{place} tells clients the address that they came in on")),
        }
    };
    report.listeners.iter().map(judge).collect()
}

fn of_clock(about: &str, broker_ms: i64, sent_at: Timestamp, round_trip_ms: i64) -> Finding {
    // It read its clock between our sending and its answer: within that window there is no skew to be seen.
    let early = sent_at.0 - broker_ms;
    let late = broker_ms - sent_at.0.saturating_add(round_trip_ms);
    let skew_ms = early.max(late).max(0);
    if skew_ms > SKEW_MS_MAX {
        let direction = if early > late { "behind" } else { "ahead of" };
        let what = format!("its clock is {} {direction} this machine's", time::span(skew_ms));
        return Finding::bad(about, what, "run a time service on both; retention and lag in time go by these clocks");
    }
    Finding::good(about, format!("its clock agrees with this machine's to {}", time::span(round_trip_ms.max(skew_ms))))
}

fn of_disks(about: &str, report: &NodeReport) -> Vec<Finding> {
    let judge = |dir: &thalweg_client::admin::report::DirReport| {
        let free = dir.free_bytes.map(bytes).unwrap_or_default();
        match dir.free_bytes {
            _ if dir.is_offline => Finding::bad(
                about,
                format!("log directory {} is offline: a write or flush failed", dir.path),
                "look at the disk and the broker's log, then restart the broker",
            ),
            Some(count) if count < FREE_BYTES_BAD => Finding::bad(
                about,
                format!("log directory {} has {free} left", dir.path),
                "free space, or lower retention; `thalweg topic why-kept` says what holds it",
            ),
            Some(count) if count < FREE_BYTES_LOW => Finding::warning(
                about,
                format!("log directory {} has {free} left", dir.path),
                "watch thalweg_log_dir_free_bytes; `thalweg topic why-kept` says what holds the space",
            ),
            Some(_) => Finding::good(about, format!("log directory {} has {free} left", dir.path)),
            None => Finding::good(about, format!("log directory {} is online", dir.path)),
        }
    };
    report.log_dirs.iter().map(judge).collect()
}

fn of_limits(about: &str, report: &NodeReport) -> Option<Finding> {
    let limit = report.open_files_limit?;
    let open = report.open_files.unwrap_or(0);
    let what = format!("{open} of {limit} open files are in use");
    let remedy = "raise it: ulimit -n, or LimitNOFILE= of its service; each segment and each connection needs one";
    Some(if open.saturating_mul(10) > limit.saturating_mul(8) {
        Finding::bad(about, what, remedy)
    } else if limit < OPEN_FILES_LOW {
        Finding::warning(about, what, remedy)
    } else {
        Finding::good(about, what)
    })
}

/// Topics that a single failure makes unavailable, although there are brokers enough.
pub fn of_topics(cluster: &Metadata) -> Vec<Finding> {
    if cluster.brokers.len() < 3 {
        return Vec::new();
    }
    let copies =
        |topic: &thalweg_client::TopicInfo| topic.partitions.iter().map(|p| p.replicas.len()).min().unwrap_or(0);
    let single: Vec<&str> =
        cluster.topics.values().filter(|topic| copies(topic) == 1).map(|topic| topic.name.as_str()).collect();
    if single.is_empty() {
        return vec![Finding::good("topics", "every topic has more than one copy".to_owned())];
    }
    let shown = single.iter().take(10).copied().collect::<Vec<_>>().join(", ");
    let what = format!("{} topic(s) have one copy of each record: {shown}", single.len());
    vec![Finding::warning("topics", what, "one broker less, and they are gone; create topics with -r 3")]
}

const SKEW_MS_MAX: i64 = 500;
const FREE_BYTES_BAD: u64 = 1 << 30;
const FREE_BYTES_LOW: u64 = 10 << 30;
const OPEN_FILES_LOW: u64 = 10_000;

#[cfg(test)]
mod tests {
    use thalweg_client::admin::report::{DirReport, ListenerReport};

    use super::*;

    fn healthy() -> NodeReport {
        let listener = |address: &str, advertised: Option<&str>| ListenerReport {
            name: "PLAINTEXT".into(),
            address: address.into(),
            advertised: advertised.map(str::to_owned),
            advertised_to: Vec::new(),
        };
        NodeReport {
            now_ms: 10_000,
            listeners: vec![listener("0.0.0.0:9092", None), listener("127.0.0.1:9093", Some("localhost:9093"))],
            log_dirs: vec![DirReport { path: "/d".into(), is_offline: false, free_bytes: Some(1 << 40) }],
            open_files: Some(100),
            open_files_limit: Some(1 << 20),
            ..NodeReport::default()
        }
    }

    fn levels(report: &NodeReport, sent_at: i64) -> Vec<Level> {
        let found = of_node("b", "a:1", report, Timestamp(sent_at), 20);
        found.into_iter().map(|finding| finding.level).filter(|level| *level != Level::Good).collect()
    }

    #[test]
    fn a_healthy_broker_has_nothing_but_good_findings() {
        assert_eq!(levels(&healthy(), 9_990), []);
    }

    #[test]
    fn each_thing_that_is_wrong_is_found() {
        use Level::{Bad, Warning};
        let with = |change: fn(&mut NodeReport)| {
            let mut report = healthy();
            change(&mut report);
            levels(&report, 9_990)
        };
        assert_eq!(with(|report| report.now_ms = 60_000), [Bad]);
        assert_eq!(with(|report| report.now_ms = 0), [Bad]);
        assert_eq!(with(|report| report.log_dirs[0].is_offline = true), [Bad]);
        assert_eq!(with(|report| report.log_dirs[0].free_bytes = Some(1)), [Bad]);
        assert_eq!(with(|report| report.log_dirs[0].free_bytes = Some(5 << 30)), [Warning]);
        assert_eq!(with(|report| report.open_files_limit = Some(1_024)), [Warning]);
        assert_eq!(with(|report| report.open_files_limit = Some(120)), [Bad]);
        assert_eq!(with(|report| report.listeners[0].advertised = Some("localhost:9092".into())), [Bad]);
    }
}
