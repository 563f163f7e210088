// A Java program that compacts its own RocksDB again and again. It knows nothing of Sexton.
//
// Argument 0: an empty directory for the database. Argument 1: calls. When keyTable is filled it prints
//   open DATABASE HANDLE ID      (addresses of the C++ objects of the database and of keyTable, and its id)
// On a line on standard input it calls compactRange so many times, mostly for all of another column family and each
// tenth time for some keys of keyTable, and prints
//   compacted CALLS FAILURES MESSAGE      (of the last one that failed)
// It ends when standard input ends.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.rocksdb.*;

public class CompactLoop {
    private static final int KEYS = 40_000;
    private static final int OTHER_KEYS = 300;
    private static final int VALUE_BYTES = 500;
    private static final int KEY_TABLE_EVERY = 10;

    public static void main(String[] arguments) throws Exception {
        RocksDB.loadLibrary();
        int calls = Integer.parseInt(arguments[1]);
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        ColumnFamilyOptions families =
            new ColumnFamilyOptions().setCompressionType(CompressionType.NO_COMPRESSION).setTargetFileSizeBase(1 << 20);
        DBOptions options = new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true);
        RocksDB database = RocksDB.open(options, arguments[0], Arrays.asList(
            new ColumnFamilyDescriptor("default".getBytes(), families),
            new ColumnFamilyDescriptor("keyTable".getBytes(), families)), handles);
        ColumnFamilyHandle other = handles.get(0);
        ColumnFamilyHandle keyTable = handles.get(1);
        fill(database, keyTable, KEYS);
        fill(database, other, OTHER_KEYS);
        // Forced: it rewrites whatever it is asked for.
        CompactRangeOptions rewrite = new CompactRangeOptions()
            .setExclusiveManualCompaction(false)
            .setBottommostLevelCompaction(CompactRangeOptions.BottommostLevelCompaction.kForce);
        database.compactRange(keyTable, null, null, rewrite);
        System.out.println(
            "open " + address(database) + " " + address(keyTable) + " " + keyTable.getID());
        System.in.read();
        int failures = 0;
        String message = "";
        for (int call = 0; call < calls; call++) {
            try {
                if (call % KEY_TABLE_EVERY == 0) {
                    int number = call * (KEYS / calls);
                    database.compactRange(keyTable, key(number), key(number + 1), rewrite);
                } else {
                    database.compactRange(other, null, null, rewrite);
                }
            } catch (RocksDBException error) {
                failures++;
                message = error.getMessage();
            }
        }
        System.out.println("compacted " + calls + " " + failures + " " + message);
        while (System.in.read() >= 0) {
            // Until the end.
        }
        handles.forEach(ColumnFamilyHandle::close);
        database.close();
    }

    private static void fill(RocksDB database, ColumnFamilyHandle table, int keys) throws Exception {
        Random random = new Random(1);
        byte[] value = new byte[VALUE_BYTES];
        try (WriteOptions write = new WriteOptions().setDisableWAL(true);
             FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
            for (int number = 0; number < keys; number++) {
                random.nextBytes(value);
                database.put(table, write, key(number), value);
            }
            database.flush(wait, table);
        }
    }

    private static byte[] key(int number) {
        return String.format("key%09d", number).getBytes();
    }

    private static long address(RocksObject object) throws Exception {
        java.lang.reflect.Field handle = RocksObject.class.getDeclaredField("nativeHandle_");
        handle.setAccessible(true);
        return handle.getLong(object);
    }
}
