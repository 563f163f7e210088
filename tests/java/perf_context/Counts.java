// What the calling thread's perf context counted, by RocksJava's own PerfContext (since 9.1).

import org.rocksdb.PerfContext;
import org.rocksdb.RocksDB;

final class Counts {
    static final int LENGTH = 5;

    private Counts() {}

    static long[] now(RocksDB database) {
        // Not closed: the handle is the thread's own perf context, and nothing is to be freed.
        PerfContext context = database.getPerfContext();
        return new long[] {
            context.getInternalDeleteSkippedCount(),
            context.getInternalKeySkippedCount(),
            context.getBlockReadCount(),
            context.getBlockReadByte(),
            context.getBlockCacheHitCount(),
        };
    }

    static void reset(RocksDB database) {
        database.getPerfContext().reset();
    }
}
