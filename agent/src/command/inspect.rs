//! `sexton inspect`: what is known of a process' RocksDB, and what is missing.

use crate::failure::Failure;
use crate::probe::Site;
use crate::target::facts::{ProbeSite, Target};
use crate::target::inspect::Inspector;
use clap::Args;

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
        println!("{json}");
    } else {
        targets.iter().for_each(print_text);
    }
    Ok(())
}

fn print_text(target: &Target) {
    let module = &target.module;
    println!("{} ({})", target.name, target.executable.display());
    println!("  module      {}{}", module.path.display(), if module.deleted { " (deleted)" } else { "" });
    println!("  build id    {}", module.build_id.as_deref().unwrap_or("none"));
    println!(
        "  RocksDB     {}.{} from {}",
        module.version.major, module.version.minor, module.version.source
    );
    println!("  functions   found by {:?}", module.found_by);
    println!("  counts      {:?}", module.counts);
    if let (Some(layout), Some(source)) = (&module.layout, module.layout_source) {
        println!("  counters    as in RocksDB {}, from {source:?}", layout.versions);
    }
    if let Some(tls) = module.tls {
        println!("  TLS         {tls:?}");
    }
    for database in &target.databases {
        println!("  database    {}", database.path.display());
    }
    for site in Site::SHOWN {
        println!("  probe       {:<13} {}", site.label(), describe(site.place(&module.sites)));
    }
    for gap in &target.gaps {
        println!("  missing     {}: {}", gap.what, gap.reason);
        println!("              {}", gap.remedy);
    }
}

fn describe(site: Option<&ProbeSite>) -> String {
    site.map_or_else(
        || "not found".to_owned(),
        |site| format!("at {:#x} in the file, {:?}", site.file_offset, site.kind),
    )
}
