//! Identities: nodes, topics, producers.

use std::fmt;

/// A broker or coordinator node. Never reused once given out (REPLICATION R5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i32);

impl NodeId {
    /// What Kafka writes where there is no node: no leader, no controller.
    pub const NONE: NodeId = NodeId(-1);
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names one life of a topic; a topic that is deleted and created again gets another (KIP-516).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// "No topic id": what requests of older versions carry. Never the id of a topic.
    pub const ZERO: TopicId = TopicId([0; 16]);

    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Kafka's text form: URL-safe base64 of the 16 bytes without padding, 22 characters.
    pub fn to_base64(self) -> String {
        let mut text = String::with_capacity(22);
        for chunk in self.0.chunks(3) {
            let bits = chunk.iter().enumerate().fold(0u32, |bits, (i, byte)| bits | u32::from(*byte) << (16 - 8 * i));
            for i in 0..=chunk.len() {
                text.push(char::from(BASE64[(bits >> (18 - 6 * i)) as usize & 63]));
            }
        }
        text
    }

    /// Reads what [`TopicId::to_base64`] writes; `None` for anything else.
    pub fn from_base64(text: &str) -> Option<TopicId> {
        if text.len() != 22 {
            return None;
        }
        let mut bits: u128 = 0;
        for (i, byte) in text.bytes().enumerate() {
            let digit = BASE64.iter().position(|b| *b == byte)? as u128;
            // The last digit carries only two bits; the other four are zero in a canonical text.
            bits = if i == 21 {
                if digit & 0xF != 0 {
                    return None;
                }
                bits << 2 | digit >> 4
            } else {
                bits << 6 | digit
            };
        }
        Some(TopicId(bits.to_be_bytes()))
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_base64())
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An idempotent or transactional producer (KIP-98). `-1` in a batch means "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub i64);

impl ProducerId {
    pub const NONE: ProducerId = ProducerId(-1);

    pub fn is_some(self) -> bool {
        self.0 >= 0
    }
}

impl fmt::Display for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which life of a producer id; a larger one fences a smaller one (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerEpoch(pub i16);

impl ProducerEpoch {
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

impl fmt::Display for ProducerEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_id_text_is_kafkas_base64() {
        // The first two are values of Kafka's own Uuid class.
        assert_eq!(TopicId::ZERO.to_base64(), "AAAAAAAAAAAAAAAAAAAAAA");
        let mut one = [0; 16];
        one[15] = 1;
        assert_eq!(TopicId(one).to_base64(), "AAAAAAAAAAAAAAAAAAAAAQ");
        let id =
            TopicId([0x2a, 0x51, 0xff, 0x00, 0x81, 0x7e, 0x40, 0x1c, 0xb3, 0xd4, 0xe5, 0xf6, 0x07, 0x18, 0x29, 0x3b]);
        assert_eq!(TopicId::from_base64(&id.to_base64()), Some(id));
    }

    #[test]
    fn topic_id_refuses_text_that_it_would_not_write() {
        assert_eq!(TopicId::from_base64(""), None);
        assert_eq!(TopicId::from_base64("AAAAAAAAAAAAAAAAAAAAA"), None);
        assert_eq!(TopicId::from_base64("AAAAAAAAAAAAAAAAAAAAA="), None);
        assert_eq!(TopicId::from_base64("AAAAAAAAAAAAAAAAAAAAAB"), None);
    }
}
