//! Which kinds of clients have connected, as they name themselves (KIP-511).

use std::collections::BTreeMap;

use thalweg_wire::inspect::ClientReport;

/// Connections by software and version, since the broker started.
#[derive(Debug, Default)]
pub struct ClientKinds {
    counts: BTreeMap<(String, String), u64>,
}

impl ClientKinds {
    /// A connection has named its client. Names come from outside: after a while only known ones are counted.
    pub fn note(&mut self, software: &str, version: &str) {
        let key = (shortened(software), shortened(version));
        if self.counts.len() < KINDS_MAX || self.counts.contains_key(&key) {
            let count = self.counts.entry(key).or_default();
            *count = count.saturating_add(1);
        }
    }

    pub fn report(&self) -> Vec<ClientReport> {
        let report = |((software, version), count): (&(String, String), &u64)| ClientReport {
            software: software.clone(),
            version: version.clone(),
            connection_count: *count,
        };
        self.counts.iter().map(report).collect()
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(NAME_CHARACTERS_MAX).collect()
}

const KINDS_MAX: usize = 200;
const NAME_CHARACTERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_and_bounded() {
        let mut kinds = ClientKinds::default();
        kinds.note("a", "1");
        kinds.note("a", "1");
        (0..300).for_each(|i| kinds.note(&"x".repeat(200), &i.to_string()));
        kinds.note("a", "1");
        let report = kinds.report();
        assert_eq!(report.len(), KINDS_MAX);
        assert_eq!((report[0].software.as_str(), report[0].connection_count), ("a", 3));
        assert_eq!(report[1].software.len(), NAME_CHARACTERS_MAX);
    }
}
