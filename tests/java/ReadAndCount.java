// A Java program with a RocksDB in it that reads in several threads and tells what RocksDB itself counted
// meanwhile. It knows nothing of Sexton.
//
// Argument 0: the directory for the database, which is filled when it is empty. Then the program prints
//   ready
// and waits for a line on standard input. Four threads then read by plan: two of them were started before
// and stay until the program ends, one was started before and ends, one is started now and ends. One sets its
// perf context to zero midway. When all have done their part, it prints
//   truth TOMBSTONES KEYS BLOCK_READS BLOCK_BYTES CACHE_HITS POSITIONINGS
// where the first five are the sums of the threads' perf contexts (see Counts) and the last one is
// RocksDB's ticker NUMBER_DB_SEEK. It ends when standard input ends.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import org.rocksdb.*;

public class ReadAndCount {
    private static final int KEYS = 60_000;
    private static final int FIRST_DELETED = 20_000;
    private static final int LAST_DELETED = 40_000;
    private static final int STEPS_PER_THREAD = 60;
    private static final int NEXTS_MAX = 40;
    // The thread that sets its counters to zero.
    private static final int RESETTING_SEED = 2;
    // So small that most reads miss it.
    private static final long CACHE_BYTES = 256 << 10;

    private final RocksDB database;
    private final List<ColumnFamilyHandle> families;
    private final long[] truth = new long[Counts.LENGTH];

    private ReadAndCount(RocksDB database, List<ColumnFamilyHandle> families) {
        this.database = database;
        this.families = families;
    }

    public static void main(String[] arguments) throws Exception {
        RocksDB.loadLibrary();
        boolean isEmpty = new File(arguments[0]).list().length == 0;
        ColumnFamilyOptions options = new ColumnFamilyOptions()
            // Compactions would drop the tombstones, and their threads have perf contexts of their own.
            .setDisableAutoCompactions(true)
            .setCompressionType(CompressionType.NO_COMPRESSION)
            .setTableFormatConfig(new BlockBasedTableConfig().setBlockCache(new LRUCache(CACHE_BYTES)));
        List<ColumnFamilyDescriptor> descriptors = new ArrayList<>();
        descriptors.add(new ColumnFamilyDescriptor("default".getBytes(), options));
        descriptors.add(new ColumnFamilyDescriptor("keyTable".getBytes(), options));
        List<ColumnFamilyHandle> families = new ArrayList<>();
        Statistics statistics = new Statistics();
        DBOptions databaseOptions = new DBOptions()
            .setCreateIfMissing(true)
            .setCreateMissingColumnFamilies(true)
            .setStatistics(statistics);
        try (RocksDB database = RocksDB.open(databaseOptions, arguments[0], descriptors, families)) {
            ReadAndCount program = new ReadAndCount(database, families);
            if (isEmpty) {
                program.fill();
            }
            program.read(statistics);
            for (ColumnFamilyHandle family : families) {
                family.close();
            }
        }
    }

    private void fill() throws Exception {
        WriteOptions write = new WriteOptions().setDisableWAL(true);
        FlushOptions wait = new FlushOptions().setWaitForFlush(true);
        Random random = new Random(1);
        byte[] value = new byte[100];
        for (ColumnFamilyHandle family : families) {
            for (int number = 0; number < KEYS; number++) {
                random.nextBytes(value);
                database.put(family, write, key(number), value);
            }
            database.flush(wait, family);
            for (int number = FIRST_DELETED; number < LAST_DELETED; number++) {
                database.delete(family, write, key(number));
            }
            database.flush(wait, family);
        }
    }

    private void read(Statistics statistics) throws Exception {
        CountDownLatch started = new CountDownLatch(3);
        CountDownLatch go = new CountDownLatch(1);
        CountDownLatch stayingDone = new CountDownLatch(2);
        CountDownLatch end = new CountDownLatch(1);
        Thread[] staying = new Thread[2];
        for (int index = 0; index < staying.length; index++) {
            int seed = index + 1;
            staying[index] = new Thread(() -> work(seed, started, go, stayingDone, end));
            staying[index].start();
        }
        CountDownLatch none = new CountDownLatch(0);
        Thread passing = new Thread(() -> work(3, started, go, none, none));
        passing.start();
        started.await();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        input.readLine();
        long positioningsBefore = statistics.getTickerCount(TickerType.NUMBER_DB_SEEK);
        go.countDown();
        Thread late = new Thread(() -> work(4, none, none, none, none));
        late.start();
        passing.join();
        late.join();
        stayingDone.await();
        StringBuilder line = new StringBuilder("truth");
        for (long count : truth) {
            line.append(' ').append(count);
        }
        line.append(' ').append(statistics.getTickerCount(TickerType.NUMBER_DB_SEEK) - positioningsBefore);
        System.out.println(line);
        while (input.readLine() != null) {
            // Nothing more is asked.
        }
        end.countDown();
        for (Thread thread : staying) {
            thread.join();
        }
    }

    // A thread's whole life. What it counted is added to the truth by itself: perf contexts are thread-local.
    private void work(int seed, CountDownLatch started, CountDownLatch go, CountDownLatch done, CountDownLatch end) {
        try {
            Random random = new Random(seed);
            // An iterator that is older than the window.
            RocksIterator old = database.newIterator(families.get(1));
            started.countDown();
            go.await();
            long[] before = Counts.now(database);
            step(old, random);
            for (int number = 0; number < STEPS_PER_THREAD; number++) {
                if (seed == RESETTING_SEED && number == STEPS_PER_THREAD / 2) {
                    addToTruth(before);
                    Counts.reset(database);
                    before = Counts.now(database);
                }
                database.get(families.get(number % 2), key(random.nextInt(KEYS)));
                try (RocksIterator iterator = database.newIterator(families.get(number % 2))) {
                    step(iterator, random);
                    if (number % 3 == 0) {
                        step(old, random);
                        step(iterator, random);
                    }
                }
            }
            old.close();
            addToTruth(before);
            done.countDown();
            end.await();
        } catch (RocksDBException | InterruptedException error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private void addToTruth(long[] before) {
        long[] after = Counts.now(database);
        synchronized (truth) {
            for (int index = 0; index < truth.length; index++) {
                truth[index] += after[index] - before[index];
            }
        }
    }

    // One positioning and the scan after it.
    private static void step(RocksIterator iterator, Random random) throws RocksDBException {
        int kind = random.nextInt(4);
        byte[] key = key(random.nextInt(KEYS));
        if (kind == 0) {
            iterator.seek(key);
        } else if (kind == 1) {
            iterator.seekForPrev(key);
        } else if (kind == 2) {
            iterator.seekToFirst();
        } else {
            iterator.seekToLast();
        }
        boolean forward = kind % 2 == 0;
        for (int left = random.nextInt(NEXTS_MAX); left > 0 && iterator.isValid(); left--) {
            if (forward) {
                iterator.next();
            } else {
                iterator.prev();
            }
        }
        iterator.status();
    }

    private static byte[] key(int number) {
        return String.format("key%09d", number).getBytes();
    }
}
