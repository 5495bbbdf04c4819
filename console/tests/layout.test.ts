import { expect, test } from "vitest";
import { type Item, layout, NODE, path } from "@/graph/layout";

/** A graph with several lanes, fan-out and fan-in: always the same for the same size. */
function graph(size: number, lanes = 4): Item[] {
  return Array.from({ length: size }, (_, at) => ({
    id: `s${at}`,
    lane: `lane ${(at * 7) % lanes}`,
    dependsOn:
      at === 0
        ? []
        : [`s${Math.floor((at * 3) / 4)}`, ...(at % 5 === 0 ? [`s${Math.floor(at / 2)}`] : [])].filter(
            (id, index, all) => id !== `s${at}` && all.indexOf(id) === index,
          ),
  }));
}

function chain(size: number): Item[] {
  return Array.from({ length: size }, (_, at) => ({
    id: `s${at}`,
    lane: "all",
    dependsOn: at > 0 ? [`s${at - 1}`] : [],
  }));
}

test.each([2, 10, 100, 500])("no two of %i steps overlap", (size) => {
  for (const items of [graph(size), graph(size, 1), chain(size)]) {
    const { nodes } = layout(items);
    const overlaps = nodes.flatMap((a, at) =>
      nodes
        .slice(at + 1)
        .filter((b) => Math.abs(a.x - b.x) < NODE.width && Math.abs(a.y - b.y) < NODE.height),
    );
    expect(nodes).toHaveLength(size);
    expect(overlaps).toEqual([]);
  }
});

test("a step is right of what it follows, unless the chain was folded", () => {
  const items = graph(200);
  const { nodes } = layout(items);
  const x = new Map(nodes.map((node) => [node.id, node.x]));
  for (const item of items)
    for (const id of item.dependsOn) expect(x.get(item.id)).toBeGreaterThan(x.get(id) ?? 0);
});

test("a long chain is folded into rows and every edge is kept", () => {
  const { width, height, routes } = layout(chain(500));
  expect(width).toBeLessThan(12 * 280);
  expect(height).toBeLessThan(42 * 120);
  expect(routes).toHaveLength(499);
});

test("steps are within the band of their lane", () => {
  const items = graph(120);
  const { nodes, bands } = layout(items);
  nodes.forEach((node, at) => {
    const band = bands.find((band) => band.lane === items[at]?.lane);
    expect(node.y).toBeGreaterThanOrEqual(band?.y ?? Number.NaN);
    expect(node.y + NODE.height).toBeLessThanOrEqual((band?.y ?? 0) + (band?.height ?? 0));
  });
});

test("the same steps are always placed alike", () => {
  expect(layout(graph(300))).toEqual(layout(graph(300)));
});

test("all that lead to one step share the trunk before it", () => {
  const items: Item[] = [
    ...["a", "b", "c"].map((id) => ({ id, lane: id, dependsOn: [] })),
    { id: "end", lane: "b", dependsOn: ["a", "b", "c"] },
  ];
  const trunks = layout(items)
    .routes.filter((route) => route.points.length > 2)
    .map((route) => route.points.at(-2)?.[0]);
  expect(new Set(trunks).size).toBe(1);
});

test("a path has round corners and ends where it should", () => {
  const drawn = path([
    [0, 0],
    [50, 0],
    [50, 40],
    [100, 40],
  ]);
  expect(drawn.startsWith("M0,0")).toBe(true);
  expect(drawn.endsWith("L100,40")).toBe(true);
  expect(drawn.match(/Q/g)).toHaveLength(2);
});

test("500 steps and 700 edges are laid out in less than 50 ms of processor", () => {
  const items: Item[] = graph(500, 1).map((item, at) => ({
    ...item,
    dependsOn: [
      ...new Set([...item.dependsOn, ...(at > 2 && at % 2 === 0 ? [`s${Math.floor(at / 3)}`] : [])]),
    ],
  }));
  expect(items.flatMap((item) => item.dependsOn).length).toBeGreaterThanOrEqual(700);
  // The least of a few rounds: the first ones compile it, and other threads of the process count, too.
  const spent = Array.from({ length: 10 }, () => {
    const before = process.cpuUsage();
    layout(items);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1000;
  });
  expect(Math.min(...spent)).toBeLessThan(50);
});

test.each([20, 120, 500])("no edge between %i steps runs through a card", (size) => {
  for (const items of [graph(size), graph(size, 1), chain(size)]) {
    const { nodes, routes } = layout(items);
    const through = routes.flatMap(({ from, to, points }) =>
      points.slice(1).flatMap((end, at) => {
        const start = points[at] as [number, number];
        const [left, right] = [Math.min(start[0], end[0]), Math.max(start[0], end[0])];
        const [top, bottom] = [Math.min(start[1], end[1]), Math.max(start[1], end[1])];
        return nodes
          .filter(({ id }) => id !== from && id !== to)
          .filter(({ x, y }) => left < x + NODE.width && right > x && top < y + NODE.height && bottom > y)
          .map(({ id }) => `${from}>${to} through ${id}`);
      }),
    );
    expect(through).toEqual([]);
  }
});
