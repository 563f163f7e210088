//! The functions that probes stand at, and how often each was hit.

use super::Slot;
use super::abi::{
    SEXTON_COOKIE_SITE_BITS, SEXTON_SEEK, SEXTON_SEEK_FOR_PREV, SEXTON_SEEK_TO_FIRST, SEXTON_SEEK_TO_LAST,
    SEXTON_SITE_COUNTERS_RESET, SEXTON_SITE_ITERATOR_END, SEXTON_SITE_NEW_ITERATOR, SEXTON_SITE_READ_BLOCK,
    sexton_totals,
};
use serde::Serialize;
use sexton_inspect::facts::{ProbeSite, ProbeSites, SiteKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Site {
    /// `DBIter::Seek`.
    Seek,
    /// `DBIter::SeekForPrev`.
    SeekForPrev,
    /// `DBIter::SeekToFirst`.
    SeekToFirst,
    /// `DBIter::SeekToLast`.
    SeekToLast,
    /// The deleting destructor of `ArenaWrappedDBIter`.
    IteratorEnd,
    /// `DBImpl::NewIterator`.
    NewIterator,
    /// `BlockFetcher::ReadBlockContents`.
    ReadBlockContents,
    /// `PerfContext::Reset`.
    CountersReset,
}

impl Site {
    /// All of them. Those whose operations the others complete come last, so that where they are armed one by
    /// one nothing is begun that nobody ends.
    pub const ALL: [Site; 8] = [
        Site::CountersReset,
        Site::IteratorEnd,
        Site::NewIterator,
        Site::ReadBlockContents,
        Site::Seek,
        Site::SeekForPrev,
        Site::SeekToFirst,
        Site::SeekToLast,
    ];

    /// All of them, in the order in which they are shown to people.
    pub const SHOWN: [Site; 8] = [
        Site::Seek,
        Site::SeekForPrev,
        Site::SeekToFirst,
        Site::SeekToLast,
        Site::IteratorEnd,
        Site::NewIterator,
        Site::ReadBlockContents,
        Site::CountersReset,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Site::Seek => "Seek",
            Site::SeekForPrev => "SeekForPrev",
            Site::SeekToFirst => "SeekToFirst",
            Site::SeekToLast => "SeekToLast",
            Site::IteratorEnd => "iterator end",
            Site::NewIterator => "NewIterator",
            Site::ReadBlockContents => "block read",
            Site::CountersReset => "Reset",
        }
    }

    /// `enum sexton_site`.
    pub fn number(self) -> u32 {
        match self {
            Site::Seek => SEXTON_SEEK,
            Site::SeekForPrev => SEXTON_SEEK_FOR_PREV,
            Site::SeekToFirst => SEXTON_SEEK_TO_FIRST,
            Site::SeekToLast => SEXTON_SEEK_TO_LAST,
            Site::IteratorEnd => SEXTON_SITE_ITERATOR_END,
            Site::NewIterator => SEXTON_SITE_NEW_ITERATOR,
            Site::ReadBlockContents => SEXTON_SITE_READ_BLOCK,
            Site::CountersReset => SEXTON_SITE_COUNTERS_RESET,
        }
    }

    /// The end of its programs' names in `seek.bpf.c`.
    pub fn program_suffix(self) -> &'static str {
        match self {
            Site::Seek => "seek",
            Site::SeekForPrev => "seek_for_prev",
            Site::SeekToFirst => "seek_to_first",
            Site::SeekToLast => "seek_to_last",
            Site::IteratorEnd => "iterator_end",
            Site::NewIterator => "new_iterator",
            Site::ReadBlockContents => "read_block",
            Site::CountersReset => "counters_reset",
        }
    }

    /// Whether its return is probed as well.
    pub fn has_return(self) -> bool {
        !matches!(self, Site::IteratorEnd | Site::CountersReset)
    }

    /// Whether it opens an operation.
    pub fn is_positioning(self) -> bool {
        matches!(self, Site::Seek | Site::SeekForPrev | Site::SeekToFirst | Site::SeekToLast)
    }

    /// What its probes carry to tell the programs where they are.
    pub fn cookie(self, slot: Slot) -> u64 {
        u64::from(slot) << SEXTON_COOKIE_SITE_BITS | u64::from(self.number())
    }

    /// Where the module has it.
    pub fn place(self, sites: &ProbeSites) -> Option<&ProbeSite> {
        match self {
            Site::Seek => sites.seek.as_ref(),
            Site::SeekForPrev => sites.seek_for_prev.as_ref(),
            Site::SeekToFirst => sites.seek_to_first.as_ref(),
            Site::SeekToLast => sites.seek_to_last.as_ref(),
            Site::IteratorEnd => sites.iterator_destructor.as_ref(),
            Site::NewIterator => sites.new_iterator.as_ref(),
            Site::ReadBlockContents => sites.read_block_contents.as_ref(),
            Site::CountersReset => sites.perf_context_reset.as_ref(),
        }
    }
}

/// A site and the instruction in the module's file that its probe goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedSite {
    pub site: Site,
    /// Offset of the instruction in the file.
    pub file_offset: u64,
    /// Whether the kernel emulates the instruction or has to single-step it.
    pub kind: SiteKind,
}

/// The sites that the module has.
pub fn placed_sites(sites: &ProbeSites) -> Vec<PlacedSite> {
    let placed = |site: Site| {
        let place = site.place(sites)?;
        Some(PlacedSite { site, file_offset: place.file_offset, kind: place.kind })
    };
    Site::ALL.into_iter().filter_map(placed).collect()
}

/// How often the probes at one site fired. A firing that is skipped does next to nothing beyond the trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SiteHits {
    pub site: Site,
    /// Price class of its entry.
    pub kind: SiteKind,
    pub entries: u64,
    pub entries_skipped: u64,
    pub returns: u64,
    pub returns_skipped: u64,
}

/// How often the probes of a window fired, by site: what the window cost its target is to be reckoned from
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProbeHits {
    /// The sites that were armed.
    pub sites: Vec<SiteHits>,
}

impl ProbeHits {
    /// The hits on these sites in the kernel's totals.
    pub(super) fn from_totals(placed: &[PlacedSite], totals: &sexton_totals) -> ProbeHits {
        let hits = placed.iter().filter_map(|placed| {
            let counted = totals.sites.get(placed.site.number() as usize)?;
            Some(SiteHits {
                site: placed.site,
                kind: placed.kind,
                entries: counted.entries,
                entries_skipped: counted.entries_skipped,
                returns: counted.returns,
                returns_skipped: counted.returns_skipped,
            })
        });
        ProbeHits { sites: hits.collect() }
    }

    pub fn entries(&self) -> u64 {
        self.sum(|site| site.entries)
    }

    pub fn returns(&self) -> u64 {
        self.sum(|site| site.returns)
    }

    /// Entries and returns that were skipped.
    pub fn skipped(&self) -> u64 {
        self.sum(|site| site.entries_skipped + site.returns_skipped)
    }

    /// Entries, followed or skipped, on instructions that the kernel has to single-step.
    pub fn single_stepped(&self) -> u64 {
        self.sum(|site| match site.kind {
            SiteKind::SingleStepped => site.entries + site.entries_skipped,
            SiteKind::Emulated => 0,
        })
    }

    pub fn total(&self) -> u64 {
        self.entries() + self.returns() + self.skipped()
    }

    fn sum(&self, of: impl Fn(&SiteHits) -> u64) -> u64 {
        self.sites.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{SEXTON_SITES, sexton_site_hits};
    use std::collections::HashSet;

    #[test]
    fn every_site_has_a_number_of_its_own() {
        let numbers: HashSet<u32> = Site::ALL.into_iter().map(Site::number).collect();
        assert_eq!(numbers, (0..SEXTON_SITES).collect());
    }

    #[test]
    fn a_cookie_holds_slot_and_site() {
        assert_eq!(Site::IteratorEnd.cookie(3), 3 << 8 | 4);
    }

    #[test]
    fn hits_are_summed_by_kind() {
        let place = |site, kind| PlacedSite { site, file_offset: 0, kind };
        let placed =
            [place(Site::Seek, SiteKind::Emulated), place(Site::IteratorEnd, SiteKind::SingleStepped)];
        let mut totals = sexton_totals::default();
        let hits = |entries, entries_skipped, returns, returns_skipped| sexton_site_hits {
            entries,
            entries_skipped,
            returns,
            returns_skipped,
        };
        totals.sites[Site::Seek.number() as usize] = hits(10, 2, 9, 1);
        totals.sites[Site::IteratorEnd.number() as usize] = hits(5, 4, 0, 0);
        let hits = ProbeHits::from_totals(&placed, &totals);
        assert_eq!((hits.entries(), hits.returns(), hits.skipped()), (15, 9, 7));
        assert_eq!((hits.single_stepped(), hits.total()), (9, 31));
    }
}
