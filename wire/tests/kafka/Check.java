import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.*;

/** Reads what `samples` prints with Kafka's own classes, writes it again and compares; then writes batches for us. */
public class Check {
    /** Our own API, which Kafka does not have. */
    static final short INSPECT = 1000;
    static int messages, batches;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ", -1);
            if (words[0].equals("batch")) batch(Integer.parseInt(words[1]), HexFormat.of().parseHex(words[2]));
            else message(words[0].equals("request"), Short.parseShort(words[1]), Short.parseShort(words[2]), HexFormat.of().parseHex(words[3]));
        }
        for (CompressionType type : CompressionType.values()) {
            MemoryRecords records = MemoryRecords.withIdempotentRecords(
                RecordBatch.CURRENT_MAGIC_VALUE, 0L, Compression.of(type).build(), 7L, (short) 1, 5, 0, written());
            byte[] bytes = new byte[records.sizeInBytes()];
            records.buffer().duplicate().get(bytes);
            Files.write(Path.of(args[0], type.name + ".batch"), bytes);
        }
        System.out.println(messages + " messages and " + batches + " batches agree with Kafka's classes");
    }

    static void message(boolean request, short key, short version, byte[] bytes) {
        if (key == INSPECT) return;
        ApiMessageType type = ApiMessageType.fromApiKey(key);
        ApiMessage message = request ? type.newRequest() : type.newResponse();
        String name = message.getClass().getSimpleName() + " v" + version;
        ByteBufferAccessor accessor = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
        message.read(accessor, version);
        if (accessor.remaining() != 0) throw new IllegalStateException(name + " leaves " + accessor.remaining() + " bytes");
        ByteBuffer again = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] written = new byte[again.remaining()];
        again.get(written);
        if (!Arrays.equals(bytes, written)) throw new IllegalStateException(name + " differs:\n"
            + HexFormat.of().formatHex(bytes) + "\n" + HexFormat.of().formatHex(written));
        messages++;
    }

    static void batch(int codec, byte[] bytes) {
        int i = 0;
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
            batch.ensureValid();
            if (batch.compressionType().id != codec || batch.producerId() != 7 || batch.baseSequence() != 5) throw new IllegalStateException("header of " + codec);
            for (org.apache.kafka.common.record.internal.Record record : batch) {
                SimpleRecord expected = record(i);
                if (!new SimpleRecord(record).equals(expected)) throw new IllegalStateException("codec " + codec + ": " + record + " is not " + expected);
                i++;
            }
        }
        if (i != 3000) throw new IllegalStateException("codec " + codec + ": " + i + " records");
        batches++;
    }

    static SimpleRecord record(int i) {
        byte[] key = i % 3 != 0 ? ("key " + i).getBytes(StandardCharsets.UTF_8) : null;
        byte[] value = i % 5 != 0 ? ("value " + i + " ").repeat(10).getBytes(StandardCharsets.UTF_8) : null;
        Header[] headers = {new RecordHeader("header", new byte[] {(byte) i}), new RecordHeader("null", (byte[]) null)};
        return new SimpleRecord(1_000_000 + i, key, value, headers);
    }

    static SimpleRecord[] written() {
        SimpleRecord[] records = new SimpleRecord[100];
        for (int i = 0; i < records.length; i++) records[i] = record(i);
        return records;
    }
}
