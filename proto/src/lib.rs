//! gRPC contracts between brokers and coordinators, and the stored form of what coordinators keep.

/// Generated from `proto/thalweg/v1`.
pub mod v1 {
    tonic::include_proto!("thalweg.v1");
}
