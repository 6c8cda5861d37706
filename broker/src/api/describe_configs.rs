//! DescribeConfigs (key 32, versions 1-4): the configuration of topics and of this broker.
//!
//! - Every known key is shown, with where its value comes from: topic 1, this broker's dynamic value 2, that of all brokers
//!   3, the configuration file 4, the built-in default 5. Synonyms list all of these that have a value, the effective first.
//! - Keys null asks for all, and so does an empty list (as in Kafka).
//! - Version 3 adds the type and, on request, a sentence of documentation (KIP-569).
//! - A broker without a name stands for what is set for all brokers. Another broker is 42, a missing topic 3, another kind 42.

use std::collections::BTreeSet;

use thalweg_model::topic_config::{self, ConfigKey, ConfigType};
use thalweg_model::{ErrorCode, NodeId, TopicName};
use thalweg_wire::messages::describe_configs::{
    DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use thalweg_wire::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::admin_calls::Refusal;
use super::config_resource::{KIND_BROKER, KIND_TOPIC, broker_scope};
use super::context::RequestContext;
use crate::config::properties::{self, PROPERTIES, Properties, Property, Scope};
use crate::machine::image::{ConfigScope, Image};
use crate::services::Services;

pub async fn handle(
    services: &Services,
    _: &RequestContext,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let image = services.image();
    let view = View {
        image: &image,
        properties: &services.config.properties,
        own: services.node_id(),
        own_text: services.node_id().to_string(),
        include_synonyms: request.include_synonyms,
        include_documentation: request.include_documentation,
    };
    // Once each, so that an answer is not larger than the cluster.
    let mut seen = BTreeSet::new();
    let once =
        request.resources.into_iter().filter(|asked| seen.insert((asked.resource_type, asked.resource_name.clone())));
    DescribeConfigsResponse { results: once.map(|asked| view.answer(asked)).collect(), ..Default::default() }
}

/// What one request sees.
struct View<'a> {
    image: &'a Image,
    properties: &'a Properties,
    own: NodeId,
    own_text: String,
    include_synonyms: bool,
    include_documentation: bool,
}

/// One place where a key has a value.
struct Level<'a> {
    name: &'a str,
    value: &'a str,
    source: Source,
}

/// As Kafka numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Topic = 1,
    DynamicBroker = 2,
    DynamicDefaultBroker = 3,
    StaticBroker = 4,
    Default = 5,
}

impl View<'_> {
    fn answer(&self, asked: DescribeConfigsResource) -> DescribeConfigsResult {
        let configs = match asked.resource_type {
            KIND_TOPIC => self.topic(&asked.resource_name),
            KIND_BROKER => self.broker(&asked.resource_name),
            kind => {
                let message =
                    format!("resource type {kind} has no configuration here; topics (2) and brokers (4) have");
                Err((ErrorCode::InvalidRequest, message))
            }
        };
        let (code, error_message, mut configs) = match configs {
            Ok(configs) => (ErrorCode::None, None, configs),
            Err((code, message)) => (code, Some(message), Vec::new()),
        };
        if let Some(keys) = asked.configuration_keys.filter(|keys| !keys.is_empty()) {
            configs.retain(|config| keys.contains(&config.name));
        }
        DescribeConfigsResult {
            error_code: code.code(),
            error_message,
            resource_type: asked.resource_type,
            resource_name: asked.resource_name,
            configs,
        }
    }

    fn topic(&self, name: &str) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        TopicName::new(name).map_err(|error| (ErrorCode::InvalidTopicException, error.to_string()))?;
        if self.image.topic(name).is_none() {
            return Err((ErrorCode::UnknownTopicOrPartition, format!("there is no topic '{name}'")));
        }
        let overrides = self.image.overrides(&ConfigScope::Topic(name.to_owned()));
        let entry = |key: &'static ConfigKey| {
            let property = properties::default_of_topic_key(key.name);
            let own = overrides.get(key.name).map(|value| Level { name: key.name, value, source: Source::Topic });
            let mut levels: Vec<Level<'_>> = own.into_iter().collect();
            levels.extend(property.into_iter().flat_map(|property| self.dynamic_levels(property)));
            levels.extend(property.and_then(|property| self.static_level(property)));
            let name = property.map_or(key.name, |property| property.name);
            levels.push(Level { name, value: key.default, source: Source::Default });
            self.entry(key.name, key.kind, key.doc, false, &levels)
        };
        Ok(topic_config::KEYS.iter().map(entry).collect())
    }

    fn broker(&self, name: &str) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        if broker_scope(name, self.own)? == ConfigScope::BrokerDefault {
            let set = self.image.overrides(&ConfigScope::BrokerDefault).iter();
            let entries = set.filter_map(|(key, value)| {
                let property = properties::property(key)?;
                let level = Level { name: property.name, value, source: Source::DynamicDefaultBroker };
                Some(self.entry(property.name, property.kind, property.doc, false, &[level]))
            });
            return Ok(entries.collect());
        }
        let entry = |property: &'static Property| {
            let mut levels = self.dynamic_levels(property);
            levels.extend(self.static_level(property));
            levels.push(Level { name: property.name, value: property.default, source: Source::Default });
            let is_fixed = !matches!(property.scope, Scope::TopicDefault(_) | Scope::Running | Scope::Cluster);
            self.entry(property.name, property.kind, property.doc, is_fixed, &levels)
        };
        Ok(PROPERTIES.iter().map(entry).collect())
    }

    /// This broker's own value before that of all brokers.
    fn dynamic_levels(&self, property: &'static Property) -> Vec<Level<'_>> {
        let scopes = [
            (ConfigScope::Broker(self.own), Source::DynamicBroker),
            (ConfigScope::BrokerDefault, Source::DynamicDefaultBroker),
        ];
        let levels = scopes.into_iter().filter_map(|(scope, source)| {
            let value = self.image.overrides(&scope).get(property.name)?;
            Some(Level { name: property.name, value, source })
        });
        levels.collect()
    }

    fn static_level(&self, property: &'static Property) -> Option<Level<'_>> {
        if matches!(property.name, "node.id" | "broker.id") {
            // Perhaps the coordinators gave it out; it stays for ever all the same.
            return Some(Level { name: property.name, value: &self.own_text, source: Source::StaticBroker });
        }
        let (value, is_given) = self.properties.text(property.name)?;
        is_given.then_some(Level { name: property.name, value, source: Source::StaticBroker })
    }

    /// `levels` holds at least one, the effective first.
    fn entry(
        &self,
        name: &str,
        kind: ConfigType,
        doc: &str,
        read_only: bool,
        levels: &[Level<'_>],
    ) -> DescribeConfigsResourceResult {
        let synonym = |level: &Level<'_>| DescribeConfigsSynonym {
            name: level.name.to_owned(),
            value: shown(level),
            source: level.source as i8,
        };
        let effective = levels.first();
        DescribeConfigsResourceResult {
            name: name.to_owned(),
            value: effective.and_then(shown),
            read_only,
            config_source: effective.map_or(Source::Default, |level| level.source) as i8,
            is_sensitive: false,
            synonyms: if self.include_synonyms { levels.iter().map(synonym).collect() } else { Vec::new() },
            config_type: kind as i8,
            documentation: self.include_documentation.then(|| doc.to_owned()),
        }
    }
}

/// A broker's default that is empty stands for none at all; a topic's list may be empty.
fn shown(level: &Level<'_>) -> Option<String> {
    let is_absent =
        level.value.is_empty() && level.source == Source::Default && topic_config::key(level.name).is_none();
    (!is_absent).then(|| level.value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{self, set_config};
    use crate::machine::image::ImageBuilder;
    use thalweg_proto::v1::config_record::Resource;
    use thalweg_proto::v1::{self, record::Kind};

    /// Topic `a`, and whatever `set` adds.
    fn image(set: &[(Resource, &str, &str, &str)]) -> Image {
        let mut records =
            vec![Kind::Topic(v1::TopicRecord { name: "a".into(), topic_id: vec![1; 16].into(), ..Default::default() })];
        for (resource, name, key, value) in set {
            set_config(&mut records, *resource, name, key, value);
        }
        testing::changed(ImageBuilder::default(), records)
    }

    fn describe(
        image: &Image,
        properties: &Properties,
        kind: i8,
        name: &str,
        keys: Option<&[&str]>,
    ) -> DescribeConfigsResult {
        let view = View {
            image,
            properties,
            own: NodeId(3),
            own_text: "3".to_owned(),
            include_synonyms: true,
            include_documentation: true,
        };
        view.answer(DescribeConfigsResource {
            resource_type: kind,
            resource_name: name.into(),
            configuration_keys: keys.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect()),
        })
    }

    fn synonyms(entry: &DescribeConfigsResourceResult) -> Vec<(&str, &str, i8)> {
        let synonyms = entry.synonyms.iter();
        synonyms.map(|synonym| (synonym.name.as_str(), synonym.value.as_deref().unwrap(), synonym.source)).collect()
    }

    /// Goal: every source in its order of precedence. Method: set one key everywhere, then take away from the front.
    #[test]
    fn a_topics_value_comes_from_the_nearest_place_that_has_one() {
        let properties = Properties::parse([("log.retention.ms", "4")]).unwrap();
        let levels = [
            (Resource::Topic, "a", "retention.ms", "1"),
            (Resource::Broker, "3", "log.retention.ms", "2"),
            (Resource::Broker, "", "log.retention.ms", "3"),
        ];
        for first in 0..=3 {
            let image = image(&levels[first..]);
            let result = describe(&image, &properties, 2, "a", Some(&["retention.ms"]));
            let entry = &result.configs[0];
            let expected: Vec<(&str, &str, i8)> = [
                ("retention.ms", "1", 1),
                ("log.retention.ms", "2", 2),
                ("log.retention.ms", "3", 3),
                ("log.retention.ms", "4", 4),
                ("log.retention.ms", "604800000", 5),
            ][first..]
                .to_vec();
            assert_eq!(synonyms(entry), expected);
            assert_eq!((entry.value.as_deref(), entry.config_source), (Some(expected[0].1), expected[0].2));
            assert!(!entry.read_only);
        }
    }

    #[test]
    fn an_untouched_topic_shows_every_key_as_a_default() {
        let result = describe(&image(&[]), &Properties::default(), 2, "a", None);
        assert_eq!((result.error_code, result.error_message), (0, None));
        assert_eq!(result.configs.len(), topic_config::KEYS.len());
        assert!(result.configs.iter().all(|entry| entry.config_source == 5 && entry.config_type != 0));
        let policy = result.configs.iter().find(|entry| entry.name == "cleanup.policy").unwrap();
        assert_eq!((policy.value.as_deref(), policy.config_type), (Some("delete"), 7));
        assert!(policy.documentation.is_some());
    }

    #[test]
    fn null_and_no_keys_ask_for_all_and_unknown_ones_are_left_out() {
        let image = image(&[]);
        let count = |keys| describe(&image, &Properties::default(), 2, "a", keys).configs.len();
        assert_eq!(count(None), count(Some(&[])));
        assert_eq!(count(Some(&["no.such.key", "segment.ms"])), 1);
    }

    #[test]
    fn a_broker_shows_what_it_was_told_and_what_can_be_changed() {
        let properties = Properties::parse([("num.partitions", "6")]).unwrap();
        let image = image(&[(Resource::Broker, "3", "log.flush.interval.messages", "1234")]);
        let result = describe(&image, &properties, 4, "3", None);
        assert_eq!(result.configs.len(), PROPERTIES.len());
        let entry = |name: &str| result.configs.iter().find(|entry| entry.name == name).unwrap();
        let seen = |name: &str| {
            let entry = entry(name);
            (entry.value.as_deref(), entry.config_source, entry.read_only)
        };
        assert_eq!(seen("log.flush.interval.messages"), (Some("1234"), 2, false));
        assert_eq!(seen("num.partitions"), (Some("6"), 4, true));
        assert_eq!(seen("node.id"), (Some("3"), 4, true));
        assert_eq!(seen("broker.rack"), (None, 5, true));
        assert_eq!(seen("log.retention.ms"), (Some("604800000"), 5, false));
    }

    #[test]
    fn a_broker_without_a_name_shows_what_is_set_for_all() {
        let image =
            image(&[(Resource::Broker, "", "log.retention.ms", "3"), (Resource::Broker, "3", "log.roll.ms", "9")]);
        let result = describe(&image, &Properties::default(), 4, "", None);
        assert_eq!(result.configs.len(), 1);
        assert_eq!((result.configs[0].name.as_str(), result.configs[0].config_source), ("log.retention.ms", 3));
    }

    #[test]
    fn what_cannot_be_described_says_why() {
        let image = image(&[]);
        for (kind, name, code) in [(2, "b", 3), (2, "../x", 17), (4, "4", 42), (4, "x", 42), (8, "3", 42), (0, "a", 42)]
        {
            let result = describe(&image, &Properties::default(), kind, name, None);
            assert_eq!(result.error_code, code, "{kind} {name}");
            assert!(result.error_message.is_some() && result.configs.is_empty());
        }
    }

    #[test]
    fn every_topic_key_that_all_topics_could_have_has_a_broker_property_with_the_same_default() {
        let of_one_topic = |key: &&ConfigKey| key.name.ends_with("replication.throttled.replicas");
        for key in topic_config::KEYS.iter().filter(|key| !of_one_topic(key)) {
            let property = properties::default_of_topic_key(key.name).unwrap_or_else(|| panic!("{}", key.name));
            assert_eq!((property.default, property.kind), (key.default, key.kind), "{}", key.name);
        }
    }
}
