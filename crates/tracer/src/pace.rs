//! [`Pace`]: how often a policy had work to do at a stopped call.

/// Average work that a policy had at the calls that stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Share of the stopped calls at which the policy made the task make further calls, so that it stopped again.
    pub served_ratio: f64,
    /// Average number of further stops at such a call.
    pub further_stops: f64,
}

/// Counters of served calls, from which [`Pace`] is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    calls: u64,
    served: u64,
    further_stops: u64,
}

/// Fractional calls and stops that a sham trial still has to make to match the policy's pace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwedStops {
    /// Calls to be served.
    pub served: f64,
    /// Further stops, after the first stop of a call.
    pub stops: f64,
}

impl Served {
    /// Counts a stopped call and the further stops that serving it took.
    pub fn count(&mut self, further_stops: u64) {
        self.calls += 1;
        self.served += u64::from(further_stops > 0);
        self.further_stops += further_stops;
    }

    /// The average over all counted calls.
    pub fn pace(&self) -> Pace {
        let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Pace { served_ratio: ratio(self.served, self.calls), further_stops: ratio(self.further_stops, self.served) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_the_average_over_the_counted_calls() {
        let mut served = Served::default();
        assert_eq!(served.pace(), Pace::default());
        for further_stops in [0, 3, 0, 5] {
            served.count(further_stops);
        }
        assert_eq!(served.pace(), Pace { served_ratio: 0.5, further_stops: 4.0 });
    }
}
