//! The figures of each workload.

use super::Scale;

const MIB: usize = 1 << 20;

/// Queues of rows: how many, how large, how fast, and what is special about them.
#[derive(Clone, Debug)]
pub struct Shape {
    pub databases: u64,
    /// Column families of each.
    pub families: u64,
    /// Queues in each column family, one prefix each.
    pub queues_per_family: u64,
    /// Every so many queues there is a hot one: rows are deleted in these alone, and most lists are theirs.
    pub queues_per_hot: u64,
    /// Rows created in each queue when the databases are filled.
    pub created: u64,
    /// Those of them that are deleted, the oldest, in hot queues.
    pub deleted: u64,
    pub filling: Filling,
    pub value_bytes: usize,
    pub write_buffer_bytes: usize,
    /// In all queues together.
    pub creates_per_second: u64,
    pub deletes_per_second: u64,
    pub lists_per_second: u64,
    pub rows_per_list: u64,
    pub spread: Spread,
    pub order: Order,
    pub expiry: Expiry,
    pub snapshots: Option<Snapshots>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// Rows are deleted while others are created.
    Mixed,
    /// Rows are deleted when all have been created and compacted.
    DeletesLast,
}

/// Which queues are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    Even,
    /// By Zipf's law.
    Zipf,
}

/// How rows lie in a queue's key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they were created; lists begin at the oldest.
    Created,
    /// By a hash of their numbers; lists begin anywhere.
    Hashed,
}

/// How rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Delete,
    /// So many at a time.
    DeleteRange {
        rows: u64,
    },
    /// Readers pass over expired rows until a compaction filter has removed them.
    Filter,
}

/// RocksDB snapshots that are held for long, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshots {
    pub held_seconds: u64,
    pub pause_seconds: u64,
}

impl Shape {
    /// Paced as an object store's key table.
    pub fn queue(created: u64) -> Shape {
        Shape {
            databases: 1,
            families: 1,
            queues_per_family: 1,
            queues_per_hot: 1,
            created,
            deleted: created / 5 * 2,
            filling: Filling::Mixed,
            value_bytes: 120,
            write_buffer_bytes: 64 * MIB,
            creates_per_second: 1_100,
            deletes_per_second: 440,
            lists_per_second: 55,
            rows_per_list: 100,
            spread: Spread::Even,
            order: Order::Created,
            expiry: Expiry::Delete,
            snapshots: None,
        }
    }

    pub fn prefixes() -> Shape {
        Shape {
            queues_per_family: 1_000,
            deleted: 1_200,
            filling: Filling::DeletesLast,
            write_buffer_bytes: 8 * MIB,
            creates_per_second: 1_000,
            deletes_per_second: 800,
            lists_per_second: 500,
            rows_per_list: 20,
            spread: Spread::Zipf,
            ..Shape::queue(2_000)
        }
    }

    pub fn hashed() -> Shape {
        Shape {
            deleted: 600_000,
            filling: Filling::DeletesLast,
            write_buffer_bytes: 8 * MIB,
            creates_per_second: 1_000,
            deletes_per_second: 300,
            lists_per_second: 200,
            order: Order::Hashed,
            ..Shape::queue(2_000_000)
        }
    }

    pub fn series(expiry: Expiry) -> Shape {
        Shape {
            queues_per_family: 200,
            deleted: 6_000,
            filling: Filling::DeletesLast,
            value_bytes: 60,
            write_buffer_bytes: 8 * MIB,
            creates_per_second: 2_000,
            deletes_per_second: 1_200,
            lists_per_second: 100,
            expiry,
            ..Shape::queue(10_000)
        }
    }

    pub fn stores() -> Shape {
        Shape {
            databases: 50,
            queues_per_hot: 50,
            deleted: 30_000,
            filling: Filling::DeletesLast,
            write_buffer_bytes: 4 * MIB,
            creates_per_second: 2_000,
            deletes_per_second: 100,
            lists_per_second: 100,
            rows_per_list: 50,
            ..Shape::queue(40_000)
        }
    }

    pub fn index() -> Shape {
        Shape {
            queues_per_family: 16,
            deleted: 36_000,
            filling: Filling::DeletesLast,
            value_bytes: 24,
            write_buffer_bytes: 4 * MIB,
            creates_per_second: 1_000,
            deletes_per_second: 800,
            lists_per_second: 50,
            spread: Spread::Zipf,
            snapshots: Some(Snapshots { held_seconds: 12, pause_seconds: 3 }),
            ..Shape::queue(60_000)
        }
    }

    pub fn families() -> Shape {
        Shape {
            families: 200,
            queues_per_hot: 20,
            deleted: 8_000,
            filling: Filling::DeletesLast,
            write_buffer_bytes: 2 * MIB,
            creates_per_second: 2_000,
            deletes_per_second: 200,
            lists_per_second: 200,
            rows_per_list: 50,
            ..Shape::queue(10_000)
        }
    }

    /// The same, of another size: fewer queues where there are many in a column family, else shorter ones.
    pub fn scaled(&self, scale: Scale) -> Shape {
        let mut shape = self.clone();
        if shape.queues_per_family > 1 {
            shape.queues_per_family = scale.of(shape.queues_per_family);
        } else {
            shape.created = scale.of(shape.created);
            shape.deleted = scale.of(shape.deleted);
        }
        shape
    }

    pub fn queues(&self) -> u64 {
        self.databases * self.families * self.queues_per_family
    }

    pub fn is_hot(&self, queue: u64) -> bool {
        queue.is_multiple_of(self.queues_per_hot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_hot_queues_and_rows_left() {
        let shapes = [
            Shape::queue(100_000),
            Shape::prefixes(),
            Shape::hashed(),
            Shape::series(Expiry::Filter),
            Shape::stores(),
            Shape::index(),
            Shape::families(),
        ];
        for shape in shapes.iter().flat_map(|shape| [shape.scaled(Scale::Full), shape.scaled(Scale::Quick)]) {
            assert!(shape.is_hot(0) && shape.queues().is_multiple_of(shape.queues_per_hot), "{shape:?}");
            assert!(shape.created > shape.deleted + shape.rows_per_list && shape.deleted > 0, "{shape:?}");
        }
        assert_eq!(Shape::families().queues() / Shape::families().queues_per_hot, 10);
    }
}
