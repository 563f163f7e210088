//! An advice as `sexton advise` prints it.

use super::{Advice, Figures, OptionAdvice, Recommendation};
use crate::words;
use std::fmt::Write;

/// The sentences of an advice, a thought a line.
pub fn text(advice: &Advice) -> String {
    let mut text = format!(
        "{} {} {}: {}\n",
        advice.target,
        advice.database,
        advice.column_family,
        advice.workload.in_words()
    );
    let mut line = |name: &str, what: &str| {
        let _ = writeln!(text, "  {name:<9} {what}");
    };
    advice.because.iter().for_each(|reason| line("because", reason));
    line("now", &shape(&advice.figures));
    advice.missing.iter().for_each(|missing| line("missing", missing));
    if let Some(recommendation) = &advice.recommendation {
        recommended(recommendation, &mut line);
    }
    advice.never.iter().for_each(|never| line("never", never));
    for danger in &advice.dangers {
        let name: &str = danger.kind.into();
        line("danger", &format!("{}, by {}: {}", name.replace('_', " "), danger.option, danger.reason));
    }
    text
}

fn recommended(recommendation: &Recommendation, line: &mut impl FnMut(&str, &str)) {
    let Recommendation { strategy, is_in_force, why, cost, since, options, how_to_try } = recommendation;
    let in_force = if *is_in_force { ", which is in force" } else { "" };
    line("suits", &format!("{}{in_force}: {why}", strategy.in_words()));
    line("costs", cost);
    line("since", since);
    options.iter().for_each(|option| line("option", &option_text(option)));
    line("try", how_to_try);
}

fn option_text(option: &OptionAdvice) -> String {
    let OptionAdvice { name, value, in_force, at_run_time, since, why } = option;
    let when = if *at_run_time { "at run time" } else { "when it is opened" };
    let now = in_force.as_ref().map(|value| format!(", now {value}")).unwrap_or_default();
    format!("{name} = {value} ({when}{now}; since {since}): {why}")
}

fn shape(figures: &Figures) -> String {
    let levels = figures.levels.iter().map(|level| {
        format!("L{} {} in {}", level.level, words::bytes(level.bytes), words::count(level.files))
    });
    format!(
        "{} entries, {} of them deletions, {} in {} files: {}",
        words::count(figures.entries),
        words::percent(figures.density()),
        words::bytes(figures.sst_bytes),
        words::count(figures.sst_files),
        levels.collect::<Vec<_>>().join(", "),
    )
}
