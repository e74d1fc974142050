// Prints one batch a codec as Apache Kafka builds it, for compressed_batches.txt:
//   java -cp '<directory of Kafka jars>/*' tests/golden/records/CompressedBatches.java
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;

public class CompressedBatches {
    public static void main(String[] arguments) {
        for (CompressionType type : CompressionType.values()) {
            ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
            MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
                buffer, RecordBatch.MAGIC_VALUE_V2, Compression.of(type).build(), TimestampType.CREATE_TIME, 40L,
                RecordBatch.NO_TIMESTAMP, 4000L, (short) 1, 10, true, false, 7, buffer.limit());
            builder.append(1700000000000L, "k1".getBytes(), "the same words again; ".repeat(2000).getBytes(),
                new Header[] {new RecordHeader("h", "x".getBytes()), new RecordHeader("h", (byte[]) null)});
            builder.append(1700000000005L, null, "v2".getBytes(), new Header[0]);
            ByteBuffer built = builder.build().buffer();
            byte[] bytes = new byte[built.remaining()];
            built.get(bytes);
            if (type != CompressionType.NONE) {
                System.out.println(type.name + " " + HexFormat.of().formatHex(bytes));
            }
        }
    }
}
