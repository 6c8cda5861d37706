//! What a new node shows to be let in: `thalweg1.CLUSTER.ID.SECRET.CHECK`.
//!
//! It names its cluster, so that a node does not ask the wrong one, and carries a checksum, so that one that was cut off or
//! mistyped is told apart from one that was never made. The coordinators keep a hash of the secret, not the secret.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use thalweg_model::TopicId;

#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// 22 characters.
    pub cluster_id: String,
    /// By which it is listed and revoked: 8 hexadecimal digits.
    pub id: String,
    secret: [u8; 16],
}

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("this is no token of a cluster: it should begin with thalweg1. and have five parts; copy the whole of it")]
    Form,
    #[error("the token is garbled: its last part does not fit the others; copy it once more, whole")]
    Checksum,
}

impl JoinToken {
    /// `id` and `secret` are random.
    pub fn new(cluster_id: &str, id: u32, secret: [u8; 16]) -> JoinToken {
        JoinToken { cluster_id: cluster_id.to_owned(), id: format!("{id:08x}"), secret }
    }

    /// SHA-256 of the secret. It is random and long, so that no salt or slow hash is needed.
    pub fn secret_hash(&self) -> Vec<u8> {
        Sha256::digest(self.secret).to_vec()
    }

    fn without_check(&self) -> String {
        let secret: String = self.secret.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{PREFIX}.{}.{}.{secret}", self.cluster_id, self.id)
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.without_check();
        write!(f, "{text}.{:08x}", crc32c::crc32c(text.as_bytes()))
    }
}

/// Without the secret: what is logged may be kept.
impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}.{}.{}.…", self.cluster_id, self.id)
    }
}

impl FromStr for JoinToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<JoinToken, TokenError> {
        let text = text.trim();
        let parts: Vec<&str> = text.split('.').collect();
        let [PREFIX, cluster_id, id, secret, check] = parts[..] else { return Err(TokenError::Form) };
        let (signed, _) = text.rsplit_once('.').ok_or(TokenError::Form)?;
        if format!("{:08x}", crc32c::crc32c(signed.as_bytes())) != check {
            return Err(TokenError::Checksum);
        }
        let secret = from_hex(secret).and_then(|bytes| bytes.try_into().ok()).ok_or(TokenError::Form)?;
        let is_well_formed = from_hex(id).is_some_and(|id| id.len() == 4) && TopicId::from_base64(cluster_id).is_some();
        is_well_formed
            .then(|| JoinToken { cluster_id: cluster_id.to_owned(), id: id.to_owned(), secret })
            .ok_or(TokenError::Form)
    }
}

/// Lower case only, as it is written.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let digits: Vec<u8> = text.as_bytes().iter().map(digit).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

const PREFIX: &str = "thalweg1";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token() -> JoinToken {
        JoinToken::new(&TopicId([9; 16]).to_base64(), 0xAB, *b"sixteen bytes !!")
    }

    #[test]
    fn a_token_reads_back_and_never_shows_its_secret_in_a_log() {
        let token = token();
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert_eq!(format!(" {token}\n").parse(), Ok(token.clone()), "as it is pasted");
        assert!(!format!("{token:?}").contains(&token.to_string()[48..]));
        assert_eq!(token.secret_hash().len(), 32);
    }

    #[test]
    fn a_garbled_token_is_told_apart_from_other_text() {
        let text = token().to_string();
        for (at, byte) in text.bytes().enumerate().skip(PREFIX.len() + 1).filter(|(_, byte)| *byte != b'.') {
            let other = if byte == b'0' { "1" } else { "0" };
            let mut garbled = text.clone();
            garbled.replace_range(at..=at, other);
            assert_eq!(garbled.parse::<JoinToken>(), Err(TokenError::Checksum), "{garbled}");
        }
        for wrong in ["", "thalweg1", "a.b.c.d.e", &text[..text.len() - 9], &format!("{text}.x")] {
            assert_eq!(wrong.parse::<JoinToken>(), Err(TokenError::Form), "{wrong}");
        }
        let cut = &text[..text.len() - 1];
        assert_eq!(cut.parse::<JoinToken>(), Err(TokenError::Checksum));
    }

    proptest! {
        #[test]
        fn whatever_is_typed_is_read_without_a_panic(text in "\\PC{0,80}|thalweg1(\\.[0-9a-zA-Zé]{0,40}){4}") {
            let _ = text.parse::<JoinToken>();
        }
    }
}
