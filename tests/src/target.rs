//! Which broker the tests talk to.

use std::env;
use std::sync::{Arc, Mutex, Weak};

use crate::{Conn, Node};

/// The broker that tests of one binary share.
pub enum Target {
    Ours(Box<Node>),
    /// Somebody else's broker at this address: Apache Kafka as the oracle.
    External(String),
}

impl Target {
    pub fn addr(&self) -> &str {
        match self {
            Target::Ours(node) => node.addr(),
            Target::External(addr) => addr,
        }
    }

    pub fn conn(self: &Arc<Target>) -> Conn {
        let mut conn = Conn::open(self.addr());
        conn._target = Some(Arc::clone(self));
        conn
    }

    pub fn is_kafka(&self) -> bool {
        matches!(self, Target::External(_))
    }

    /// The expected value where we differ from Kafka on purpose. The reason belongs beside the call.
    pub fn ours_or_kafkas<T>(&self, ours: T, kafkas: T) -> T {
        if self.is_kafka() { kafkas } else { ours }
    }
}

/// The shared broker: started by the first test that asks, stopped when the last lets go.
pub fn target() -> Arc<Target> {
    static SHARED: Mutex<Weak<Target>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(target) = shared.upgrade() {
        return target;
    }
    let target = Arc::new(match external() {
        Some(addr) => Target::External(addr),
        None => Target::Ours(Box::new(Node::start(&["group.min.session.timeout.ms=1000", "num.partitions=1"]))),
    });
    *shared = Arc::downgrade(&target);
    target
}

/// The address in `BROKERS`, for a test that needs a node of its own and so cannot run against a foreign broker.
pub fn external() -> Option<String> {
    env::var("BROKERS").ok().filter(|addr| !addr.is_empty())
}

/// A name nobody used before on this broker, also not an earlier run.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{:016x}", rand::random::<u64>())
}
