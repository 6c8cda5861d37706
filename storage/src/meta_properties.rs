//! `meta.properties`: whose directory this is.

use thalweg_model::{NodeId, TopicId};

/// The identity that a log dir keeps (Kafka's version 1, KIP-858).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    pub cluster_id: String,
    pub node_id: NodeId,
    /// Names this directory; a disk that was swapped has another (REPLICATION B3). `None` before Kafka 3.7.
    pub directory_id: Option<TopicId>,
}

/// Why a `meta.properties` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MetaError {
    NewerVersion(String),
    Malformed(String),
}

impl MetaProperties {
    pub(crate) fn encode(&self) -> String {
        let mut text = format!("version=1\ncluster.id={}\nnode.id={}\n", escape(&self.cluster_id), self.node_id);
        if let Some(directory_id) = self.directory_id {
            text.push_str(&format!("directory.id={directory_id}\n"));
        }
        text
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<MetaProperties, MetaError> {
        let malformed = |detail: &str| MetaError::Malformed(detail.to_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| malformed("meta.properties is no text"))?;
        match property(text, "version").as_deref() {
            Some("1") => {}
            Some("0") => return Err(malformed("meta.properties has version 0, from before KRaft")),
            Some(version) if version.parse::<u32>().is_ok() => return Err(MetaError::NewerVersion(version.to_owned())),
            _ => return Err(malformed("meta.properties has no version")),
        }
        let cluster_id = property(text, "cluster.id").filter(|id| !id.is_empty());
        let cluster_id = cluster_id.ok_or_else(|| malformed("meta.properties has no cluster.id"))?;
        let node_id = property(text, "node.id").and_then(|id| id.parse().ok());
        let node_id = NodeId(node_id.ok_or_else(|| malformed("meta.properties has no node.id"))?);
        let directory_id = match property(text, "directory.id") {
            None => None,
            Some(id) => match TopicId::from_base64(&id) {
                Some(id) => Some(id),
                None => return Err(malformed("meta.properties has a directory.id that is none")),
            },
        };
        Ok(MetaProperties { cluster_id, node_id, directory_id })
    }
}

/// The value of a key in a Java properties text, as far as these files use that format.
pub(crate) fn property(text: &str, key: &str) -> Option<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '!']));
    let mut pairs = lines.filter_map(|line| line.split_once('='));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| unescape(value.trim()))
}

fn escape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ':' | '=' | '#' | '!') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

fn unescape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        text.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kafka_writes_is_read() {
        let text = b"#\n#Mon Nov 30 08:00:00 UTC 2026\ncluster.id=Nk018hRAQFytWskYqtQduw\ndirectory.id=Yb6Dw3bRTlyOFbC0JGcrEQ\nnode.id=1\nversion=1\n";
        let meta = MetaProperties::parse(text).unwrap();
        assert_eq!((meta.cluster_id.as_str(), meta.node_id), ("Nk018hRAQFytWskYqtQduw", NodeId(1)));
        assert_eq!(meta.directory_id, TopicId::from_base64("Yb6Dw3bRTlyOFbC0JGcrEQ"));
        assert_eq!(MetaProperties::parse(meta.encode().as_bytes()), Ok(meta));
    }

    #[test]
    fn special_characters_survive() {
        let meta = MetaProperties { cluster_id: "a=b:c\\d#e".into(), node_id: NodeId(0), directory_id: None };
        assert_eq!(MetaProperties::parse(meta.encode().as_bytes()), Ok(meta));
    }

    #[test]
    fn a_newer_version_is_told_from_nonsense() {
        assert_eq!(MetaProperties::parse(b"version=2\n"), Err(MetaError::NewerVersion("2".into())));
        for text in
            ["", "version=x\n", "version=0\nbroker.id=1\n", "version=1\n", "version=1\ncluster.id=a\nnode.id=b\n"]
        {
            assert!(matches!(MetaProperties::parse(text.as_bytes()), Err(MetaError::Malformed(_))), "{text}");
        }
        assert!(MetaProperties::parse(b"version=1\ncluster.id=a\nnode.id=1\ndirectory.id=short\n").is_err());
    }
}
