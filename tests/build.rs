//! Links the programs whose RocksDB is called from a preloaded library so that it can be.

fn main() {
    // The hook finds RocksDB's C API with `dlsym`; an executable only offers symbols that are in its
    // dynamic table.
    for program in ["sexton-files-host", "sexton-queue-workload", "sexton-bench-workloads"] {
        println!("cargo:rustc-link-arg-bin={program}=-rdynamic");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
