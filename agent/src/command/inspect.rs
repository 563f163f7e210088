//! `sexton inspect`: what is known of a process' RocksDB, and what is missing.

use crate::failure::Failure;
use crate::text::{json_shown, print_line};
use clap::Args;
use sexton_inspect::facts::{ProbeSite, Target};
use sexton_inspect::inspect::Inspector;
use sexton_probe::Site;

/// Arguments of `sexton inspect`.
#[derive(Args, Debug)]
pub struct InspectArguments {
    /// Process to look into.
    #[arg(long)]
    pid: u32,
    /// Print a JSON array, one object a copy of RocksDB in the process, instead of text.
    #[arg(long)]
    json: bool,
}

/// Looks and prints; nothing is attached.
///
/// # Errors
/// When there is no such process, or no RocksDB in it that can be read.
pub fn run(arguments: &InspectArguments) -> Result<(), Failure> {
    let targets = Inspector::new().inspect_all(arguments.pid)?;
    if arguments.json {
        let json = serde_json::to_string_pretty(&targets)
            .map_err(|error| Failure::new(error, "this is not expected: report it"))?;
        println!("{}", json_shown(&json));
    } else {
        targets.iter().for_each(print_text);
    }
    Ok(())
}

fn print_text(target: &Target) {
    let module = &target.module;
    print_line(format_args!("{} ({})", target.name, target.executable.display()));
    print_line(format_args!(
        "  module      {}{}",
        module.path.display(),
        if module.deleted { " (deleted)" } else { "" }
    ));
    print_line(format_args!("  build id    {}", module.build_id.as_deref().unwrap_or("none")));
    print_line(format_args!(
        "  RocksDB     {}.{} from {}",
        module.version.major, module.version.minor, module.version.source
    ));
    print_line(format_args!("  functions   found by {:?}", module.found_by));
    print_line(format_args!("  counts      {:?}", module.counts));
    if let (Some(layout), Some(source)) = (&module.layout, module.layout_source) {
        print_line(format_args!("  counters    as in RocksDB {}, from {source:?}", layout.versions));
    }
    if let Some(tls) = module.tls {
        print_line(format_args!("  TLS         {tls:?}"));
    }
    for database in &target.databases {
        let access = if database.is_read_only { ", open for reading only" } else { "" };
        print_line(format_args!("  database    {}{access}", database.path.display()));
    }
    for site in Site::SHOWN {
        print_line(format_args!(
            "  probe       {:<13} {}",
            site.label(),
            describe(site.place(&module.sites))
        ));
    }
    for gap in &target.gaps {
        print_line(format_args!("  missing     {}: {}", gap.what, gap.reason));
        print_line(format_args!("              {}", gap.remedy));
    }
}

fn describe(site: Option<&ProbeSite>) -> String {
    site.map_or_else(
        || "not found".to_owned(),
        |site| format!("at {:#x} in the file, {:?}", site.file_offset, site.kind),
    )
}
