//! Numbers that look random and are made from a seed (SplitMix64).

/// A source of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a turn of a history.
    pub fn of(seed: u64, turn: u64) -> Random {
        let mut random =
            Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ turn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `least` up to, and without, `end`.
    pub fn between(&mut self, least: u64, end: u64) -> u64 {
        least + self.next() % end.saturating_sub(least).max(1)
    }

    /// Whether something happens that happens so often in a thousand times.
    pub fn per_mille(&mut self, often: u64) -> bool {
        self.next() % 1_000 < often
    }

    /// An index into so many things.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % (count.max(1) as u64)).unwrap_or(0)
    }
}
