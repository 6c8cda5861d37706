//! Configurations of topics, brokers and groups.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_model::NodeId;
use thalweg_wire::messages::describe_configs::{
    DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult,
};
use thalweg_wire::messages::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::messages::{DescribeConfigsRequest, IncrementalAlterConfigsRequest};

use super::{Admin, missing};
use crate::client::Lane;
use crate::error::{ClientError, Result};

/// Whose configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigResource {
    Topic(String),
    Broker(NodeId),
    /// What brokers use that have no value of their own.
    AllBrokers,
    Group(String),
}

/// One setting as it holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    pub name: String,
    /// `None` for what the broker does not show.
    pub value: Option<String>,
    pub source: ConfigSource,
    pub is_read_only: bool,
    pub is_sensitive: bool,
    pub documentation: Option<String>,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    Topic,
    DynamicBroker,
    DynamicDefaultBroker,
    StaticBroker,
    Default,
    Group,
    Other(i8),
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    Set(String, String),
    /// Back to the default.
    Delete(String),
    /// Adds to a list.
    Append(String, String),
    /// Takes from a list.
    Subtract(String, String),
}

impl ConfigResource {
    fn wire(&self) -> (i8, String) {
        match self {
            ConfigResource::Topic(name) => (2, name.clone()),
            ConfigResource::Broker(node) => (4, node.to_string()),
            ConfigResource::AllBrokers => (4, String::new()),
            ConfigResource::Group(id) => (32, id.clone()),
        }
    }

    fn describe(&self) -> String {
        match self {
            ConfigResource::Topic(name) => format!("configuration of topic {name}"),
            ConfigResource::Broker(node) => format!("configuration of broker {node}"),
            ConfigResource::AllBrokers => "configuration of all brokers".to_owned(),
            ConfigResource::Group(id) => format!("configuration of group {id}"),
        }
    }

    /// Only that broker knows its configuration; for others any will do.
    fn node(&self) -> Option<NodeId> {
        match self {
            ConfigResource::Broker(node) => Some(*node),
            ConfigResource::Topic(_) | ConfigResource::AllBrokers | ConfigResource::Group(_) => None,
        }
    }
}

impl ConfigSource {
    fn from_code(code: i8) -> ConfigSource {
        match code {
            1 => ConfigSource::Topic,
            2 => ConfigSource::DynamicBroker,
            3 => ConfigSource::DynamicDefaultBroker,
            4 => ConfigSource::StaticBroker,
            5 => ConfigSource::Default,
            8 => ConfigSource::Group,
            other => ConfigSource::Other(other),
        }
    }

    /// As in a table.
    pub fn name(self) -> &'static str {
        match self {
            ConfigSource::Topic => "topic",
            ConfigSource::DynamicBroker => "broker",
            ConfigSource::DynamicDefaultBroker => "cluster",
            ConfigSource::StaticBroker => "file",
            ConfigSource::Default => "default",
            ConfigSource::Group => "group",
            ConfigSource::Other(_) => "other",
        }
    }
}

impl Admin {
    /// All settings, in order of their names.
    ///
    /// # Errors
    /// There is no such resource, or it may not be read.
    pub async fn describe_configs(&self, resource: &ConfigResource) -> Result<Vec<ConfigEntry>> {
        let (resource_type, resource_name) = resource.wire();
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource { resource_type, resource_name, configuration_keys: None }],
            include_synonyms: false,
            include_documentation: true,
        };
        let answer = match resource.node() {
            Some(node) => self.client.call_node(node, Lane::Control, &request, Duration::ZERO).await?,
            None => self.client.call_any(&request).await?,
        };
        let result =
            answer.results.into_iter().next().ok_or_else(|| missing("DescribeConfigs", &resource.describe()))?;
        ClientError::check(result.error_code, || resource.describe(), result.error_message)?;
        let mut entries: Vec<ConfigEntry> = result.configs.into_iter().map(entry).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// One setting of many topics that is a number, in one question; topics that are gone meanwhile are left out.
    ///
    /// # Errors
    /// No broker answers.
    pub async fn describe_topics_number<'a>(
        &self,
        topics: impl IntoIterator<Item = &'a str>,
        key: &str,
    ) -> Result<BTreeMap<String, i64>> {
        let resource = |name: &str| DescribeConfigsResource {
            resource_type: 2,
            resource_name: name.to_owned(),
            configuration_keys: Some(vec![key.to_owned()]),
        };
        let request = DescribeConfigsRequest {
            resources: topics.into_iter().map(resource).collect(),
            include_synonyms: false,
            include_documentation: false,
        };
        let answer = self.client.call_any(&request).await?;
        let number = |result: DescribeConfigsResult| {
            let value = result.configs.into_iter().find(|config| config.name == key)?.value?;
            Some((result.resource_name, value.parse().ok()?))
        };
        Ok(answer.results.into_iter().filter_map(number).collect())
    }

    /// Changes the named keys and leaves the others.
    ///
    /// # Errors
    /// A key or value that the broker does not take; nothing is changed then.
    pub async fn alter_configs(
        &self,
        resource: &ConfigResource,
        changes: &[ConfigChange],
        validate_only: bool,
    ) -> Result<()> {
        let (resource_type, resource_name) = resource.wire();
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type,
                resource_name,
                configs: changes.iter().map(change).collect(),
            }],
            validate_only,
        };
        let answer = match resource.node() {
            Some(node) => self.client.call_node(node, Lane::Control, &request, self.timeout()).await?,
            None => self.client.call_controller(&request, self.timeout()).await?,
        };
        let result = answer.responses.into_iter().next();
        let result = result.ok_or_else(|| missing("IncrementalAlterConfigs", &resource.describe()))?;
        ClientError::check(result.error_code, || resource.describe(), result.error_message)
    }
}

fn entry(config: DescribeConfigsResourceResult) -> ConfigEntry {
    ConfigEntry {
        name: config.name,
        value: config.value.filter(|_| !config.is_sensitive),
        source: ConfigSource::from_code(config.config_source),
        is_read_only: config.read_only,
        is_sensitive: config.is_sensitive,
        documentation: config.documentation.filter(|text| !text.is_empty()),
    }
}

fn change(change: &ConfigChange) -> AlterableConfig {
    let (config_operation, name, value) = match change {
        ConfigChange::Set(name, value) => (0, name, Some(value)),
        ConfigChange::Delete(name) => (1, name, None),
        ConfigChange::Append(name, value) => (2, name, Some(value)),
        ConfigChange::Subtract(name, value) => (3, name, Some(value)),
    };
    AlterableConfig { name: name.clone(), config_operation, value: value.cloned() }
}
