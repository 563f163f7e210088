//! Links the queue workload so that its RocksDB can be called from a preloaded library.

fn main() {
    // The hook finds RocksDB's C API with `dlsym`; an executable only offers symbols that are in its
    // dynamic table.
    println!("cargo:rustc-link-arg-bin=sexton-queue-workload=-rdynamic");
    println!("cargo:rerun-if-changed=build.rs");
}
