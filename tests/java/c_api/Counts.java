// What the calling thread's perf context counted, for a RocksJava that has no PerfContext: asked of the
// C API that the same library exports, through counts.c.

import org.rocksdb.RocksDB;

final class Counts {
    static final int LENGTH = 5;

    // rocksdb/c.h: rocksdb_internal_delete_skipped_count, ..._internal_key_skipped_count, ..._block_read_count,
    // ..._block_read_byte, ..._block_cache_hit_count.
    private static final int[] METRICS = {11, 10, 2, 3, 1};

    static {
        System.load(System.getProperty("counts.library"));
    }

    private Counts() {}

    static long[] now(RocksDB database) {
        long[] counts = new long[LENGTH];
        for (int index = 0; index < LENGTH; index++) {
            counts[index] = metric(METRICS[index]);
            if (counts[index] < 0) {
                throw new IllegalStateException("the library does not tell metric " + METRICS[index]);
            }
        }
        return counts;
    }

    static void reset(RocksDB database) {
        if (!resetAll()) {
            throw new IllegalStateException("the library does not set its counters to zero");
        }
    }

    private static native long metric(int metric);

    private static native boolean resetAll();
}
