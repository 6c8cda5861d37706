//! Subscribing by pattern: the topics that match now, and those that come later.

use std::collections::BTreeSet;
use std::time::Instant;

use regex::Regex;
use tracing::{debug, info};

use super::Consumer;
use super::group::{Group, MISSING_TOPIC_PAUSE};
use crate::client::Client;
use crate::error::{ClientError, Result};

/// What a member subscribed to, and when it was last compared with the topics that there are.
#[derive(Debug)]
pub(super) struct TopicPattern {
    regex: Regex,
    checked: Instant,
}

impl Consumer {
    /// Reads every topic whose whole name matches, as a member of the group. Topics that appear later are taken up
    /// within [`crate::ClientConfig::metadata_max_age`], and those that go are given up. Internal topics never match.
    ///
    /// # Errors
    /// The pattern cannot be read, there is no group, or no broker answers.
    pub async fn subscribe_pattern(&mut self, pattern: &str) -> Result<()> {
        let regex = Regex::new(&format!("^(?:{pattern})$")).map_err(|error| ClientError::InvalidUse {
            what: format!("'{pattern}' is no pattern of topic names: {error}"),
            remedy: "correct it".to_owned(),
        })?;
        let topics = matching(&self.client, &regex).await?;
        let Some(group) = &mut self.group else {
            return Err(ClientError::InvalidUse {
                what: "subscribing needs a group".to_owned(),
                remedy: "set group_id, or assign partitions".to_owned(),
            });
        };
        group.subscribe(topics);
        group.pattern = Some(TopicPattern { regex, checked: Instant::now() });
        Ok(())
    }
}

impl Group {
    /// Looks again for topics that match, when it is time; joins again with what it finds.
    pub(super) async fn watch_pattern(&mut self) {
        let Some(pattern) = &mut self.pattern else { return };
        let max_age = self.shared.client.config().metadata_max_age;
        let has_none = self.topics.as_ref().is_some_and(BTreeSet::is_empty);
        let pause = if has_none { max_age.min(MISSING_TOPIC_PAUSE) } else { max_age };
        if pattern.checked.elapsed() < pause {
            return;
        }
        pattern.checked = Instant::now();
        match matching(&self.shared.client, &pattern.regex).await {
            Ok(topics) if self.topics.as_ref() != Some(&topics) => {
                info!(group = self.shared.group_id, ?topics, "other topics match, joining again");
                self.topics = Some(topics);
                self.shared.membership().request_rejoin();
            }
            Ok(_) => {}
            Err(error) => debug!(%error, "no fresh metadata"),
        }
    }
}

async fn matching(client: &Client, regex: &Regex) -> Result<BTreeSet<String>> {
    let all = client.fetch_all_metadata().await?;
    let matches = all.topics.into_values().filter(|topic| !topic.is_internal && regex.is_match(&topic.name));
    Ok(matches.map(|topic| topic.name).collect())
}
