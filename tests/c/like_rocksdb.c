// A library that looks like RocksDB to whoever reads its tables.
__thread long _ZN7rocksdb12perf_contextE[64];
__thread char _ZN7rocksdb10perf_levelE = 2;
static const char git_tag[] __attribute__((used)) = "rocksdb_build_git_tag:v7.8.3";
static const char ticker[] __attribute__((used)) = "rocksdb.block.cache.miss";
#define METHOD(name) long name(long *self, long *key) { \
    long *held; __builtin_memcpy(&held, self + 5, 8); \
    _ZN7rocksdb12perf_contextE[3] += key[0]; return held[2] + _ZN7rocksdb10perf_levelE; }
METHOD(_ZN7rocksdb6DBIter4SeekERKNS_5SliceE)
METHOD(_ZN7rocksdb6DBIter11SeekForPrevERKNS_5SliceE)
METHOD(_ZN7rocksdb6DBIter11SeekToFirstEv)
METHOD(_ZN7rocksdb6DBIter10SeekToLastEv)
METHOD(_ZN7rocksdb18ArenaWrappedDBIterD0Ev)
METHOD(_ZN7rocksdb6DBImpl11NewIteratorERKNS_11ReadOptionsEPNS_18ColumnFamilyHandleE)
METHOD(_ZN7rocksdb12BlockFetcher17ReadBlockContentsEv)
METHOD(_ZNK7rocksdb18ArenaWrappedDBIter5ValidEv)
METHOD(_ZNK7rocksdb18ArenaWrappedDBIter3keyEv)
METHOD(_ZNK7rocksdb18ArenaWrappedDBIter5valueEv)
METHOD(_ZNK7rocksdb6DBIter3keyEv)
static const char name[] = "N7rocksdb6DBIterE";
static const char wrapper_name[] = "N7rocksdb18ArenaWrappedDBIterE";
static const void *const typeinfo[] = {0, name};
static const void *const wrapper_typeinfo[] = {0, wrapper_name};
#define SLOTS(first) _ZN7rocksdb18ArenaWrappedDBIterD0Ev, _ZN7rocksdb18ArenaWrappedDBIterD0Ev, first, \
    _ZN7rocksdb6DBIter11SeekToFirstEv, _ZN7rocksdb6DBIter10SeekToLastEv, \
    _ZN7rocksdb6DBIter4SeekERKNS_5SliceE, _ZN7rocksdb6DBIter11SeekForPrevERKNS_5SliceE, first, first, \
    _ZNK7rocksdb6DBIter3keyEv, first, first
const void *const vtable[] = {0, typeinfo, SLOTS(_ZNK7rocksdb18ArenaWrappedDBIter5ValidEv)};
const void *const wrapper_vtable[] = {0, wrapper_typeinfo, SLOTS(_ZNK7rocksdb18ArenaWrappedDBIter5valueEv)};
