//! What docs/ says of the broker, compared with what the broker says of itself.

use std::collections::BTreeMap;
use std::path::Path;

use prometheus_client::encoding::text;
use thalweg_wire::ApiKey;

use super::is_served;
use crate::config::properties::{PROPERTIES, Scope};
use crate::metrics::Metrics;

fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../docs").join(name))
        .unwrap()
}

/// The cells of every table row.
fn rows(text: &str) -> impl Iterator<Item = Vec<String>> {
    text.lines().filter_map(|line| {
        let cells = line.strip_prefix('|')?.strip_suffix('|')?;
        Some(cells.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect())
    })
}

/// Goal: whoever raises a version or adds a handler is told to write it down. Method: the document's table against the code's.
#[test]
fn the_table_of_apis_is_what_api_versions_lists() {
    let text = document("COMPAT.md");
    let documented: BTreeMap<i16, (String, String)> =
        rows(&text).filter_map(|row| Some((row[0].parse().ok()?, (row[1].clone(), row[2].clone())))).collect();
    let served = ApiKey::ALL.iter().filter(|key| is_served(**key)).filter_map(|key| {
        let versions = key.advertised_versions()?;
        let (min, max) = (versions.start(), versions.end());
        let range = if min == max { min.to_string() } else { format!("{min}-{max}") };
        Some((key.code(), (key.name().to_owned(), range)))
    });
    assert_eq!(documented, served.collect());
}

#[test]
fn every_api_that_is_to_be_served_has_a_handler() {
    for key in ApiKey::ALL.iter().filter(|key| key.advertised_versions().is_some()) {
        assert!(is_served(*key), "{key}");
    }
}

#[test]
fn the_table_of_properties_has_every_one_with_its_default_and_meaning() {
    let text = document("OPERATIONS.md");
    let settable = PROPERTIES.iter().filter(|property| property.scope != Scope::Shown);
    let names: Vec<&str> = settable.clone().map(|property| property.name).collect();
    let documented: Vec<_> = rows(&text).filter(|row| row.len() == 4 && names.contains(&row[0].as_str())).collect();
    let expected = settable.map(|property| {
        let scope = match property.scope {
            Scope::Broker | Scope::Shown => "broker".to_owned(),
            Scope::Running => "running broker".to_owned(),
            Scope::Coordinator => "coordinator".to_owned(),
            Scope::Cluster => "cluster".to_owned(),
            Scope::TopicDefault(key) => format!("topics: `{key}"),
        };
        vec![property.name.to_owned(), property.default.to_owned(), scope, property.doc.to_owned()]
    });
    assert_eq!(documented, expected.collect::<Vec<_>>());
}

#[test]
fn every_metric_is_explained() {
    let text = document("OPERATIONS.md");
    let mut page = String::new();
    text::encode_registry(&mut page, Metrics::new().registry()).unwrap();
    let names: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(!names.is_empty());
    let missing: Vec<_> = names.iter().filter(|name| !text.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/OPERATIONS.md does not mention {missing:?}");
}
