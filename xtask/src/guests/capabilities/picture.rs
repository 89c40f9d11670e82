//! The picture of all matrices: a block for each kind of memory, with a row for each kernel and a column for each way.

use std::fmt::Write;

use super::matrix::{Matrix, Sizes};
use super::page::{WAYS, rows};

const CELL: usize = 14;
const BLOCKS_IN_A_ROW: usize = 4;
/// Space for the names of kernels, left of the first block; the space for the names of ways above each block follows.
const LEFT: usize = 120;
const ABOVE: usize = 86;
const LEGEND_HEIGHT: usize = 34;
/// Space for the longest name of a colour in the legend.
const LEGEND_ENTRY: usize = 110;
const GAP: usize = 22;

/// The colours from the best outcome to the worst, with their names. They also differ in lightness, for readers who do not see
/// colours.
const COLOURS: [(&str, &str); 5] = [
    ("#0b5c4a", "all sizes"),
    ("#3fa088", "several sizes"),
    ("#a3d9c9", "one size"),
    ("#f0c75e", "folios only"),
    ("#d9d9d9", "none"),
];

pub fn svg(kernels: &[Matrix]) -> String {
    let rows = rows(kernels);
    let block_width = WAYS.len() * CELL + GAP;
    let block_height = ABOVE + kernels.len() * CELL + GAP;
    let lines = rows.len().div_ceil(BLOCKS_IN_A_ROW);
    let (width, height) = (LEFT + BLOCKS_IN_A_ROW * block_width, LEGEND_HEIGHT + lines * block_height);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (at, (colour, name)) in COLOURS.iter().enumerate() {
        let x = 10 + at * LEGEND_ENTRY;
        let _ = writeln!(text, "<rect x=\"{x}\" y=\"10\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
        let _ = writeln!(text, "<text x=\"{}\" y=\"20\">{name}</text>", x + 17);
    }
    for (at, row) in rows.iter().enumerate() {
        let (x, y) = (LEFT + at % BLOCKS_IN_A_ROW * block_width, LEGEND_HEIGHT + at / BLOCKS_IN_A_ROW * block_height);
        block(&mut text, kernels, row, (x, y));
        if at % BLOCKS_IN_A_ROW == 0 {
            for (line, kernel) in kernels.iter().enumerate() {
                let _ = writeln!(
                    text,
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                    LEFT - 6,
                    y + ABOVE + line * CELL + CELL - 3,
                    kernel.guest.guest
                );
            }
        }
    }
    text + "</svg>\n"
}

fn block(text: &mut String, kernels: &[Matrix], row: &str, (x, y): (usize, usize)) {
    let _ = writeln!(text, "<text x=\"{x}\" y=\"{}\" font-weight=\"bold\">{row}</text>", y + 12);
    for (at, (way, _)) in WAYS.iter().enumerate() {
        let (x, y) = (x + at * CELL + CELL - 3, y + ABOVE - 4);
        let _ = writeln!(
            text,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"9\" transform=\"rotate(-90 {x} {y})\">{}</text>",
            way.replace('_', "-")
        );
        for (line, kernel) in kernels.iter().enumerate() {
            let sizes = kernel.sizes(row, way);
            let Some(colour) = colour(&sizes) else { continue };
            let (x, y) = (x + 3 - CELL, y + 4 + line * CELL);
            let side = CELL - 1;
            let _ = writeln!(
                text,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" fill=\"{colour}\"><title>{row}, {way}, {}: {}</title></rect>",
                kernel.guest.guest,
                sizes.text()
            );
        }
    }
}

/// The colour of a cell; `None` if nothing was tried.
fn colour(sizes: &Sizes) -> Option<&'static str> {
    let at = match (sizes.large.len(), sizes.tried.len()) {
        (_, 0) => return None,
        (large, tried) if large == tried && tried > 1 => 0,
        (0, _) if sizes.folios.is_empty() => 4,
        (0, _) => 3,
        (1, _) => 2,
        _ => 1,
    };
    Some(COLOURS[at].0)
}
