//! Compiles the BPF programs and generates Rust's view of `bpf/sexton.h`.

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;
use std::{env, path::PathBuf};

/// Debian's name for the compiler; another one can be named in `SEXTON_BPF_CLANG`.
const CLANG: &str = "clang-19";

fn main() -> Result<()> {
    let output = PathBuf::from(env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    let sources =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").context("cargo sets it")?).join("../../bpf");
    let clang = env::var("SEXTON_BPF_CLANG").unwrap_or_else(|_| CLANG.to_owned());
    println!("cargo::rerun-if-env-changed=SEXTON_BPF_CLANG");
    println!("cargo::rerun-if-changed={}", sources.display());

    for name in ["sentinel", "seek", "session", "process", "features"] {
        let source = sources.join(format!("{name}.bpf.c"));
        SkeletonBuilder::new()
            .source(&source)
            .obj(output.join(format!("{name}.bpf.o")))
            .clang(&clang)
            .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-I"])
            .clang_args([&sources])
            .build()
            .with_context(|| {
                format!("compile {} with {clang} (`make setup` installs it)", source.display())
            })?;
    }

    bindgen::Builder::default()
        .header(sources.join("sexton.h").to_string_lossy())
        .allowlist_type("sexton_.*")
        .allowlist_var("SEXTON_.*")
        .derive_default(true)
        .derive_eq(true)
        .layout_tests(true)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate()
        .context("read bpf/sexton.h")?
        .write_to_file(output.join("sexton_h.rs"))
        .context("write Rust's view of bpf/sexton.h")?;
    Ok(())
}
