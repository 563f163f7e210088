//! `sexton inspect`: what is known of a process' RocksDB, and what is missing.

use crate::failure::Failure;
use crate::target::facts::{ProbeSite, Target};
use crate::target::inspect::Inspector;
use clap::Args;

/// Arguments of `sexton inspect`.
#[derive(Args, Debug)]
pub struct InspectArguments {
    /// Process to look into.
    #[arg(long)]
    pid: u32,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Looks and prints; nothing is attached.
///
/// # Errors
/// When there is no such process, or no RocksDB in it that can be read.
pub fn run(arguments: &InspectArguments) -> Result<(), Failure> {
    let target = Inspector::new().inspect(arguments.pid)?;
    if arguments.json {
        let json = serde_json::to_string_pretty(&target)
            .map_err(|error| Failure::new(error, "this is not expected: report it"))?;
        println!("{json}");
    } else {
        print_text(&target);
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
    println!("  counters    row {} of the layouts", module.layout.versions);
    println!("  TLS         {:?}", module.tls);
    for database in &target.databases {
        println!("  database    {}", database.path.display());
    }
    let sites = &module.sites;
    for (name, site) in [
        ("Seek", &sites.seek),
        ("SeekForPrev", &sites.seek_for_prev),
        ("SeekToFirst", &sites.seek_to_first),
        ("SeekToLast", &sites.seek_to_last),
        ("iterator end", &sites.iterator_destructor),
        ("NewIterator", &sites.new_iterator),
    ] {
        println!("  probe       {name:<13} {}", describe(site.as_ref()));
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
