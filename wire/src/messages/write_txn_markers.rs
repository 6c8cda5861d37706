//! WriteTxnMarkers (key 27): broker to broker, writes the end of a transaction into its partitions.

message! {
    WriteTxnMarkersRequest: WriteTxnMarkers, 1..=2, flexible 1; {
        [0..] markers: Vec<WritableTxnMarker>;
    }
}

structure! {
    WritableTxnMarker {
        [0..] producer_id: i64;
        [0..] producer_epoch: i16;
        [0..] transaction_result: bool;
        [0..] topics: Vec<WritableTxnMarkerTopic>;
        [0..] coordinator_epoch: i32;
        [2..] transaction_version: i8;
    }

    WritableTxnMarkerTopic {
        [0..] name: String;
        [0..] partition_indexes: Vec<i32>;
    }
}

message! {
    WriteTxnMarkersResponse: WriteTxnMarkers, 1..=2, flexible 1; {
        [0..] markers: Vec<WritableTxnMarkerResult>;
    }
}

structure! {
    WritableTxnMarkerResult {
        [0..] producer_id: i64;
        [0..] topics: Vec<WritableTxnMarkerTopicResult>;
    }

    WritableTxnMarkerTopicResult {
        [0..] name: String;
        [0..] partitions: Vec<WritableTxnMarkerPartitionResult>;
    }

    WritableTxnMarkerPartitionResult {
        [0..] partition_index: i32;
        [0..] error_code: i16;
    }
}
