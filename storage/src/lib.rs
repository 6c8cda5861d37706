//! One partition's bytes on disk, in Apache Kafka's own formats.
//!
//! A [`LogDir`] holds the partitions of one disk. A [`PartitionLog`] is the one writer of a partition;
//! its [`ReadView`] is what everyone else reads, without locks. [`recovery`] makes a log whole after a
//! stop of any kind. Rules are cited from REPLICATION 3.7 (G1 to G9) and FAILURES 2.1.

mod active;
mod append;
mod batch_walk;
pub mod checkpoint;
mod config;
mod damage;
mod dir_identity;
mod dir_state;
mod entry_file;
mod error;
mod failure_mark;
mod flush;
mod index_builder;
mod leader_epochs;
mod log_dir;
mod log_reader;
mod meta_properties;
mod offset_checkpoint;
mod offset_index;
mod partition_log;
mod place;
mod producer_replay;
mod producer_snapshot;
mod producer_state;
mod pruning;
mod recent_batches;
mod record_time;
pub mod recovery;
mod registration;
pub mod retention;
mod segment;
mod time_index;
mod truncation;
mod txn_index;

pub use append::{AppendInfo, AppendOrigin};
pub use config::LogConfig;
pub use dir_identity::{CleanStop, DirIdentity};
pub use error::{AppendError, LogDirError, LogError, OpenError, ProducerError, ReadError};
pub use flush::{FlushOutcome, FlushTicket};
pub use leader_epochs::{EpochEntry, LeaderEpochs};
pub use log_dir::{FoundPartition, LogDir, LogDirConfig};
pub use log_reader::{LogSlice, ReadView, TimestampOffset};
pub use meta_properties::MetaProperties;
pub use partition_log::{PartitionLog, ProducerInfo};
pub use producer_state::{Marker, ProducedBatch, ProducerState, Verdict};
pub use pruning::DeletedSegment;
pub use recent_batches::StoredBatch;
pub use registration::Registration;
pub use txn_index::AbortedTxn;
