//! DescribeCluster (key 60, versions 0-2): brokers without topics (KIP-700).
//!
//! Version 1 tells brokers and controllers apart: a broker answers for brokers only (114), other kinds are 115. Version 2
//! shows fenced brokers on request (KIP-1073).

use thalweg_model::{ErrorCode, NodeId};
use thalweg_wire::messages::describe_cluster::DescribeClusterBroker;
use thalweg_wire::messages::{DescribeClusterRequest, DescribeClusterResponse};

use super::authorized_operations::{CLUSTER_OPERATIONS, told};
use super::context::RequestContext;
use crate::services::Services;

pub async fn handle(
    services: &Services,
    cx: &RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    match request.endpoint_type {
        ENDPOINT_BROKER => {}
        ENDPOINT_CONTROLLER => {
            let message = "this is a broker; brokers answer for controllers' work themselves";
            return failed(ErrorCode::MismatchedEndpointType, message);
        }
        _ => return failed(ErrorCode::UnsupportedEndpointType, "endpoints are brokers (1) or controllers (2)"),
    }
    let image = services.image();
    let shown = image.brokers.iter().filter(|(_, broker)| request.include_fenced_brokers || !broker.fenced);
    let brokers: Vec<_> = shown
        .filter_map(|(id, broker)| {
            let (host, port) = cx.address_of(services, *id, broker)?;
            Some(DescribeClusterBroker {
                broker_id: id.0,
                host,
                port: i32::from(port),
                rack: broker.rack.clone(),
                is_fenced: broker.fenced,
            })
        })
        .collect();
    DescribeClusterResponse {
        endpoint_type: request.endpoint_type,
        cluster_id: image.cluster_id.to_string(),
        controller_id: controller(services.node_id(), &brokers),
        brokers,
        cluster_authorized_operations: told(CLUSTER_OPERATIONS, request.include_cluster_authorized_operations),
        ..Default::default()
    }
}

/// As in Metadata: this broker if it is live, else any that is; any broker forwards what a controller does.
fn controller(own: NodeId, brokers: &[DescribeClusterBroker]) -> i32 {
    let live = || brokers.iter().filter(|broker| !broker.is_fenced).map(|broker| broker.broker_id);
    live().find(|id| *id == own.0).or_else(|| live().next()).unwrap_or(NodeId::NONE.0)
}

/// What is answered is always about brokers, as Kafka has it.
fn failed(code: ErrorCode, message: &str) -> DescribeClusterResponse {
    DescribeClusterResponse {
        error_code: code.code(),
        error_message: Some(message.to_owned()),
        endpoint_type: ENDPOINT_BROKER,
        ..Default::default()
    }
}

const ENDPOINT_BROKER: i8 = 1;
const ENDPOINT_CONTROLLER: i8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_live_and_this_broker_if_it_can_be() {
        let broker = |broker_id, is_fenced| DescribeClusterBroker { broker_id, is_fenced, ..Default::default() };
        assert_eq!(controller(NodeId(2), &[broker(1, false), broker(2, false)]), 2);
        assert_eq!(controller(NodeId(2), &[broker(0, true), broker(1, false), broker(2, true)]), 1);
        assert_eq!(controller(NodeId(2), &[]), -1);
    }
}
