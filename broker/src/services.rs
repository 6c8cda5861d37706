//! What every handler works with.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use thalweg_model::{NodeId, TopicConfig};
use thalweg_world::Clock;
use tokio::sync::watch;

use crate::config::BrokerConfig;
use crate::machine::image::Image;
use crate::metrics::Metrics;
use crate::shell::coordinators::Coordinators;
use crate::shell::group_calls::GroupCalls;

/// One per broker, shared by every connection.
pub struct Services {
    pub config: BrokerConfig,
    pub clock: Clock,
    pub coordinators: Arc<Coordinators>,
    pub groups: GroupCalls,
    pub metrics: Arc<Metrics>,
    image: ArcSwap<Image>,
    /// The coordinator's index that this broker has brought about: logs exist, leaders lead.
    applied: watch::Sender<u64>,
    node_id: OnceLock<NodeId>,
}

impl Services {
    pub fn new(config: BrokerConfig, clock: Clock, metrics: Arc<Metrics>) -> Services {
        let coordinators = Arc::new(Coordinators::new(config.coordinators.clone()));
        Services {
            config,
            clock,
            groups: GroupCalls::new(Arc::clone(&coordinators)),
            coordinators,
            metrics,
            image: ArcSwap::from_pointee(Image::default()),
            applied: watch::Sender::new(0),
            node_id: OnceLock::new(),
        }
    }

    /// This broker. Nothing is served before the coordinator has said who it is.
    ///
    /// # Panics
    /// Before the first registration: an error of the program.
    pub fn node_id(&self) -> NodeId {
        *self.node_id.get().expect("listeners start after registration")
    }

    pub(crate) fn set_node_id(&self, id: NodeId) {
        self.node_id.get_or_init(|| id);
    }

    /// The cluster as of now. Take it once per request, so that one answer does not mix two states.
    pub fn image(&self) -> Guard<Arc<Image>> {
        self.image.load()
    }

    pub(crate) fn set_image(&self, image: Arc<Image>) {
        self.image.store(image);
    }

    pub(crate) fn set_applied(&self, index: u64) {
        self.applied.send_if_modified(|applied| {
            let moved = index > *applied;
            *applied = (*applied).max(index);
            moved
        });
    }

    /// Waits until this broker has brought about what the coordinator committed at `index`, so that a topic serves as soon as
    /// its creation is answered. Gives up after a while: the operation itself has succeeded.
    pub async fn applied(&self, index: u64) {
        let mut applied = self.applied.subscribe();
        let reached = applied.wait_for(|applied| *applied >= index);
        // Either outcome is answered the same way.
        let _ = tokio::time::timeout(APPLIED_WAIT, reached).await;
    }

    /// A topic's configuration on this broker.
    pub fn topic_config(&self, image: &Image, topic: &str) -> TopicConfig {
        image.topic_config(topic, self.node_id(), &self.config.properties.topic_defaults())
    }
}

const APPLIED_WAIT: Duration = Duration::from_secs(10);
