//! Request and response headers: what stands between the frame's size and the body.

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::api::ApiKey;
use crate::codec::{DecodeError, DecodeErrorKind, EncodeError, Message, Reader, put_uvarint};
use crate::frame::{FrameError, finish_frame, start_frame};

/// Who asks what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    pub api_key: ApiKey,
    pub api_version: i16,
    /// Chosen by the client; the answer repeats it.
    pub correlation_id: i32,
    /// A label, not an identity. Bytes that are no UTF-8 are replaced, as Kafka does.
    pub client_id: Option<String>,
}

/// Why a request cannot be answered in its own form. The peer's fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    #[error("unknown api key {api_key} (version {api_version})")]
    UnknownApi { api_key: i16, api_version: i16, correlation_id: i32 },
    /// For ApiVersions answer error 35 in version 0, for any other API close the connection (KIP-511).
    #[error("{api_key} version {api_version} is not served")]
    UnsupportedVersion { api_key: ApiKey, api_version: i16, correlation_id: i32 },
    #[error("request header: {0}")]
    Malformed(#[from] DecodeError),
}

/// Reads the header of a request for the broker; the body that follows comes back unread, as a slice of `frame`.
///
/// # Errors
/// The version is outside [`ApiKey::accepted_versions`], the key is not served, or the header is cut short.
pub fn decode_request_header(frame: &Bytes) -> Result<(RequestHeader, Bytes), RequestError> {
    let mut reader = Reader::new(frame.clone());
    reader.enter("api_key");
    let code = reader.i16()?;
    reader.enter("api_version");
    let api_version = reader.i16()?;
    reader.enter("correlation_id");
    let correlation_id = reader.i32()?;
    let api_key = ApiKey::from_code(code).filter(|key| key.advertised_versions().is_some());
    let Some(api_key) = api_key else {
        return Err(RequestError::UnknownApi { api_key: code, api_version, correlation_id });
    };
    // The rest of the header depends on the version, so an unknown one cannot be read any further.
    if !api_key.accepts(api_version) {
        return Err(RequestError::UnsupportedVersion { api_key, api_version, correlation_id });
    }
    let client_id = read_client_id(&mut reader)?;
    if api_key.is_flexible(api_version) {
        reader.skip_tags()?;
    }
    Ok((RequestHeader { api_key, api_version, correlation_id, client_id }, reader.into_rest()))
}

/// Appends a whole request, with frame size and header; for clients.
///
/// # Errors
/// Our fault: see [`Message::encode`].
pub fn encode_request<M: Message>(
    out: &mut BytesMut,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
    request: &M,
) -> Result<(), EncodeFrameError> {
    let start = start_frame(out);
    out.put_i16(M::KEY.code());
    out.put_i16(version);
    out.put_i32(correlation_id);
    // 16-bit length even where everything else is compact.
    crate::codec::string(out, client_id, false)?;
    if M::is_flexible(version) {
        put_uvarint(out, 0);
    }
    request.encode(out, version)?;
    Ok(finish_frame(out, start)?)
}

/// Appends a whole response, with frame size and header.
///
/// # Errors
/// Our fault: see [`Message::encode`].
pub fn encode_response<M: Message>(
    out: &mut BytesMut,
    version: i16,
    correlation_id: i32,
    response: &M,
) -> Result<(), EncodeFrameError> {
    let start = start_frame(out);
    encode_response_header(out, M::KEY, version, correlation_id);
    response.encode(out, version)?;
    Ok(finish_frame(out, start)?)
}

/// Appends a response header.
pub fn encode_response_header(out: &mut BytesMut, key: ApiKey, version: i16, correlation_id: i32) {
    out.put_i32(correlation_id);
    if key.response_header_version(version) == 1 {
        put_uvarint(out, 0);
    }
}

/// Reads a response header; returns the correlation id and the body. For clients.
///
/// # Errors
/// The server's fault: cut short.
pub fn decode_response_header(frame: &Bytes, key: ApiKey, version: i16) -> Result<(i32, Bytes), DecodeError> {
    let mut reader = Reader::new(frame.clone());
    reader.enter("correlation_id");
    let correlation_id = reader.i32()?;
    if key.response_header_version(version) == 1 {
        reader.skip_tags()?;
    }
    Ok((correlation_id, reader.into_rest()))
}

/// Why a frame cannot be written. Our fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeFrameError {
    #[error(transparent)]
    Body(#[from] EncodeError),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

fn read_client_id(reader: &mut Reader) -> Result<Option<String>, DecodeError> {
    reader.enter("client_id");
    let length = reader.i16()?;
    match usize::try_from(length) {
        Ok(length) => Ok(Some(String::from_utf8_lossy(reader.slice(length)?).into_owned())),
        Err(_) if length == -1 => Ok(None),
        Err(_) => Err(reader.error(DecodeErrorKind::NegativeLength { length: i64::from(length) })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{ApiVersionsRequest, MetadataRequest};

    fn header(bytes: &[u8]) -> Result<(RequestHeader, Bytes), RequestError> {
        decode_request_header(&Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn a_request_reads_back_in_both_header_versions() {
        for (version, client_id) in [(8, Some("kcat")), (9, Some("kcat")), (9, None), (9, Some("")), (0, None)] {
            let mut out = BytesMut::new();
            encode_request(&mut out, version, 7, client_id, &MetadataRequest::default()).unwrap();
            let frame = out.freeze().slice(4..);
            let (header, body) = decode_request_header(&frame).unwrap();
            assert_eq!((header.api_key, header.api_version, header.correlation_id), (ApiKey::Metadata, version, 7));
            assert_eq!(header.client_id.as_deref(), client_id);
            assert_eq!(MetadataRequest::decode_body(&body, version).unwrap(), MetadataRequest::default());
        }
    }

    #[test]
    fn tags_in_the_header_are_skipped_also_when_the_client_id_is_null() {
        // Key 18, version 3, correlation id 1, null client id, two unknown tags, then the body.
        let bytes = [0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 2, 0, 2, 9, 9, 5, 0, 1, 1, 0];
        let (header, body) = header(&bytes).unwrap();
        assert_eq!(header.client_id, None);
        assert_eq!(&body[..], [1, 1, 0]);
        assert_eq!(ApiVersionsRequest::decode_body(&body, 3).unwrap(), ApiVersionsRequest::default());
    }

    #[test]
    fn an_unknown_key_or_version_is_named_with_its_correlation_id() {
        let unknown = RequestError::UnknownApi { api_key: 4, api_version: 1, correlation_id: 5 };
        assert_eq!(header(&[0, 4, 0, 1, 0, 0, 0, 5]).unwrap_err(), unknown);
        for (key, version) in [(ApiKey::ApiVersions, 9), (ApiKey::Produce, 2), (ApiKey::Produce, 12)] {
            let bytes = [0, key.code() as u8, 0, version as u8, 0, 0, 0, 5, 0xff, 0xff];
            let error = RequestError::UnsupportedVersion { api_key: key, api_version: version, correlation_id: 5 };
            assert_eq!(header(&bytes).unwrap_err(), error);
        }
    }

    #[test]
    fn a_cut_header_is_an_error_at_every_length() {
        let bytes = [0, 18, 0, 3, 0, 0, 0, 1, 0, 1, b'x', 1, 0, 2, 9, 9];
        for length in 0..bytes.len() {
            assert!(matches!(header(&bytes[..length]), Err(RequestError::Malformed(_))), "{length} bytes");
        }
        assert!(header(&bytes).is_ok());
    }
}
