"""Record batches of format v2 for Produce, right and wrong ones, and what is in fetched ones."""

import struct
import time
import zlib

HEADER = struct.Struct(">qiibIhiqqqhii")  # 61 bytes
# Of today: what is older than the retention, or a producer unseen for a day, goes.
NOW = int(time.time()) * 1000


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ 0x82F63B78 if n & 1 else n >> 1
        table.append(n)
    return table


CRC_TABLE = crc_table()


def zigzag(number):
    number = (number << 1) ^ (number >> 63)
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def record(index, key, value, headers=(), timestamp_delta=0, offset_delta=None):
    def text(data):
        return zigzag(-1) if data is None else zigzag(len(data)) + data

    body = b"\0" + zigzag(timestamp_delta) + zigzag(index if offset_delta is None else offset_delta) + text(key) + text(value)
    body += zigzag(len(headers)) + b"".join(text(k) + text(v) for k, v in headers)
    return zigzag(len(body)) + body


def batch(values=(b"v",), key=b"k", *, base_offset=0, leader_epoch=-1, magic=2, attributes=0, last_delta=None, count=None,
          timestamp=NOW, max_timestamp=None, producer_id=-1, producer_epoch=-1, sequence=-1, crc_flip=0, size_change=0,
          records=None, gzip=False, **ignored):
    """One batch; every header field can be set to what no honest client writes."""
    values = list(values)
    payload = b"".join(record(i, key, v) for i, v in enumerate(values)) if records is None else records
    if gzip:
        packer = zlib.compressobj(wbits=31)
        payload, attributes = packer.compress(payload) + packer.flush(), attributes | 1
    last = len(values) - 1 if last_delta is None else last_delta
    number = len(values) if count is None else count
    after = struct.pack(">hiqqqhii", attributes, last, timestamp, timestamp if max_timestamp is None else max_timestamp,
                        producer_id, producer_epoch, sequence, number) + payload
    size = 4 + 1 + 4 + len(after) + size_change
    return struct.pack(">qiibI", base_offset, size, leader_epoch, magic, crc32c(after) ^ crc_flip) + after


def headers(data):
    """The header fields of fetched batches that both brokers must agree on, and their payloads."""
    found = []
    while len(data) >= HEADER.size:
        fields = HEADER.unpack(data[: HEADER.size])
        size = 12 + fields[1]
        names = ("baseOffset", "length", "leaderEpoch", "magic", "crc", "attributes", "lastOffsetDelta", "baseTimestamp",
                 "maxTimestamp", "producerId", "producerEpoch", "baseSequence", "count")
        one = dict(zip(names, fields))
        one["payload"] = data[HEADER.size : size].hex()
        found.append(one)
        data = data[size:]
    return found
