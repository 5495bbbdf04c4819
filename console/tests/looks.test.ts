// @vitest-environment jsdom
import { expect, test } from "vitest";
import type { SchemaTokenDef } from "@/api/schema";
import { drawn, type Step } from "@/graph/model";
import { compared } from "@/pages/definitions/diff";
import { scale } from "@/pages/runs/time-scale";
import { coloursOf, contrast } from "@/ui/colour";

const token = (fg: string, bg: string, high: [string, string]): SchemaTokenDef => ({
  token: `${fg}${bg}`,
  fg,
  bg,
  contrast_ratio: 5,
  high_contrast: { fg: high[0], bg: high[1], contrast_ratio: 8 },
  shape_token: "circle_hollow",
});

test("colours of states keep their contrast in every theme", () => {
  const tokens = [
    token("#4B5563", "#F3F4F6", ["#FFFFFF", "#1F2937"]),
    token("#FFFFFF", "#047857", ["#FFFFFF", "#022C22"]),
    token("#92400E", "#FEF3C7", ["#000000", "#FDE047"]),
    token("#FFFFFF", "#991B1B", ["#FFFFFF", "#450A0A"]),
  ];
  for (const [theme, page] of [
    ["light", "#ffffff"],
    ["dark", "#14181d"],
    ["contrast", "#000000"],
  ] as const)
    for (const one of tokens) {
      const { fg, bg, line } = coloursOf(one, theme);
      expect(contrast(fg, bg), `${one.token} text, ${theme}`).toBeGreaterThanOrEqual(4.5);
      expect(contrast(line, page), `${one.token} mark, ${theme}`).toBeGreaterThanOrEqual(3);
    }
});

test("idle time is compressed, work keeps its proportions", () => {
  const { place, gaps } = scale([
    { from: 0, to: 100 },
    { from: 100_000, to: 100_300 },
  ]);
  expect(gaps).toHaveLength(1);
  expect(place(0)).toBe(0);
  expect(place(100_300)).toBeCloseTo(1);
  const [first, second] = [place(100) - place(0), place(100_300) - place(100_000)];
  expect(second / first).toBeCloseTo(3);
  expect(gaps[0]?.width).toBeLessThan(0.1);
});

const step = (id: string, name: string, dependsOn: string[] = [], more: Partial<Step> = {}): Step => ({
  id,
  name,
  run: "worker",
  dependsOn,
  ...more,
});

test("two versions are one graph: what is new, what changed, and what is gone", () => {
  const steps = compared(
    [step("0", "a"), step("1", "b", ["0"]), step("2", "c", ["1"])],
    [step("0", "a"), step("1", "c", ["0"]), step("2", "d", ["1"])],
    {
      added: ["d"],
      removed: ["b"],
      changed: [{ path: "steps.c.queue", from: "x", to: "y" }],
      edges: { added: [], removed: [] },
    },
  );
  expect(steps.map(({ name, mark }) => [name, mark])).toEqual([
    ["a", undefined],
    ["c", "changed"],
    ["d", "added"],
    ["b", "removed"],
  ]);
  expect(steps.at(-1)?.dependsOn).toEqual(["0"]);
});

test("a collapsed group is one chip, and a fork says how it goes on", () => {
  const steps = [
    step("0", "begin"),
    step("1", "one", ["0"], { category: "test" }),
    step("2", "two", ["0"], { category: "test", when: "x" }),
    step("3", "end", ["1", "2"]),
  ];
  expect(drawn(steps, new Set(), "none").drawn[0]).toMatchObject({ id: "0", fork: "AND/OR" });
  const { drawn: shown, items } = drawn(steps, new Set(["test"]), "category");
  expect(shown.map((one) => one.id)).toEqual(["0", "group:test", "3"]);
  expect(items.find((item) => item.id === "3")?.dependsOn).toEqual(["group:test"]);
});

test.each([
  [[undefined, undefined], "AND"],
  [["x", undefined], "AND/OR"],
  [["x", "y"], "OR"],
] as const)("a fork to steps with conditions %j is %s", (conditions, fork) => {
  const steps = [
    step("0", "begin"),
    ...conditions.map((when, at) => step(String(at + 1), `to ${at}`, ["0"], { when })),
  ];
  expect(drawn(steps, new Set(), "parallel").drawn[0]).toMatchObject({ fork });
});

test("branches that run at the same time have a band each, and later ones use the bands again", () => {
  const steps = [
    step("0", "begin"),
    step("1", "left", ["0"]),
    step("2", "right", ["0"]),
    step("3", "right, longer", ["2"]),
    step("4", "join", ["1", "3"]),
    step("5", "again left", ["4"]),
    step("6", "again right", ["4"]),
  ];
  const { items } = drawn(steps, new Set(), "parallel");
  expect(items.map((item) => item.lane)).toEqual(["0", "0", "1", "1", "0", "0", "1"]);
});

test("a band is not shared by branches that overlap", () => {
  const many = [
    step("0", "begin"),
    ...Array.from({ length: 20 }, (_, at) => step(`${at + 1}`, `b${at}`, ["0"])),
  ];
  const { items } = drawn(many, new Set(), "parallel");
  expect(new Set(items.slice(1).map((item) => item.lane)).size).toBe(20);
});
