//! What an action takes from the budgets: what it rewrote, as far as that can be believed.
//!
//! How much was rewritten is known from the sizes of files, and those are the target's own word. The budgets
//! are the whole node's, so that one target's word must not be able to empty them for long.

/// How many times what was predicted an action is charged at most. Predictions are good to some per cent;
/// compactions that RocksDB does by itself among the same keys are counted too.
const PREDICTIONS_MAX: u64 = 4;

/// Bytes that are believed of every action: of a small one, too, that took along a file which nobody could
/// foresee. A file of RocksDB has 64 MiB, where nobody says otherwise.
const ALWAYS_BELIEVED_BYTES: u64 = 64 << 20;

/// The bytes that an action is charged: those `reported`, but no more than some times what was `predicted`,
/// and no more than all that fits on the device, where its size is known.
pub fn charged_bytes(reported: u64, predicted: u64, device_bytes: Option<u64>) -> u64 {
    let believed = predicted.saturating_mul(PREDICTIONS_MAX).max(ALWAYS_BELIEVED_BYTES);
    reported.min(believed).min(device_bytes.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_was_rewritten_is_charged_as_far_as_it_can_be_believed() {
        assert_eq!(charged_bytes(300 * MIB, 250 * MIB, None), 300 * MIB);
        assert_eq!(charged_bytes(60 * MIB, 0, None), 60 * MIB);
        assert_eq!(charged_bytes(1 << 63, 250 * MIB, None), 1000 * MIB);
        assert_eq!(charged_bytes(1 << 63, 0, None), 64 * MIB);
        assert_eq!(charged_bytes(1 << 63, u64::MAX, Some(500 * MIB)), 500 * MIB);
    }

    proptest! {
        #[test]
        fn nobody_is_charged_more_than_was_reported(reported: u64, predicted: u64, device: Option<u64>) {
            let charged = charged_bytes(reported, predicted, device);
            prop_assert!(charged <= reported);
            prop_assert!(device.is_none_or(|device| charged <= device));
        }
    }
}
