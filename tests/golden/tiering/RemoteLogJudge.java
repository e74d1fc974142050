// Asks Apache Kafka's own classes of tiered storage, for the files beside it; QUESTION is events, lineage or cache:
//   java -Dorg.apache.logging.log4j.level=OFF -cp '<directory of Kafka jars>/*' \
//     tests/golden/tiering/RemoteLogJudge.java QUESTION
import java.lang.reflect.Method;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.*;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.*;

public class RemoteLogJudge {
    static final Random RANDOM = new Random(405);
    static final TopicIdPartition PARTITION = new TopicIdPartition(new Uuid(1, 2), 3, "topic");

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "events" -> events();
            case "lineage" -> lineage();
            case "cache" -> cache();
        }
    }

    static int below(int bound) {
        return RANDOM.nextInt(bound);
    }

    static Object call(Class<?> type, Object target, String name, Object... arguments) throws Exception {
        for (Method method : type.getDeclaredMethods()) {
            if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
                method.setAccessible(true);
                return method.invoke(target, arguments);
            }
        }
        throw new NoSuchMethodException(name);
    }

    static String text(SortedMap<Integer, Long> epochs) {
        return epochs.entrySet().stream().map(e -> e.getKey() + ":" + e.getValue()).collect(Collectors.joining(","));
    }

    static RemoteLogSegmentId id(long number) {
        return new RemoteLogSegmentId(PARTITION, new Uuid(0, number));
    }

    static RemoteLogSegmentMetadata segment(long number, long start, long end, SortedMap<Integer, Long> epochs) {
        return new RemoteLogSegmentMetadata(id(number), start, end, 1, 1, 1, 100, epochs);
    }

    // segment id, start, end, max timestamp, broker, event timestamp, size, custom metadata, state, epochs, empty: bytes
    static void events() {
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        for (int i = 0; i < 30; i++) {
            TreeMap<Integer, Long> epochs = new TreeMap<>();
            long start = below(1 << 20), offset = start;
            int epoch = below(300);
            for (int count = 1 + below(3); count > 0; count--) {
                epochs.put(epoch, offset);
                epoch += 1 + below(9);
                offset += 1 + below(1000);
            }
            byte[] custom = new byte[below(4) * 50];
            RANDOM.nextBytes(custom);
            Optional<RemoteLogSegmentMetadata.CustomMetadata> metadata = custom.length == 0
                ? Optional.empty() : Optional.of(new RemoteLogSegmentMetadata.CustomMetadata(custom));
            RemoteLogSegmentState state = RemoteLogSegmentState.forId((byte) below(4));
            boolean empty = below(2) == 0;
            RemoteLogSegmentMetadata segment = new RemoteLogSegmentMetadata(id(i + 1), start, offset, 1700000000000L + i,
                below(9), 1800000000000L + i, below(1 << 30), metadata, state, epochs, empty);
            System.out.println(String.join(" ", "segment", "" + (i + 1), "" + start, "" + offset,
                "" + segment.maxTimestampMs(), "" + segment.brokerId(), "" + segment.eventTimestampMs(),
                "" + segment.segmentSizeInBytes(), custom.length == 0 ? "-" : HexFormat.of().formatHex(custom),
                "" + state.id(), text(epochs), "" + (empty ? 1 : 0), HexFormat.of().formatHex(serde.serialize(segment))));
        }
    }

    static TreeMap<Integer, Long> someEpochs() {
        TreeMap<Integer, Long> epochs = new TreeMap<>();
        int epoch = below(3);
        long offset = below(3) * 5;
        for (int count = 1 + below(5); count > 0; count--) {
            epochs.put(epoch, offset);
            epoch += 1 + below(2);
            offset += below(3) * 5;
        }
        return epochs;
    }

    // segment epochs, start, end, log epochs, log end: answer; half of the answers are yes
    static void lineage() throws Exception {
        int[] left = {300, 300};
        while (left[0] + left[1] > 0) {
            TreeMap<Integer, Long> log = someEpochs();
            TreeMap<Integer, Long> own = below(4) == 0 ? someEpochs() : new TreeMap<>(log);
            while (own.size() > 1 && below(2) == 0) own.pollFirstEntry();
            while (own.size() > 1 && below(2) == 0) own.pollLastEntry();
            own.put(own.firstKey(), Math.max(0, own.firstEntry().getValue() + below(5) - 1));
            if (below(6) == 0) own.put(own.lastKey() + 1, own.lastEntry().getValue() + below(4));
            long start = Collections.min(own.values());
            long end = Collections.max(own.values()) + below(9);
            long logEnd = log.lastEntry().getValue() + below(12);
            Object filtered = call(RemoteLogManager.class, null, "buildFilteredLeaderEpochMap", log);
            boolean answer = (Boolean) call(RemoteLogManager.class, null, "isRemoteSegmentWithinLeaderEpochs",
                segment(1, start, end, own), logEnd, filtered);
            if (left[answer ? 1 : 0]-- > 0) {
                System.out.println(String.join(" ", text(own), "" + start, "" + end, text(log), "" + logEnd,
                    answer ? "1" : "0"));
            }
            left[0] = Math.max(0, left[0]);
            left[1] = Math.max(0, left[1]);
        }
    }

    // "history"; "add" number start end epochs; "update" number state; then per epoch "epoch" number, highest offset,
    // ids in the order listed, and "offset:id" where another id, or none, is found than one offset before
    static void cache() throws Exception {
        for (int history = 0; history < 60; history++) {
            RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
            call(RemoteLogMetadataCache.class, cache, "markInitialized");
            Map<Long, Integer> states = new HashMap<>();
            System.out.println("history");
            long number = 0;
            for (int step = 6 + below(20); step > 0; step--) {
                if (states.isEmpty() || below(5) < 2) {
                    number++;
                    TreeMap<Integer, Long> epochs = new TreeMap<>();
                    long start = below(8) * 5, offset = start;
                    int epoch = below(3);
                    for (int count = 1 + below(3); count > 0; count--) {
                        epochs.put(epoch, offset);
                        epoch += 1 + below(2);
                        offset += below(6);
                    }
                    long end = Collections.max(epochs.values()) + below(12);
                    call(RemoteLogMetadataCache.class, cache, "addCopyInProgressSegment", segment(number, start, end, epochs));
                    states.put(number, 0);
                    System.out.println(String.join(" ", "add", "" + number, "" + start, "" + end, text(epochs)));
                } else {
                    List<Long> known = states.keySet().stream().sorted().toList();
                    long chosen = known.get(below(known.size()));
                    int state = List.of(1, 1, 2, 2, 3).get(below(5));
                    if (state == 1 && states.get(chosen) == 1) continue;
                    call(RemoteLogMetadataCache.class, cache, "updateRemoteLogSegmentMetadata",
                        new RemoteLogSegmentMetadataUpdate(id(chosen), 1, Optional.empty(),
                            RemoteLogSegmentState.forId((byte) state), 1));
                    if (state == states.get(chosen) + 1 || (state == 2 && states.get(chosen) == 0)) states.put(chosen, state);
                    if (states.get(chosen) == 3) states.remove(chosen);
                    System.out.println(String.join(" ", "update", "" + chosen, "" + state));
                }
            }
            for (int epoch = 0; epoch < 8; epoch++) answers(cache, epoch);
        }
    }

    @SuppressWarnings("unchecked")
    static void answers(RemoteLogMetadataCache cache, int epoch) throws Exception {
        Class<?> type = RemoteLogMetadataCache.class;
        Method highest = type.getDeclaredMethod("highestOffsetForEpoch", int.class);
        highest.setAccessible(true);
        Optional<Long> offset = (Optional<Long>) highest.invoke(cache, epoch);
        Iterator<RemoteLogSegmentMetadata> listed =
            (Iterator<RemoteLogSegmentMetadata>) call(type, cache, "listRemoteLogSegments", epoch);
        List<String> ids = new ArrayList<>();
        listed.forEachRemaining(each -> ids.add("" + each.remoteLogSegmentId().id().getLeastSignificantBits()));
        List<String> runs = new ArrayList<>();
        String last = "";
        for (long at = 0; at <= 60; at++) {
            var one = (Optional<RemoteLogSegmentMetadata>) call(type, cache, "remoteLogSegmentMetadata", epoch, at);
            String found = one.map(each -> "" + each.remoteLogSegmentId().id().getLeastSignificantBits()).orElse("-");
            if (!found.equals(last)) runs.add(at + ":" + found);
            last = found;
        }
        System.out.println(String.join(" ", "epoch", "" + epoch, offset.map(String::valueOf).orElse("-"),
            ids.isEmpty() ? "-" : String.join(",", ids), String.join(",", runs)));
    }
}
