//! Lays a directed graph out in rows, from top to bottom: every edge has a lane of its own through each row that it passes, so no
//! edge crosses a box. Knows nothing of what the boxes are, and draws nothing.
//!
//! Edges that close a circle are laid out against their direction. Rows are ordered by the middle of the neighbours, and places
//! within a row by least squares under the order and the distances (pool adjacent violators).

/// Between two boxes of a row, and between two lanes.
const BESIDE: f64 = 26.0;
const LANE: f64 = 12.0;
/// Between two rows.
const BETWEEN: f64 = 34.0;
const SWEEPS: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Size {
    pub width: f64,
    pub height: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

/// An edge, and the room that its label needs.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub from: usize,
    pub to: usize,
    pub label: Option<Size>,
}

#[derive(Debug)]
pub struct Layout {
    /// The middle of each box.
    pub boxes: Vec<Point>,
    /// In the order of the links; `None` for an edge from a box to itself.
    pub routes: Vec<Option<Route>>,
}

/// Straight pieces and curves by turns, from the box where the edge begins to the one where it ends; the first piece is straight.
#[derive(Debug)]
pub struct Route {
    pub points: Vec<Point>,
    pub label: Option<Point>,
}

/// A box, or a lane of an edge.
struct Cell {
    row: usize,
    size: Size,
    lane: bool,
    x: f64,
}

struct Rows {
    cells: Vec<Cell>,
    /// Cells of each row, from left to right.
    order: Vec<Vec<usize>>,
    above: Vec<Vec<usize>>,
    below: Vec<Vec<usize>>,
    /// The cells of each link, from the upper row to the lower one, and whether that is against its direction.
    chains: Vec<Option<(Vec<usize>, bool)>>,
}

/// Circles are broken where a walk from the first boxes closes them.
pub fn lay(boxes: &[Size], links: &[Link]) -> Layout {
    let turned = turned(boxes.len(), links);
    let ranks = ranks(boxes.len(), links, &turned);
    let mut rows = rows(boxes, links, &turned, &ranks);
    sort(&mut rows);
    place(&mut rows);
    let (tops, heights) = heights(&rows);
    let middle = |cell: &Cell| tops[cell.row] + heights[cell.row] / 2.0;
    let routes = (0..links.len()).map(|link| route(&rows, link, links, &tops, &heights)).collect();
    let boxes = rows.cells.iter().take(boxes.len()).map(|cell| Point { x: cell.x, y: middle(cell) }).collect();
    Layout { boxes, routes }
}

/// Which links lead back to a box that the walk is still in.
fn turned(boxes: usize, links: &[Link]) -> Vec<bool> {
    let mut turned = vec![false; links.len()];
    let mut leaving: Vec<Vec<usize>> = vec![vec![]; boxes];
    links.iter().enumerate().for_each(|(at, link)| leaving[link.from].push(at));
    // 0: not seen, 1: the walk is in it, 2: left.
    let mut seen = vec![0_u8; boxes];
    for root in 0..boxes {
        let mut walk = if seen[root] == 0 { vec![(root, 0)] } else { vec![] };
        seen[root] = seen[root].max(1);
        while let Some((at, next)) = walk.last_mut() {
            let Some(link) = leaving[*at].get(*next).copied() else {
                seen[*at] = 2;
                walk.pop();
                continue;
            };
            *next += 1;
            let to = links[link].to;
            match seen[to] {
                0 => {
                    seen[to] = 1;
                    walk.push((to, 0));
                }
                1 => turned[link] = true,
                _ => {}
            }
        }
    }
    turned
}

fn ends(link: &Link, turned: bool) -> (usize, usize) {
    if turned { (link.to, link.from) } else { (link.from, link.to) }
}

/// How many links the longest way to each box has; a link with a label needs a row for it.
fn ranks(boxes: usize, links: &[Link], turned: &[bool]) -> Vec<usize> {
    let step = if links.iter().any(|link| link.label.is_some()) { 2 } else { 1 };
    let forward: Vec<(usize, usize)> =
        links.iter().zip(turned).map(|(link, turned)| ends(link, *turned)).filter(|(from, to)| from != to).collect();
    let mut open = vec![0_usize; boxes];
    forward.iter().for_each(|(_, to)| open[*to] += 1);
    let mut ahead: Vec<usize> = (0..boxes).filter(|at| open[*at] == 0).collect();
    let mut ranks = vec![0; boxes];
    while let Some(at) = ahead.pop() {
        for (_, to) in forward.iter().filter(|(from, _)| *from == at) {
            ranks[*to] = ranks[*to].max(ranks[at] + step);
            open[*to] -= 1;
            if open[*to] == 0 {
                ahead.push(*to);
            }
        }
    }
    ranks
}

fn rows(boxes: &[Size], links: &[Link], turned: &[bool], ranks: &[usize]) -> Rows {
    let mut cells: Vec<Cell> =
        boxes.iter().zip(ranks).map(|(size, row)| Cell { row: *row, size: *size, lane: false, x: 0.0 }).collect();
    let mut chains = Vec::with_capacity(links.len());
    for (link, turned) in links.iter().zip(turned) {
        let (upper, lower) = ends(link, *turned);
        if upper == lower {
            chains.push(None);
            continue;
        }
        let mut chain = vec![upper];
        let (first, last) = (ranks[upper] + 1, ranks[lower]);
        // A label stands near where the edge begins, and in the middle of a long way back.
        let labelled = if *turned { (first + last) / 2 } else { first };
        for row in first..last {
            let size = link.label.filter(|_| row == labelled).unwrap_or_default();
            chain.push(cells.len());
            cells.push(Cell { row, size, lane: true, x: 0.0 });
        }
        chain.push(lower);
        chains.push(Some((chain, *turned)));
    }
    let mut rows = Rows {
        order: vec![vec![]; cells.iter().map(|cell| cell.row + 1).max().unwrap_or_default()],
        above: vec![vec![]; cells.len()],
        below: vec![vec![]; cells.len()],
        cells,
        chains,
    };
    rows.cells.iter().enumerate().for_each(|(at, cell)| rows.order[cell.row].push(at));
    for (chain, _) in rows.chains.iter().flatten() {
        for pair in chain.windows(2) {
            rows.below[pair[0]].push(pair[1]);
            rows.above[pair[1]].push(pair[0]);
        }
    }
    rows
}

/// Orders each row by the middle of its neighbours, downwards and upwards by turns; the order with the fewest crossings stays.
fn sort(rows: &mut Rows) {
    let mut best = (crossings(rows), rows.order.clone());
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        let count = rows.order.len();
        for step in 1..count {
            let row = if down { step } else { count - 1 - step };
            let beside = if down { row - 1 } else { row + 1 };
            let mut at = vec![0_usize; rows.cells.len()];
            rows.order[beside].iter().enumerate().for_each(|(place, cell)| at[*cell] = place);
            let neighbours = if down { &rows.above } else { &rows.below };
            let key = |(place, cell): (usize, &usize)| {
                let near = &neighbours[*cell];
                let sum: usize = near.iter().map(|near| at[*near]).sum();
                let middle = if near.is_empty() { place as f64 } else { sum as f64 / near.len() as f64 };
                (middle, *cell)
            };
            let mut keyed: Vec<(f64, usize)> = rows.order[row].iter().enumerate().map(key).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            rows.order[row] = keyed.into_iter().map(|(_, cell)| cell).collect();
        }
        let found = crossings(rows);
        if found < best.0 {
            best = (found, rows.order.clone());
        }
    }
    rows.order = best.1;
}

fn crossings(rows: &Rows) -> usize {
    let mut count = 0;
    let mut at = vec![0_usize; rows.cells.len()];
    for order in &rows.order {
        order.iter().enumerate().for_each(|(place, cell)| at[*cell] = place);
    }
    for order in &rows.order {
        let edges: Vec<(usize, usize)> =
            order.iter().flat_map(|cell| rows.below[*cell].iter().map(|below| (at[*cell], at[*below]))).collect();
        for (i, a) in edges.iter().enumerate() {
            count += edges.iter().skip(i + 1).filter(|b| (a.0 < b.0 && a.1 > b.1) || (a.0 > b.0 && a.1 < b.1)).count();
        }
    }
    count
}

/// Each row under the middle of its neighbours, as near as order and distances allow.
fn place(rows: &mut Rows) {
    for row in 0..rows.order.len() {
        let wanted = vec![0.0; rows.order[row].len()];
        settle(rows, row, &wanted);
    }
    let count = rows.order.len();
    for sweep in 0..SWEEPS {
        for step in 0..count {
            let row = if sweep % 2 == 0 { step } else { count - 1 - step };
            let wanted: Vec<f64> = rows.order[row]
                .iter()
                .map(|cell| {
                    // On the last sweeps both sides count, before that the side that was just placed.
                    let sides: &[&Vec<Vec<usize>>] = match (sweep + 4 < SWEEPS, sweep % 2 == 0) {
                        (true, true) => &[&rows.above],
                        (true, false) => &[&rows.below],
                        (false, _) => &[&rows.above, &rows.below],
                    };
                    let lane = rows.cells[*cell].lane;
                    let near = sides.iter().flat_map(|side| &side[*cell]).map(|near| &rows.cells[*near]);
                    // A lane keeps to the lane that it goes on from: long edges are straight.
                    let near = near.map(|near| (near.x, if lane && near.lane { 4.0 } else { 1.0 }));
                    let (sum, weight) =
                        near.fold((0.0, 0.0), |(sum, all), (x, weight)| (sum + x * weight, all + weight));
                    if weight > 0.0 { sum / weight } else { rows.cells[*cell].x }
                })
                .collect();
            settle(rows, row, &wanted);
        }
    }
}

/// The places nearest to the wanted ones that keep the order and the distances of a row. Lanes weigh more: long edges are straight.
fn settle(rows: &mut Rows, row: usize, wanted: &[f64]) {
    let order = &rows.order[row];
    let mut offsets = Vec::with_capacity(order.len());
    let mut offset = 0.0;
    for (at, cell) in order.iter().enumerate() {
        if let Some(before) = at.checked_sub(1).map(|before| &rows.cells[order[before]]) {
            let cell = &rows.cells[*cell];
            let gap = if before.lane && cell.lane { LANE } else { BESIDE };
            offset += before.size.width / 2.0 + gap + cell.size.width / 2.0;
        }
        offsets.push(offset);
    }
    // Blocks of cells that touch: their weighted middle, their weight, how many they are.
    let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
    for (at, cell) in order.iter().enumerate() {
        let weight = if rows.cells[*cell].lane { 4.0 } else { 1.0 };
        let mut block = (wanted[at] - offsets[at], weight, 1);
        while let Some(before) = blocks.last().filter(|before| before.0 > block.0).copied() {
            blocks.pop();
            let weight = before.1 + block.1;
            block = ((before.0 * before.1 + block.0 * block.1) / weight, weight, before.2 + block.2);
        }
        blocks.push(block);
    }
    let places = blocks.iter().flat_map(|(middle, _, count)| std::iter::repeat_n(*middle, *count));
    let places: Vec<(usize, f64)> =
        order.iter().zip(places.zip(&offsets)).map(|(cell, (middle, offset))| (*cell, middle + offset)).collect();
    places.into_iter().for_each(|(cell, x)| rows.cells[cell].x = x);
}

fn heights(rows: &Rows) -> (Vec<f64>, Vec<f64>) {
    let height = |order: &Vec<usize>| order.iter().map(|cell| rows.cells[*cell].size.height).fold(0.0, f64::max);
    let heights: Vec<f64> = rows.order.iter().map(height).collect();
    let labels = rows.order.iter().any(|order| !order.is_empty() && order.iter().all(|cell| rows.cells[*cell].lane));
    // With rows for labels between them, boxes are far enough from each other.
    let between = if labels { BETWEEN * 0.62 } else { BETWEEN };
    let mut top = 0.0;
    let tops = heights
        .iter()
        .map(|height| {
            let here = top;
            top += height + between;
            here
        })
        .collect();
    (tops, heights)
}

/// Where on the lower or upper side of a box the edge meets it: in the order of where edges go, around the middle.
fn port(rows: &Rows, at: usize, other: usize, down: bool) -> f64 {
    let cell = &rows.cells[at];
    if cell.lane {
        return cell.x;
    }
    let mut near: Vec<usize> = if down { rows.below[at].clone() } else { rows.above[at].clone() };
    near.sort_by(|a, b| rows.cells[*a].x.total_cmp(&rows.cells[*b].x));
    let place = near.iter().position(|near| *near == other).unwrap_or_default() as f64;
    let room = (cell.size.width * 0.6).min(16.0 * (near.len() as f64 - 1.0));
    if near.len() < 2 { cell.x } else { cell.x - room / 2.0 + room * place / (near.len() as f64 - 1.0) }
}

fn route(rows: &Rows, link: usize, links: &[Link], tops: &[f64], heights: &[f64]) -> Option<Route> {
    let (chain, turned) = rows.chains[link].as_ref()?;
    let mut points = Vec::new();
    let mut label = None;
    for (at, cell) in chain.iter().enumerate() {
        let this = &rows.cells[*cell];
        let (top, height) = (tops[this.row], heights[this.row]);
        let middle = top + height / 2.0;
        if this.lane && this.size.width > 0.0 && links[link].label.is_some() {
            label = Some(Point { x: this.x, y: middle });
        }
        if let Some(before) = at.checked_sub(1).map(|before| chain[before]) {
            let x = port(rows, *cell, before, false);
            points.push(Point { x, y: top });
            if !this.lane {
                points.push(Point { x, y: middle - this.size.height / 2.0 });
            }
        }
        if let Some(next) = chain.get(at + 1) {
            let x = port(rows, *cell, *next, true);
            if !this.lane {
                points.push(Point { x, y: middle + this.size.height / 2.0 });
            }
            points.push(Point { x, y: top + height });
        }
    }
    if *turned {
        points.reverse();
    }
    Some(Route { points, label })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOX: Size = Size { width: 90.0, height: 34.0 };

    /// Points on the way, close to each other.
    fn on_the_way(route: &Route) -> Vec<Point> {
        let mut all = vec![];
        for (at, pair) in route.points.windows(2).enumerate() {
            let (a, b) = (pair[0], pair[1]);
            for part in 0..=40 {
                let t = f64::from(part) / 40.0;
                // A curve's handles lie half the way down, above and below its ends.
                let s = if at % 2 == 0 { t } else { t * t * (3.0 - 2.0 * t) };
                let y =
                    if at % 2 == 0 { t } else { 1.5 * t * (1.0 - t) * (1.0 - t) + 1.5 * t * t * (1.0 - t) + t * t * t };
                all.push(Point { x: a.x + (b.x - a.x) * s, y: a.y + (b.y - a.y) * y });
            }
        }
        all
    }

    fn inside(point: Point, middle: Point, size: Size) -> bool {
        (point.x - middle.x).abs() < size.width / 2.0 - 0.01 && (point.y - middle.y).abs() < size.height / 2.0 - 0.01
    }

    fn check(boxes: &[Size], links: &[Link]) {
        let layout = lay(boxes, links);
        for (i, (a, size)) in layout.boxes.iter().zip(boxes).enumerate() {
            for (b, other) in layout.boxes.iter().zip(boxes).skip(i + 1) {
                let apart = (a.x - b.x).abs() >= (size.width + other.width) / 2.0
                    || (a.y - b.y).abs() >= (size.height + other.height) / 2.0;
                assert!(apart, "two boxes lie over each other: {a:?} {b:?}");
            }
        }
        let mut labels: Vec<(Point, Size)> = vec![];
        for (link, route) in links.iter().zip(&layout.routes) {
            assert_eq!(route.is_none(), link.from == link.to);
            let Some(route) = route else { continue };
            for point in on_the_way(route) {
                for (seq, (middle, size)) in layout.boxes.iter().zip(boxes).enumerate() {
                    assert!(!inside(point, *middle, *size), "{link:?} crosses box {seq} at {point:?}");
                }
            }
            let ends = [route.points.first().unwrap(), route.points.last().unwrap()];
            for (point, seq) in ends.into_iter().zip([link.from, link.to]) {
                let (middle, size) = (layout.boxes[seq], boxes[seq]);
                assert!((point.x - middle.x).abs() <= size.width / 2.0, "{link:?} misses box {seq}");
                assert!(((point.y - middle.y).abs() - size.height / 2.0).abs() < 0.01, "{link:?} misses box {seq}");
            }
            labels.extend(route.label.zip(link.label));
            assert_eq!(route.label.is_some(), link.label.is_some());
        }
        for (i, (a, size)) in labels.iter().enumerate() {
            let over = |(b, other): &(Point, Size)| {
                (a.x - b.x).abs() < (size.width + other.width) / 2.0 - 0.01
                    && (a.y - b.y).abs() < (size.height + other.height) / 2.0 - 0.01
            };
            assert!(!labels[i + 1..].iter().any(over), "two labels lie over each other");
            let corner = |x: f64, y: f64| Point { x: a.x + x * size.width / 2.0, y: a.y + y * size.height / 2.0 };
            let corners = [corner(-1.0, -1.0), corner(1.0, -1.0), corner(-1.0, 1.0), corner(1.0, 1.0)];
            for (middle, size) in layout.boxes.iter().zip(boxes) {
                assert!(!corners.iter().any(|corner| inside(*corner, *middle, *size)), "a label lies over a box");
            }
        }
    }

    fn links(pairs: &[(usize, usize)], label: Option<Size>) -> Vec<Link> {
        pairs.iter().map(|(from, to)| Link { from: *from, to: *to, label }).collect()
    }

    /// What the old drawing did: an edge over two rows ran through the box between them.
    #[test]
    fn a_long_edge_goes_around_the_box_between() {
        check(&[BOX; 3], &links(&[(0, 1), (1, 2), (0, 2)], None));
        check(&[BOX; 4], &links(&[(0, 1), (1, 2), (2, 3), (3, 0), (0, 3)], Some(Size { width: 60.0, height: 28.0 })));
    }

    #[test]
    fn a_chain_is_straight() {
        let layout = lay(&[BOX; 5], &links(&[(0, 1), (1, 2), (2, 3), (3, 4)], None));
        assert!(layout.boxes.windows(2).all(|pair| (pair[0].x - pair[1].x).abs() < 0.01 && pair[0].y < pair[1].y));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn no_edge_crosses_a_box(
            sizes in proptest::collection::vec((40.0..200.0_f64, 20.0..70.0_f64), 1..20),
            pairs in proptest::collection::btree_set((0..20_usize, 0..20_usize), 0..40),
            label in proptest::option::of((20.0..150.0_f64, 13.0..60.0_f64)),
        ) {
            let boxes: Vec<Size> = sizes.into_iter().map(|(width, height)| Size { width, height }).collect();
            let pairs: Vec<(usize, usize)> =
                pairs.into_iter().filter(|(from, to)| *from < boxes.len() && *to < boxes.len()).collect();
            check(&boxes, &links(&pairs, label.map(|(width, height)| Size { width, height })));
        }
    }
}
