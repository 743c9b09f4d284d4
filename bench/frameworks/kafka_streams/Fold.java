import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.uber.h3core.H3Core;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Kafka Streams: a processor with a window store of an hour, in RocksDB with a cache and a changelog topic.
 * A processor, not the DSL: the topic is keyed by vehicle, and `groupBy` (cell, vehicle) would send every record again.
 * Arguments: bootstrap servers, topic, records, file of the result.
 */
public final class Fold {
  static final int UPPER_BOUND_KMH = 65, REJECT_ABOVE_KMH = 150, INTERVAL_S = 10, RESOLUTION = 7;
  static final long HOUR_MS = 3_600_000L, OFFSET_MS = 19_800_000L; // of Asia/Kolkata, which has no clock changes
  static final String STORE = "sums";
  static final ObjectReader READER = new ObjectMapper().readerFor(Reading.class);

  @JsonIgnoreProperties(ignoreUnknown = true)
  static final class Reading {
    public String license_plate, observationDateTime;
    public int speed;
    public Location location;
  }

  @JsonIgnoreProperties(ignoreUnknown = true)
  static final class Location {
    public double[] coordinates;
  }

  /** A user's sums in one HAT. steps: a bit for each step that was seen. */
  static final class Row {
    int count, total, maximum;
    final long[] steps = new long[6];

    boolean add(int step, int speed) {
      long bit = 1L << (step % 64);
      if ((steps[step / 64] & bit) != 0) return false;
      steps[step / 64] |= bit;
      count++;
      total += speed;
      maximum = Math.max(maximum, speed);
      return true;
    }

    static byte[] encode(Row row) {
      ByteBuffer to = ByteBuffer.allocate(60).putInt(row.count).putInt(row.total).putInt(row.maximum);
      for (long bits : row.steps) to.putLong(bits);
      return to.array();
    }

    static Row decode(byte[] bytes) {
      ByteBuffer from = ByteBuffer.wrap(bytes);
      Row row = new Row();
      row.count = from.getInt();
      row.total = from.getInt();
      row.maximum = from.getInt();
      for (int i = 0; i < row.steps.length; i++) row.steps[i] = from.getLong();
      return row;
    }
  }

  /** Outcomes of records, with a stopwatch from the first to the last. One stream thread adds. */
  static final class Tally {
    final Map<String, Integer> outcomes = new TreeMap<>();
    final CountDownLatch done = new CountDownLatch(1);
    long left, fromNs, fromCpuNs;
    double seconds, cpuS;

    Tally(long records) {
      left = records;
    }

    void start() {
      if (fromNs != 0) return;
      fromCpuNs = cpuNs();
      fromNs = System.nanoTime();
    }

    void add(String outcome) {
      outcomes.merge(outcome, 1, Integer::sum);
      if (--left == 0) {
        seconds = (System.nanoTime() - fromNs) / 1e9;
        cpuS = (cpuNs() - fromCpuNs) / 1e9;
        done.countDown();
      }
    }

    static long cpuNs() {
      return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
          .getProcessCpuTime();
    }
  }

  static final class FoldProcessor implements Processor<byte[], byte[], Void, Void> {
    final Tally tally;
    final H3Core h3;
    WindowStore<String, Row> store;

    FoldProcessor(Tally tally, H3Core h3) {
      this.tally = tally;
      this.h3 = h3;
    }

    @Override
    public void init(ProcessorContext<Void, Void> context) {
      store = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
      tally.start();
      tally.add(fold(record.value()));
    }

    String fold(byte[] value) {
      Reading reading;
      try {
        reading = READER.readValue(value);
      } catch (IOException error) {
        return "undecodable";
      }
      double longitude = reading.location.coordinates[0], latitude = reading.location.coordinates[1];
      if (latitude == 0 && longitude == 0) return "bad_place";
      if (reading.speed > REJECT_ABOVE_KMH) return "bad_value";
      if (reading.speed == 0) return "zero";
      long local = OffsetDateTime.parse(reading.observationDateTime).toInstant().toEpochMilli() + OFFSET_MS;
      long hour = Math.floorDiv(local, HOUR_MS) * HOUR_MS;
      String key = h3.latLngToCellAddress(latitude, longitude, RESOLUTION) + "/" + reading.license_plate;
      Row row = store.fetch(key, hour);
      if (row == null) row = new Row();
      if (!row.add((int) ((local - hour) / 1000 / INTERVAL_S), Math.min(reading.speed, UPPER_BOUND_KMH)))
        return "duplicate";
      store.put(key, row, hour);
      return "accepted";
    }
  }

  public static void main(String[] given) throws Exception {
    Tally tally = new Tally(Long.parseLong(given[2]));
    Path result = Path.of(given[3]), folder = Files.createTempDirectory(result.toAbsolutePath().getParent(), "streams-");
    H3Core h3 = H3Core.newInstance();
    Serde<Row> rows = Serdes.serdeFrom((topic, row) -> Row.encode(row), (topic, bytes) -> Row.decode(bytes));
    StreamsBuilder builder = new StreamsBuilder();
    builder.addStateStore(
        Stores.windowStoreBuilder(
                Stores.persistentWindowStore(STORE, Duration.ofHours(49), Duration.ofHours(1), false), Serdes.String(), rows)
            .withCachingEnabled());
    builder
        .stream(given[1], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
        .process(() -> new FoldProcessor(tally, h3), STORE);
    Properties settings = new Properties();
    settings.put("application.id", "bench-streams-" + System.currentTimeMillis());
    settings.put("bootstrap.servers", given[0]);
    settings.put("state.dir", folder.toString());
    settings.put("auto.offset.reset", "earliest");
    settings.put("num.stream.threads", "1");
    settings.put("replication.factor", "1");
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    streams.setUncaughtExceptionHandler(
        error -> {
          error.printStackTrace();
          Runtime.getRuntime().halt(1);
          return null;
        });
    streams.start();
    if (!tally.done.await(10, TimeUnit.MINUTES)) Runtime.getRuntime().halt(1);
    Map<String, long[]> hats = stored(streams);
    Files.writeString(result, new ObjectMapper().writeValueAsString(found(tally, hats)));
    Runtime.getRuntime().halt(0);
  }

  /** Users, readings, sum and maximum (milli-units) by HAT, from the state stores of all partitions. */
  static Map<String, long[]> stored(KafkaStreams streams) {
    Map<String, long[]> hats = new HashMap<>();
    var store = streams.store(StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.<String, Row>windowStore()));
    try (KeyValueIterator<Windowed<String>, Row> entries = store.all()) {
      while (entries.hasNext()) {
        KeyValue<Windowed<String>, Row> entry = entries.next();
        String hour = Instant.ofEpochMilli(entry.key.window().start()).toString();
        String cell = entry.key.key().substring(0, entry.key.key().indexOf('/'));
        long[] hat = hats.computeIfAbsent(
            cell + "/" + hour.substring(0, 10) + "/" + hour.substring(11, 13) + ":00", name -> new long[4]);
        hat[0]++;
        hat[1] += entry.value.count;
        hat[2] += 1000L * entry.value.total;
        hat[3] = Math.max(hat[3], 1000L * entry.value.maximum);
      }
    }
    return hats;
  }

  static Map<String, Object> found(Tally tally, Map<String, long[]> hats) throws IOException {
    List<String> status = Files.readAllLines(Path.of("/proc/self/status"));
    String peak = new ArrayList<>(status).stream().filter(line -> line.startsWith("VmHWM:")).findFirst().orElseThrow();
    double peakMb = Long.parseLong(peak.split("\\s+")[1]) / 1000.0 * 1.024;
    return Map.of(
        "seconds", tally.seconds, "cpu_s", tally.cpuS, "peak_mb", peakMb, "outcomes", tally.outcomes, "hats", hats);
  }
}
