//! A Kafka broker: listens, appends, serves; holds log data and a copy of the cluster's image.

pub mod api;
pub mod config;
pub mod machine;
pub mod metrics;
pub mod services;
pub mod shell;
