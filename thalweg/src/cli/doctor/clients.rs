//! Clients that are known to be wrong: by their own release notes.

use thalweg_client::admin::report::ClientReport;

use super::findings::Finding;

/// A fault of librdkafka, from a version to another, exclusive.
struct Fault {
    from: [u32; 3],
    fixed_in: [u32; 3],
    what: &'static str,
}

/// From librdkafka's release notes; the numbers are its issues and pull requests.
const LIBRDKAFKA: &[Fault] = &[
    Fault {
        from: [1, 3, 0],
        fixed_in: [1, 4, 2],
        what: "producing and consuming hang after a topic was deleted and made again",
    },
    Fault {
        from: [2, 1, 0],
        fixed_in: [2, 3, 0],
        what: "a consumer may stop reading a partition for good after quick leader changes (4425)",
    },
    Fault {
        from: [0, 0, 0],
        fixed_in: [2, 3, 0],
        what: "an idempotent producer may fail for good although its record was written (4438)",
    },
    Fault {
        from: [0, 0, 0],
        fixed_in: [2, 4, 0],
        what: "a consumer may read records twice, from a stale offset (4636)",
    },
];

/// Which of the clients that have connected are wrong.
pub fn judge(about: &str, clients: &[ClientReport]) -> Vec<Finding> {
    let mut found = Vec::new();
    for client in clients {
        let Some(version) = librdkafka(client) else { continue };
        let faults: Vec<&Fault> =
            LIBRDKAFKA.iter().filter(|fault| (fault.from..fault.fixed_in).contains(&version)).collect();
        let Some(fixed_in) = faults.iter().map(|fault| fault.fixed_in).max() else { continue };
        let [major, minor, patch] = version;
        let whats: Vec<&str> = faults.iter().map(|fault| fault.what).collect();
        let what = format!(
            "{} connection(s) of {} {} (librdkafka {major}.{minor}.{patch}): {}",
            client.connection_count,
            printable(&client.software),
            printable(&client.version),
            whats.join("; ")
        );
        let [major, minor, patch] = fixed_in;
        found.push(Finding::warning(
            about,
            what,
            format!("librdkafka {major}.{minor}.{patch} or newer has them fixed"),
        ));
    }
    if found.is_empty() {
        let kinds = clients.len();
        found.push(Finding::good(about, format!("{kinds} kind(s) of clients have connected, none known to be wrong")));
    }
    found
}

/// The version of librdkafka in a client; bindings name themselves and put it behind: `2.3.0-librdkafka-2.3.0`.
fn librdkafka(client: &ClientReport) -> Option<[u32; 3]> {
    let text = match client.version.split_once("librdkafka-") {
        Some((_, version)) => version,
        None if client.software == "librdkafka" => client.version.as_str(),
        None => return None,
    };
    let mut numbers = text.split(['.', '-']).map_while(|part| part.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0)])
}

/// What a client chose must not steer a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::findings::Level;
    use super::*;

    fn what(software: &str, version: &str) -> (Level, String) {
        let client = ClientReport { software: software.into(), version: version.into(), connection_count: 1 };
        let found = judge("b", &[client]);
        (found[0].level, found[0].what.clone())
    }

    #[test]
    fn faults_are_those_of_the_version_that_is_inside() {
        let (level, text) = what("librdkafka", "2.0.2");
        assert_eq!(level, Level::Warning);
        assert!(text.contains("(4636)") && text.contains("(4438)") && !text.contains("(4425)"), "{text}");
        let (level, text) = what("confluent-kafka-python", "2.2.0-librdkafka-2.2.0");
        assert_eq!(level, Level::Warning);
        assert!(text.contains("(4425)"), "{text}");
        for (software, version) in
            [("librdkafka", "2.12.1"), ("librdkafka", "x"), ("apache-kafka-java", "2.0.0"), ("", "")]
        {
            assert_eq!(what(software, version).0, Level::Good, "{software} {version}");
        }
    }
}
