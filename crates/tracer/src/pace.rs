//! How often a policy was seen to have something to do where a call stopped.

/// How a policy was seen to serve the calls that stop, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Share of the calls that stopped at which the task stopped again, because it was to make calls.
    pub served_ratio: f64,
    /// How often it stopped again there.
    pub further_stops: f64,
}

/// What was served, to be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    calls: u64,
    served: u64,
    further_stops: u64,
}

/// What a sham trial still owes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Debt {
    /// Calls to be served.
    pub served: f64,
    /// Stops behind their first one.
    pub stops: f64,
}

impl Served {
    /// Counts a call that stopped, and the stops that serving it took.
    pub fn count(&mut self, further_stops: u64) {
        self.calls += 1;
        self.served += u64::from(further_stops > 0);
        self.further_stops += further_stops;
    }

    /// The pace of it.
    pub fn pace(&self) -> Pace {
        let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Pace { served_ratio: ratio(self.served, self.calls), further_stops: ratio(self.further_stops, self.served) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_what_serving_took_on_average() {
        let mut served = Served::default();
        assert_eq!(served.pace(), Pace::default());
        for further_stops in [0, 3, 0, 5] {
            served.count(further_stops);
        }
        assert_eq!(served.pace(), Pace { served_ratio: 0.5, further_stops: 4.0 });
    }
}
