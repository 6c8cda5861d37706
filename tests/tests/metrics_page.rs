//! What dashboards, alerts and docs name is on the page of a node that works.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use thalweg_tests::{Cli, Node, unique};

fn folder() -> PathBuf {
    // Where the tests run, not where they were built.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
    here.join("..")
}

/// Words that look like metrics of ours.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = words.filter(|word| word.starts_with("thalweg_") || word.starts_with("process_"));
    ours.map(str::to_owned).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Goal: nobody looks at an empty panel or waits for an alert that cannot come. Method: a node with a topic and a group that is
/// behind; every name in the generated files and in docs/OPERATIONS.md must be on its page.
#[test]
fn every_metric_that_is_named_anywhere_is_on_the_page() {
    let Some(node) = Node::own(&[]) else { return };
    let cli = Cli::at(node.addr());
    let topic = unique("t");
    cli.ok_with(&format!("topic produce {topic}"), b"a\nb\nc\n");
    assert_eq!(cli.ok(&format!("topic consume {topic} -G g -c 1")).out, "a\n");

    let page = node.http_get("/metrics?tier=partition");
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let on_page: BTreeSet<&str> = samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    let is_there = |name: &str| {
        // Docs leave out what OpenMetrics appends.
        ["", "_total", "_count"].iter().any(|suffix| on_page.contains(format!("{name}{suffix}").as_str()))
    };
    for file in ["deploy/monitoring/dashboard.json", "deploy/monitoring/alerts.yaml"] {
        let names = named(&read(&folder().join(file)));
        assert!(names.len() > 8, "{file} names {names:?}");
        let missing: Vec<_> = names.iter().filter(|name| !on_page.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "{file} names {missing:?}, which no node has:\n{page}");
    }
    let operations = read(&folder().join("docs/OPERATIONS.md"));
    let rows: Vec<&str> = operations.lines().filter(|line| line.starts_with("| `thalweg_")).collect();
    assert!(rows.len() > 20, "{rows:?}");
    let missing: Vec<_> = named(&rows.join("\n")).into_iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "docs/OPERATIONS.md names {missing:?}, which no node has:\n{page}");

    // Without the bucket of everything a quantile is no number.
    let histograms = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" histogram"));
    let histograms: Vec<&str> = histograms.collect();
    assert!(histograms.contains(&"thalweg_coordinator_commit_seconds"), "{histograms:?}");
    for name in histograms {
        assert!(page.contains(&format!("{name}_bucket{{le=\"+Inf\"}}")), "{name}: {page}");
    }

    let lag = format!("thalweg_group_lag_records{{group=\"g\",topic=\"{topic}\"}}");
    let behind = page.lines().find_map(|line| line.strip_prefix(&lag)).unwrap_or_else(|| panic!("{lag}: {page}"));
    assert_eq!(behind.trim(), "2");
    let small = node.http_get("/metrics");
    assert!(!small.contains("thalweg_group_lag") && small.contains("thalweg_partitions_under_min_isr 0"), "{small}");
    assert!(!node.http_get("/metrics?tier=topic").contains("thalweg_partition_high_watermark"));
}
