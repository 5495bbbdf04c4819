// Where each step goes: columns by rank (the longest way from the beginning), horizontal bands by lane. Pure and deterministic;
// it runs in a worker. A chain longer than a screen is folded into rows, so that 500 steps are a page and not a ribbon.

export const NODE = { width: 200, height: 56 } as const;
const GAP = { column: 80, row: 20, lane: 42, fold: 56 } as const;
/** Columns in a row of a folded chain. */
const FOLD = 12;

export interface Item {
  id: string;
  dependsOn: string[];
  lane: string;
}

export interface Placed {
  id: string;
  x: number;
  y: number;
}

export interface Route {
  from: string;
  to: string;
  points: [number, number][];
}

export interface Band {
  lane: string;
  y: number;
  height: number;
}

export interface Layout {
  nodes: Placed[];
  routes: Route[];
  bands: Band[];
  width: number;
  height: number;
}

/** The longest way from a beginning to each item. What is part of a circle stays at the rank that it had when it was met. */
export function ranks(items: Item[], byId: Map<string, number>): number[] {
  const rank = new Array<number>(items.length).fill(0);
  const open = items.map((item) => item.dependsOn.filter((id) => byId.has(id)).length);
  const followers: number[][] = items.map(() => []);
  items.forEach((item, at) => {
    for (const id of item.dependsOn) {
      const from = byId.get(id);
      if (from !== undefined) followers[from]?.push(at);
    }
  });
  const ready = items.flatMap((_, at) => (open[at] === 0 ? [at] : []));
  for (let next = 0; next < ready.length; next++) {
    const at = ready[next] as number;
    for (const follower of followers[at] ?? []) {
      rank[follower] = Math.max(rank[follower] ?? 0, (rank[at] ?? 0) + 1);
      open[follower] = (open[follower] ?? 0) - 1;
      if (open[follower] === 0) ready.push(follower);
    }
  }
  return rank;
}

/** Orders each column by the mean place of what its items follow, so that edges cross less. */
function ordered(items: Item[], rank: number[], byId: Map<string, number>): number[][] {
  const columns: number[][] = [];
  items.forEach((_, at) => {
    const column = rank[at] ?? 0;
    columns[column] ??= [];
    columns[column].push(at);
  });
  const place = new Array<number>(items.length).fill(0);
  for (const column of columns) {
    const weight = new Map<number, number>();
    for (const at of column) {
      const before = (items[at]?.dependsOn ?? []).flatMap((id) => byId.get(id) ?? []);
      const sum = before.reduce((total, from) => total + (place[from] ?? 0), 0);
      weight.set(at, before.length > 0 ? sum / before.length : at);
    }
    column.sort((a, b) => (weight.get(a) ?? 0) - (weight.get(b) ?? 0) || a - b);
    column.forEach((at, index) => {
      place[at] = index;
    });
  }
  return columns;
}

export function layout(items: Item[]): Layout {
  const byId = new Map(items.map((item, at) => [item.id, at]));
  const rank = ranks(items, byId);
  const columns = ordered(items, rank, byId);
  const lanes = [...new Set(items.map((item) => item.lane))];
  const tallest = columns.reduce((most, column) => Math.max(most, column.length), 0);
  const fold = lanes.length <= 2 && tallest <= 2 && columns.length > FOLD * 2 ? FOLD : columns.length;

  // How many items a lane has side by side, at most: its height.
  const depth = new Map(lanes.map((lane) => [lane, 1]));
  for (const column of columns) {
    const count = new Map<string, number>();
    for (const at of column) {
      const lane = items[at]?.lane ?? "";
      count.set(lane, (count.get(lane) ?? 0) + 1);
    }
    for (const [lane, many] of count) depth.set(lane, Math.max(depth.get(lane) ?? 1, many));
  }
  const bands: Band[] = [];
  let top = 0;
  for (const lane of lanes) {
    const height = (depth.get(lane) ?? 1) * (NODE.height + GAP.row) - GAP.row;
    bands.push({ lane, y: top, height });
    top += height + GAP.lane;
  }
  const rowHeight = top - GAP.lane + GAP.fold;

  const nodes: Placed[] = new Array(items.length);
  columns.forEach((column, index) => {
    const used = new Map<string, number>();
    const x = (index % fold) * (NODE.width + GAP.column);
    const row = Math.floor(index / fold);
    for (const at of column) {
      const item = items[at] as Item;
      const slot = used.get(item.lane) ?? 0;
      used.set(item.lane, slot + 1);
      const band = bands.find((band) => band.lane === item.lane);
      nodes[at] = { id: item.id, x, y: row * rowHeight + (band?.y ?? 0) + slot * (NODE.height + GAP.row) };
    }
  });

  const rows = Math.max(1, Math.ceil(columns.length / fold));
  return {
    nodes,
    routes: routes(items, nodes, byId),
    // A folded chain has its bands in every row.
    bands: Array.from({ length: rows }, (_, row) =>
      bands.map((band) => ({ ...band, y: band.y + row * rowHeight })),
    ).flat(),
    width: Math.min(fold, columns.length) * (NODE.width + GAP.column) - GAP.column,
    height: rows * rowHeight - GAP.fold,
  };
}

/** Where cards are: what lies between two of them in a row. */
function cardsBetween(nodes: Placed[]): (from: Placed, to: Placed) => boolean {
  const taken = new Set(nodes.map((node) => `${node.x}:${node.y}`));
  const column = NODE.width + GAP.column;
  return (from, to) => {
    for (let x = from.x + column; x < to.x; x += column) if (taken.has(`${x}:${from.y}`)) return true;
    return false;
  };
}

/**
 * Orthogonal ways. All that lead to one step turn at the same place before it: many edges become one trunk. None runs through a
 * card: where one is in the row, the way goes on between the rows.
 */
function routes(items: Item[], nodes: Placed[], byId: Map<string, number>): Route[] {
  const blocked = cardsBetween(nodes);
  return items.flatMap((item, at) => {
    const to = nodes[at] as Placed;
    const target: [number, number] = [to.x, to.y + NODE.height / 2];
    return item.dependsOn.flatMap((id): Route[] => {
      const from = nodes[byId.get(id) ?? -1];
      if (!from) return [];
      const source: [number, number] = [from.x + NODE.width, from.y + NODE.height / 2];
      const trunk = target[0] - GAP.column / 2;
      if (to.x > from.x && blocked(from, to)) {
        const leave = source[0] + GAP.column / 4;
        const between = to.y < from.y ? from.y - GAP.row / 2 : from.y + NODE.height + GAP.row / 2;
        const points: [number, number][] = [
          source,
          [leave, source[1]],
          [leave, between],
          [trunk, between],
          [trunk, target[1]],
          target,
        ];
        return [{ from: id, to: item.id, points }];
      }
      if (to.x > from.x) {
        const points: [number, number][] =
          source[1] === target[1]
            ? [source, target]
            : [source, [trunk, source[1]], [trunk, target[1]], target];
        return [{ from: id, to: item.id, points }];
      }
      // To the next row of a folded chain: out on the right, back between the rows, in from the left.
      const out = source[0] + GAP.column / 2;
      const between = to.y - GAP.fold / 2;
      const points: [number, number][] = [
        source,
        [out, source[1]],
        [out, between],
        [trunk, between],
        [trunk, target[1]],
        target,
      ];
      return [{ from: id, to: item.id, points }];
    });
  });
}

/** The way as an SVG path with rounded corners. */
export function path(points: [number, number][], radius = 8): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let drawn = `M${first[0]},${first[1]}`;
  rest.forEach((corner, at) => {
    const before = points[at] as [number, number];
    const after = rest[at + 1];
    if (!after) {
      drawn += `L${corner[0]},${corner[1]}`;
      return;
    }
    const cut = (other: [number, number]): [number, number] => {
      const [dx, dy] = [other[0] - corner[0], other[1] - corner[1]];
      const length = Math.hypot(dx, dy) || 1;
      const step = Math.min(radius, length / 2) / length;
      return [corner[0] + dx * step, corner[1] + dy * step];
    };
    const [a, b] = [cut(before), cut(after)];
    drawn += `L${a[0]},${a[1]}Q${corner[0]},${corner[1]} ${b[0]},${b[1]}`;
  });
  return drawn;
}
