// A Java program that opens and closes its RocksDB again and again. It knows nothing of Sexton.
//
// Argument 0: a directory for the database. Argument 1: cycles. Each does what a cycle of tests/c/close_loop.c does and
// prints the same lines.

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.rocksdb.*;

public class CloseLoop {
    private static final int KEYS = 1000;
    private static final int SCRATCH_KEYS = 300;
    private static final int VALUE_BYTES = 200;
    private static final int WAIT_MILLISECONDS = 6;
    private static final Random random = new Random(1);

    public static void main(String[] arguments) throws Exception {
        RocksDB.loadLibrary();
        int cycles = Integer.parseInt(arguments[1]);
        for (int cycle = 0; cycle <= cycles; cycle++) {
            cycle(arguments[0], cycle, cycle == cycles);
        }
        System.out.println("verified " + KEYS);
        while (System.in.read() >= 0) {
            // Until the end.
        }
    }

    private static void cycle(String path, int cycle, boolean isLast) throws Exception {
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        try (ColumnFamilyOptions familyOptions = new ColumnFamilyOptions();
             DBOptions options =
                 new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true)) {
            List<ColumnFamilyDescriptor> families = Arrays.asList(
                new ColumnFamilyDescriptor("default".getBytes(), familyOptions),
                new ColumnFamilyDescriptor("keyTable".getBytes(), familyOptions));
            RocksDB database = RocksDB.open(options, path, families, handles);
            ColumnFamilyHandle keyTable = handles.get(1);
            if (cycle > 0) {
                verify(database, keyTable, cycle - 1);
            }
            if (!isLast) {
                rewrite(database, keyTable, cycle, KEYS);
                ColumnFamilyHandle scratch = database.createColumnFamily(
                    new ColumnFamilyDescriptor("scratch".getBytes(), familyOptions));
                rewrite(database, scratch, cycle, SCRATCH_KEYS);
                System.out.println("open " + cycle + " " + address(database) + " " + address(keyTable) + " "
                    + keyTable.getID() + " " + address(scratch) + " " + scratch.getID());
                Thread.sleep(random.nextInt(WAIT_MILLISECONDS));
                database.dropColumnFamily(scratch);
                scratch.close();
                Thread.sleep(random.nextInt(WAIT_MILLISECONDS));
            }
            for (ColumnFamilyHandle handle : handles) {
                handle.close();
            }
            database.close();
        }
        System.out.println("closed " + cycle);
    }

    private static boolean isDeleted(int cycle, int number) {
        return (cycle + number) % 3 == 0;
    }

    private static byte[] key(int number) {
        return String.format("key%09d", number).getBytes();
    }

    private static byte[] value(int cycle, int number) {
        return Arrays.copyOf((number + " of cycle " + cycle).getBytes(), VALUE_BYTES);
    }

    private static void verify(RocksDB database, ColumnFamilyHandle table, int cycle) throws Exception {
        try (RocksIterator iterator = database.newIterator(table)) {
            iterator.seekToFirst();
            for (int number = 0; number < KEYS; number++) {
                if (isDeleted(cycle, number)) {
                    continue;
                }
                if (!iterator.isValid() || !Arrays.equals(iterator.key(), key(number))
                    || !Arrays.equals(iterator.value(), value(cycle, number))) {
                    throw new IOException("key " + number + " is not as cycle " + cycle + " has left it");
                }
                iterator.next();
            }
            iterator.status();
            if (iterator.isValid()) {
                throw new IOException("cycle " + cycle + " has left keys too many");
            }
        }
    }

    private static void rewrite(RocksDB database, ColumnFamilyHandle table, int cycle, int keys)
        throws Exception {
        try (WriteOptions write = new WriteOptions().setDisableWAL(true);
             FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
            for (int number = 0; number < keys; number++) {
                database.put(table, write, key(number), value(cycle, number));
            }
            database.flush(wait, table);
            for (int number = 0; number < keys; number++) {
                if (isDeleted(cycle, number)) {
                    database.delete(table, write, key(number));
                }
            }
        }
    }

    // Address of the C++ object, which a probe of the native library would see.
    private static long address(RocksObject object) throws Exception {
        java.lang.reflect.Field handle = RocksObject.class.getDeclaredField("nativeHandle_");
        handle.setAccessible(true);
        return handle.getLong(object);
    }
}
