//! What the fuzz targets do with their bytes. Plain functions, so that stable tests replay the corpus through them.

pub mod counting_allocator;
pub mod storage_targets;
pub mod uncounted_disk;
pub mod wire_targets;
