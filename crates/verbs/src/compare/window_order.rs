//! `--order`.

use clap::ValueEnum;
use study::shares::WindowOrder;

/// Which windows become large first.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Order {
    /// Those that the program asks for first
    #[default]
    Growing,
    /// In an order that the seed decides
    Random,
    /// Those of which most is accessed in a run with base pages (root)
    Hottest,
}

impl From<Order> for WindowOrder {
    fn from(order: Order) -> WindowOrder {
        match order {
            Order::Growing => WindowOrder::Growing,
            Order::Random => WindowOrder::Random,
            Order::Hottest => WindowOrder::Hottest { half_percent: 0 },
        }
    }
}
