//! Links the example so that the RocksDB in it can be found with `dlsym`.

fn main() {
    println!("cargo:rustc-link-arg-examples=-rdynamic");
    println!("cargo:rerun-if-changed=build.rs");
}
