// A Java program with a RocksDB in it, as Sexton meets them: it knows nothing of Sexton.
//
// Argument 0: an empty directory for the database. Argument 1: seconds after which it ends. Argument 2, optional:
// "snapshot" takes a snapshot before the deletes, which is held until the line "release" on standard input.
// Column family keyTable holds two prefixes: /vol/a/, healthy, and /vol/b/, where all keys but the first
// one and the last 50,000 are deleted, the tombstones lying over the keys they delete. Then it lists the
// first 100 keys of both, again and again, and prints for each list
//   list PREFIX NANOSECONDS KEYS FIRST_KEY LAST_KEY
// and after each pair
//   deletions N           (tombstones in all SST files of keyTable)
// On the line "files" on standard input it prints its SST files:
//   file NAME LEVEL BYTES SMALLEST LARGEST ENTRIES DELETIONS
//   files end
// and on the line "release" it releases the snapshot and prints "released".
// It ends when standard input ends.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.rocksdb.*;

public class ListAndDelete {
    private static final int HEALTHY = 200_000;
    private static final int QUEUED = 300_000;
    private static final int DELETED = 250_000;
    private static final int KEYS_PER_LIST = 100;

    public static void main(String[] arguments) throws Exception {
        RocksDB.loadLibrary();
        ColumnFamilyOptions options = new ColumnFamilyOptions()
            .setTargetFileSizeBase(2 << 20)
            .setCompressionType(CompressionType.NO_COMPRESSION);
        List<ColumnFamilyDescriptor> families = new ArrayList<>();
        families.add(new ColumnFamilyDescriptor("default".getBytes()));
        families.add(new ColumnFamilyDescriptor("keyTable".getBytes(), options));
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        DBOptions databaseOptions =
            new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true);
        try (RocksDB database = RocksDB.open(databaseOptions, arguments[0], families, handles)) {
            ColumnFamilyHandle keyTable = handles.get(1);
            fill(database, keyTable, arguments.length > 2 && arguments[2].equals("snapshot"));
            long end = System.nanoTime() + Long.parseLong(arguments[1]) * 1_000_000_000L;
            listUntil(database, keyTable, end);
            for (ColumnFamilyHandle handle : handles) {
                handle.close();
            }
        }
    }

    private static Snapshot snapshot;

    private static void fill(RocksDB database, ColumnFamilyHandle keyTable, boolean takesSnapshot) throws Exception {
        WriteOptions write = new WriteOptions().setDisableWAL(true);
        FlushOptions wait = new FlushOptions().setWaitForFlush(true);
        Random random = new Random(1);
        byte[] value = new byte[64];
        for (int number = 0; number < HEALTHY; number++) {
            random.nextBytes(value);
            database.put(keyTable, write, key("/vol/a/", number), value);
        }
        for (int number = 0; number < QUEUED; number++) {
            random.nextBytes(value);
            database.put(keyTable, write, key("/vol/b/", number), value);
        }
        database.flush(wait, keyTable);
        // Forced: otherwise RocksDB moves the one flushed file down as it is, instead of cutting it up.
        CompactRangeOptions rewrite = new CompactRangeOptions()
            .setBottommostLevelCompaction(CompactRangeOptions.BottommostLevelCompaction.kForce);
        database.compactRange(keyTable, null, null, rewrite);
        if (takesSnapshot) {
            snapshot = database.getSnapshot();
        }
        for (int number = 1; number < DELETED; number++) {
            database.delete(keyTable, write, key("/vol/b/", number));
        }
        database.flush(wait, keyTable);
    }

    private static void listUntil(RocksDB database, ColumnFamilyHandle keyTable, long end) throws Exception {
        AtomicBoolean stop = new AtomicBoolean();
        AtomicInteger filesWanted = new AtomicInteger();
        AtomicBoolean release = new AtomicBoolean();
        Thread input = new Thread(() -> readInput(stop, filesWanted, release));
        input.setDaemon(true);
        input.start();
        System.out.println("ready");
        while (!stop.get() && System.nanoTime() < end) {
            list(database, keyTable, "/vol/a/");
            list(database, keyTable, "/vol/b/");
            String properties = database.getProperty(keyTable, "rocksdb.aggregated-table-properties");
            System.out.println("deletions " + properties.replaceAll(".*# deletions=(\\d+).*", "$1"));
            for (; filesWanted.get() > 0; filesWanted.decrementAndGet()) {
                printFiles(database);
            }
            if (release.getAndSet(false) && snapshot != null) {
                database.releaseSnapshot(snapshot);
                snapshot = null;
                System.out.println("released");
            }
            Thread.sleep(20);
        }
    }

    private static void list(RocksDB database, ColumnFamilyHandle keyTable, String prefix) throws Exception {
        long start = System.nanoTime();
        int keys = 0;
        byte[] first = null;
        byte[] last = null;
        try (RocksIterator iterator = database.newIterator(keyTable)) {
            iterator.seek(prefix.getBytes());
            while (iterator.isValid() && keys < KEYS_PER_LIST) {
                last = iterator.key();
                first = first == null ? last : first;
                keys++;
                iterator.next();
            }
            iterator.status();
        }
        long elapsed = System.nanoTime() - start;
        System.out.println("list " + prefix + " " + elapsed + " " + keys + " " + text(first) + " " + text(last));
    }

    private static void printFiles(RocksDB database) {
        for (LiveFileMetaData file : database.getLiveFilesMetaData()) {
            if (text(file.columnFamilyName()).equals("keyTable")) {
                System.out.println("file " + file.fileName() + " " + file.level() + " " + file.size() + " "
                    + text(file.smallestKey()) + " " + text(file.largestKey()) + " "
                    + file.numEntries() + " " + file.numDeletions());
            }
        }
        System.out.println("files end");
    }

    private static void readInput(AtomicBoolean stop, AtomicInteger filesWanted, AtomicBoolean release) {
        try (BufferedReader reader = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                if (line.equals("files")) {
                    filesWanted.incrementAndGet();
                } else if (line.equals("release")) {
                    release.set(true);
                }
            }
        } catch (java.io.IOException end) {
            // Standard input is gone: the same as its end.
        }
        stop.set(true);
    }

    private static byte[] key(String prefix, int number) {
        return String.format("%skey%09d", prefix, number).getBytes();
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : new String(bytes, StandardCharsets.UTF_8);
    }
}
