//! What a broker says of itself, for whoever looks after it.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use thalweg_model::NodeId;
use thalweg_wire::inspect::{
    AdvertisedReport, ArrivalReport, BrokerReport, DirReport, EndpointReport, ListenerReport, NodeReport, ToldReport,
};

use super::context::{ConnectionInfo, RequestContext};
use crate::config::{Advertised, ListenerConfig};
use crate::machine::image::{BrokerImage, Image};
use crate::services::Services;

pub fn report(services: &Services, cx: &RequestContext) -> NodeReport {
    let image = services.image();
    let dirs = services.dirs().map(|dirs| {
        let dir = |dir: &Arc<thalweg_storage::LogDir>| DirReport {
            path: dir.path().display().to_string(),
            is_offline: dir.is_offline(),
            free_bytes: dirs.free_bytes(dir.path()),
        };
        dirs.all().iter().map(dir).collect()
    });
    let mut arrivals = services.arrivals.open();
    let left_out = arrivals.len().saturating_sub(ARRIVALS_MAX);
    arrivals.truncate(ARRIVALS_MAX);
    let arrivals = arrivals.into_iter().map(|(arrival, count)| arrived(services, &image, &arrival, count));
    NodeReport {
        node_id: services.node_id().0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now_ms: services.clock.wall().0,
        listeners: services.config.listeners.iter().map(listener).collect(),
        log_dirs: dirs.unwrap_or_default(),
        // Where there is no /proc nobody knows.
        open_files: std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64),
        open_files_limit: getrlimit(Resource::Nofile).current,
        clients: services.clients.report(),
        brokers: image.brokers.iter().map(|(id, known)| broker(*id, known)).collect(),
        asker: arrived(services, &image, &cx.connection, 1),
        arrivals: arrivals.collect(),
        arrivals_left_out: left_out as u64,
    }
}

fn listener(listener: &ListenerConfig) -> ListenerReport {
    let rule = |(network, to): &(crate::config::Network, Advertised)| AdvertisedReport {
        network: network.to_string(),
        address: to.to_string(),
    };
    ListenerReport {
        name: listener.name.clone(),
        address: listener.address.to_string(),
        advertised: listener.advertised.as_ref().map(ToString::to_string),
        advertised_to: listener.advertised_to.iter().map(rule).collect(),
    }
}

fn broker(id: NodeId, known: &BrokerImage) -> BrokerReport {
    let endpoints = known.endpoints.iter().map(|endpoint| EndpointReport {
        listener: endpoint.listener.clone(),
        address: Advertised { host: endpoint.host.clone(), port: endpoint.port }.to_string(),
        clients: endpoint.clients.map(|network| network.to_string()),
        network: endpoint.network.map(|network| network.to_string()),
    });
    BrokerReport { node_id: id.0, is_fenced: known.fenced, endpoints: endpoints.collect() }
}

fn arrived(services: &Services, image: &Image, arrival: &ConnectionInfo, connection_count: u64) -> ArrivalReport {
    let told = image.live_brokers().map(|(id, broker)| ToldReport {
        node_id: id.0,
        address: arrival.told(services, id, broker).map(|address| address.to_string()),
    });
    let to = Advertised { host: arrival.local.ip().to_canonical().to_string(), port: arrival.local.port() };
    ArrivalReport {
        listener: arrival.listener.name.clone(),
        from: arrival.peer.ip().to_canonical().to_string(),
        to: to.to_string(),
        connection_count,
        told: told.collect(),
    }
}

const ARRIVALS_MAX: usize = 100;
