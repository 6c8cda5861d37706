//! Configurations as flags and as tables.

use clap::Args;
use serde_json::{Value, json};
use thalweg_client::admin::{ConfigChange, ConfigEntry, ConfigSource};

use super::failure::Failure;
use super::output::Table;
use super::topic::key_value;

/// At least one change of a configuration.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct Changes {
    /// Set a value, such as retention.ms=3600000; may be repeated
    #[arg(short = 'c', long = "set", visible_aliases = ["config", "topic-config"], value_parser = key_value, value_name = "KEY=VALUE")]
    set: Vec<(String, String)>,
    /// Back to the default; may be repeated
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
    /// Add to a list, such as cleanup.policy=compact; may be repeated
    #[arg(long, value_parser = key_value, value_name = "KEY=VALUE")]
    append: Vec<(String, String)>,
    /// Take from a list; may be repeated
    #[arg(long, value_parser = key_value, value_name = "KEY=VALUE")]
    subtract: Vec<(String, String)>,
}

impl Changes {
    pub fn list(&self) -> Vec<ConfigChange> {
        let pair = |make: fn(String, String) -> ConfigChange| {
            move |(key, value): &(String, String)| make(key.clone(), value.clone())
        };
        let set = self.set.iter().map(pair(ConfigChange::Set));
        let unset = self.unset.iter().cloned().map(ConfigChange::Delete);
        let append = self.append.iter().map(pair(ConfigChange::Append));
        let subtract = self.subtract.iter().map(pair(ConfigChange::Subtract));
        set.chain(unset).chain(append).chain(subtract).collect()
    }
}

/// The settings as a table: all of them, or those that are not at their default.
pub fn print_configs(configs: &[ConfigEntry], all: bool) -> Result<(), Failure> {
    let mut table = Table::new(&["CONFIG", "VALUE", "SOURCE"]);
    let mut hidden_count = 0;
    for entry in configs {
        if !all && entry.source == ConfigSource::Default {
            hidden_count += 1;
            continue;
        }
        let value = entry.value.clone().unwrap_or_else(|| "(hidden)".to_owned());
        table.row(vec![entry.name.clone(), value, entry.source.name().to_owned()]);
    }
    if hidden_count > 0 {
        table.row(vec![format!("({hidden_count} at their default; -a shows them)")]);
    }
    table.print()
}

pub fn config_value(entry: &ConfigEntry) -> Value {
    json!({
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name(),
        "read_only": entry.is_read_only,
    })
}
