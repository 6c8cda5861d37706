//! What a consumer subscribes to (KIP-496) and what it was assigned: as far as a coordinator ever looks into either.

/// The topics of a `ConsumerProtocolSubscription`: version i16, then an array of strings; what follows is not looked at.
///
/// `None` if the bytes are something else.
pub(super) fn topics(metadata: &[u8]) -> Option<Vec<&str>> {
    let mut rest = metadata;
    let version = i16::from_be_bytes(take(&mut rest)?);
    if version < 0 {
        return None;
    }
    let count = i32::from_be_bytes(take(&mut rest)?);
    // No capacity from a count that nobody has checked: each topic takes at least two bytes of what is there.
    let mut topics = Vec::new();
    for _ in 0..count.max(0) {
        let length = usize::try_from(i16::from_be_bytes(take(&mut rest)?)).ok()?;
        let (name, after) = rest.split_at_checked(length)?;
        topics.push(std::str::from_utf8(name).ok()?);
        rest = after;
    }
    Some(topics)
}

/// The partitions of a `ConsumerProtocolAssignment`: version i16, then an array of topic and array of i32.
///
/// `None` if the bytes are something else.
pub(super) fn partitions(assignment: &[u8]) -> Option<Vec<(&str, i32)>> {
    let mut rest = assignment;
    let version = i16::from_be_bytes(take(&mut rest)?);
    if version < 0 {
        return None;
    }
    let topic_count = i32::from_be_bytes(take(&mut rest)?);
    // As above: each topic takes at least six bytes, each partition four.
    let mut partitions = Vec::new();
    for _ in 0..topic_count.max(0) {
        let length = usize::try_from(i16::from_be_bytes(take(&mut rest)?)).ok()?;
        let (name, after) = rest.split_at_checked(length)?;
        let topic = std::str::from_utf8(name).ok()?;
        rest = after;
        for _ in 0..i32::from_be_bytes(take(&mut rest)?).max(0) {
            partitions.push((topic, i32::from_be_bytes(take(&mut rest)?)));
        }
    }
    Some(partitions)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_and_the_rest_is_left() {
        let bytes = b"\0\x01\0\0\0\x02\0\x01a\0\x02bcrest";
        assert_eq!(topics(bytes), Some(vec!["a", "bc"]));
        assert_eq!(topics(b"\0\0\0\0\0\0"), Some(vec![]));
    }

    #[test]
    fn assigned_partitions_are_read_and_other_bytes_are_none() {
        let bytes = b"\0\x01\0\0\0\x02\0\x01a\0\0\0\x02\0\0\0\0\0\0\0\x05\0\x01b\0\0\0\0rest";
        assert_eq!(partitions(bytes), Some(vec![("a", 0), ("a", 5)]));
        assert_eq!(partitions(b"\0\0\x7F\xFF\xFF\xFF"), None);
        assert_eq!(partitions(b"\0\0\0\0\0\x01\0\x01a\x7F\xFF\xFF\xFF\0\0\0\x01"), None);
    }

    #[test]
    fn other_bytes_are_no_subscription() {
        for bytes in [
            &b""[..],
            b"\0",
            b"\xFF\xFF\0\0\0\0",
            b"\0\0\x7F\xFF\xFF\xFF",
            b"\0\0\0\0\0\x01\xFF\xFF",
            b"\0\0\0\0\0\x01\0\x05a",
        ] {
            assert_eq!(topics(bytes), None, "{bytes:?}");
        }
    }
}
