//! How probes would be placed on this node, and what each of their firings would cost.

use super::finding::Finding;
use sexton_probe::governor::{ProbePrices, calibrate};
use sexton_probe::{KernelFeatures, Mechanism, Windows};

/// How probes would be placed, and their prices.
pub struct Placing {
    /// What places them; `None` where nothing can.
    pub mechanism: Option<Mechanism>,
    /// Calibrated prices, or why there are none.
    pub prices: Result<ProbePrices, String>,
}

impl Placing {
    /// Chooses the mechanism and calibrates it on functions of our own; no target is touched.
    pub fn try_out(features: &KernelFeatures) -> Placing {
        let choice = Mechanism::choose(features);
        let mechanism = choice.as_ref().ok().copied();
        let prices = choice.and_then(Windows::load).and_then(|mut windows| calibrate(&mut windows));
        Placing { mechanism, prices: prices.map_err(|error| error.to_string()) }
    }

    /// Whether prices are known; without them the governor takes those of another machine.
    pub fn finding(&self) -> Finding {
        let name = "prices of probes";
        let note = "budgets are kept by what probes cost here, corrected by the counters of each target";
        match &self.prices {
            Ok(_) => Finding::yes(name, note),
            Err(reason) => Finding::no(
                name,
                note,
                reason.as_str(),
                "see the other findings: probes cannot be placed here",
            ),
        }
    }
}
