//! What a client may do, as the bit field of KIP-430: bit n stands for Kafka's AclOperation n.

/// Every operation of a topic: read, write, create, delete, alter, describe, describe and alter configuration.
pub const TOPIC_OPERATIONS: i32 = bits(&[3, 4, 5, 6, 7, 8, 10, 11]);

/// Every operation of a group: read, delete, describe, describe and alter configuration.
pub const GROUP_OPERATIONS: i32 = bits(&[3, 6, 8, 10, 11]);

/// Every operation of the cluster: create, alter, describe, cluster action, describe and alter configuration, idempotent write.
pub const CLUSTER_OPERATIONS: i32 = bits(&[5, 7, 8, 9, 10, 11, 12]);

/// `all` on request, else the value that stands for "not asked". There is no authorization, so all are allowed.
pub fn told(all: i32, on_request: bool) -> i32 {
    if on_request { all } else { i32::MIN }
}

const fn bits(operations: &[u32]) -> i32 {
    let mut field = 0;
    let mut i = 0;
    while i < operations.len() {
        field |= 1 << operations[i];
        i += 1;
    }
    field
}
