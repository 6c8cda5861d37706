//! What a broker says of itself, for whoever looks after it.

use rustix::process::{Resource, getrlimit};
use thalweg_wire::inspect::{DirReport, ListenerReport, NodeReport};

use crate::services::Services;

pub fn report(services: &Services) -> NodeReport {
    let listeners = services.config.listeners.iter().map(|listener| ListenerReport {
        name: listener.name.clone(),
        address: listener.address.to_string(),
        advertised: listener.advertised.as_ref().map(|at| format!("{}:{}", at.host, at.port)),
    });
    let dirs = services.dirs().map(|dirs| {
        let dir = |dir: &std::sync::Arc<thalweg_storage::LogDir>| DirReport {
            path: dir.path().display().to_string(),
            is_offline: dir.is_offline(),
            free_bytes: dirs.free_bytes(dir.path()),
        };
        dirs.all().iter().map(dir).collect()
    });
    NodeReport {
        node_id: services.node_id().0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now_ms: services.clock.wall().0,
        listeners: listeners.collect(),
        log_dirs: dirs.unwrap_or_default(),
        // Where there is no /proc nobody knows.
        open_files: std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64),
        open_files_limit: getrlimit(Resource::Nofile).current,
        clients: services.clients.report(),
    }
}
