//! What a consumer subscribes to: the one part of a member's metadata that a coordinator ever looks into (KIP-496).

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
