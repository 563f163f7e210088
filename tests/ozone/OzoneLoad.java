import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.hdds.conf.OzoneConfiguration;
import org.apache.hadoop.ozone.client.BucketArgs;
import org.apache.hadoop.ozone.client.ObjectStore;
import org.apache.hadoop.ozone.client.OzoneBucket;
import org.apache.hadoop.ozone.client.OzoneClient;
import org.apache.hadoop.ozone.client.OzoneClientFactory;
import org.apache.hadoop.ozone.client.OzoneKey;
import org.apache.hadoop.ozone.om.helpers.BucketLayout;
import org.apache.hadoop.ozone.snapshot.SnapshotDiffReportOzone;
import org.apache.hadoop.ozone.snapshot.SnapshotDiffResponse;

/**
 * Does through Ozone's own client what it is told on standard input, a command a line; answers each with a line on
 * standard output that begins with "done" or "failed".
 */
public class OzoneLoad {
  private static final String VOLUME = "volume";
  private static final int THREADS = 8;
  private static final int DELETE_BATCH = 1000;
  private static final int PAGE = 1000;

  private final ObjectStore store;

  private OzoneLoad(ObjectStore store) {
    this.store = store;
  }

  public static void main(String[] arguments) throws Exception {
    try (OzoneClient client = OzoneClientFactory.getRpcClient(new OzoneConfiguration())) {
      OzoneLoad load = new OzoneLoad(client.getObjectStore());
      System.out.println("done ready");
      BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
      for (String line = commands.readLine(); line != null; line = commands.readLine()) {
        try {
          System.out.println("done " + load.run(line.trim().split(" ")));
        } catch (Exception e) {
          System.out.println("failed " + String.valueOf(e).replace('\n', ' '));
        }
      }
    }
  }

  private String run(String[] words) throws Exception {
    switch (words[0]) {
      case "bucket":
        return bucket(words[1], BucketLayout.valueOf(words[2]));
      case "create":
        int bytes = words.length > 4 ? Integer.parseInt(words[4]) : 0;
        return create(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), bytes);
      case "delete":
        return delete(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
      case "list":
        return list(words[1], words[2], Integer.parseInt(words[3]));
      case "snapshot":
        return store.createSnapshot(VOLUME, words[1], words[2]);
      case "diff":
        return diff(words[1], words[2], words[3]);
      default:
        throw new IllegalArgumentException("no such command: " + words[0]);
    }
  }

  private OzoneBucket of(String bucket) throws Exception {
    return store.getVolume(VOLUME).getBucket(bucket);
  }

  private String bucket(String name, BucketLayout layout) throws Exception {
    if (!store.listVolumes(VOLUME).hasNext()) {
      store.createVolume(VOLUME);
    }
    store.getVolume(VOLUME).createBucket(name, BucketArgs.newBuilder().setBucketLayout(layout).build());
    return name;
  }

  private static String key(int number) {
    return String.format("directory/key%08d", number);
  }

  /**
   * Creates keys with so many bytes; a DataNode stores those that have any. Answers with the 99th percentile of the time
   * that one takes, in microseconds.
   */
  private String create(String bucketName, int from, int count, int bytes) throws Exception {
    OzoneBucket bucket = of(bucketName);
    byte[] content = new byte[bytes];
    ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    List<Future<List<Long>>> parts = new ArrayList<>();
    for (int part = 0; part < THREADS; part++) {
      final int first = from + part;
      parts.add(threads.submit(() -> {
        List<Long> times = new ArrayList<>();
        for (int number = first; number < from + count; number += THREADS) {
          long begin = System.nanoTime();
          try (OutputStream stream = bucket.createKey(key(number), bytes)) {
            stream.write(content);
          }
          times.add(System.nanoTime() - begin);
        }
        return times;
      }));
    }
    List<Long> times = new ArrayList<>();
    for (Future<List<Long>> part : parts) {
      times.addAll(part.get());
    }
    threads.shutdown();
    return percentile99(times);
  }

  private static String percentile99(List<Long> times) {
    long[] sorted = times.stream().mapToLong(Long::longValue).sorted().toArray();
    return String.valueOf(sorted[(int) (sorted.length * 0.99)] / 1000);
  }

  private String delete(String bucketName, int from, int count) throws Exception {
    OzoneBucket bucket = of(bucketName);
    for (int first = from; first < from + count; first += DELETE_BATCH) {
      List<String> names = new ArrayList<>();
      for (int number = first; number < Math.min(first + DELETE_BATCH, from + count); number++) {
        names.add(key(number));
      }
      bucket.deleteKeys(names);
    }
    return String.valueOf(count);
  }

  /** Lists the first ten keys below a prefix, again and again; answers with the mean time in microseconds and the keys. */
  private String list(String bucketName, String prefix, int times) throws Exception {
    OzoneBucket bucket = of(bucketName);
    long begin = System.nanoTime();
    List<String> names = new ArrayList<>();
    for (int time = 0; time < times; time++) {
      names.clear();
      Iterator<? extends OzoneKey> keys = bucket.listKeys(prefix);
      while (keys.hasNext() && names.size() < 10) {
        names.add(keys.next().getName());
      }
    }
    return (System.nanoTime() - begin) / 1000 / times + " " + String.join(",", names);
  }

  /** What differs between two snapshots: how many entries of each kind, and a hash of all of them. */
  private String diff(String bucket, String from, String to) throws Exception {
    Map<String, Integer> counts = new TreeMap<>();
    TreeSet<String> entries = new TreeSet<>();
    String token = "";
    do {
      SnapshotDiffResponse response = store.snapshotDiff(VOLUME, bucket, from, to, token, PAGE, false, true);
      if (response.getJobStatus() != SnapshotDiffResponse.JobStatus.DONE) {
        Thread.sleep(500);
        continue;
      }
      SnapshotDiffReportOzone report = response.getSnapshotDiffReport();
      report.getDiffList().forEach(entry -> {
        counts.merge(entry.getType().toString(), 1, Integer::sum);
        entries.add(entry.getType() + " " + new String(entry.getSourcePath()));
      });
      token = report.getToken();
      if (token == null || token.isEmpty()) {
        break;
      }
    } while (true);
    MessageDigest digest = MessageDigest.getInstance("SHA-256");
    entries.forEach(entry -> digest.update((entry + "\n").getBytes()));
    byte[] hash = Arrays.copyOf(digest.digest(), 8);
    return counts.toString().replace(" ", "") + " " + HexFormat.of().formatHex(hash);
  }
}
