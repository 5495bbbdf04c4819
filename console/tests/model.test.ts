import { expect, test } from "vitest";
import { type Step, withSubs } from "@/graph/model";

const step = (id: string, ...dependsOn: string[]): Step => ({ id, name: id, run: "worker", dependsOn });
const edges = (steps: Step[]) =>
  steps.flatMap(({ id, dependsOn }) => dependsOn.map((from) => `${from}>${id}`));

test("the steps of a sub-workflow come behind it and before what follows", () => {
  const steps = [step("0"), step("1", "0"), step("2", "1"), step("3", "0")];
  const own = [step("1/0"), step("1/1", "1/0"), step("1/2", "1/0")];
  const all = withSubs(steps, new Map([["1", own]]));
  expect(edges(all).sort()).toEqual(["0>1", "0>3", "1/0>1/1", "1/0>1/2", "1/1>2", "1/2>2", "1>1/0"]);
  expect(all.map((one) => one.id)).toEqual(["0", "1", "1/0", "1/1", "1/2", "2", "3"]);
  expect(all.find((one) => one.id === "1")?.expanded).toBe(true);
});

test("a sub-workflow within a sub-workflow ends where its innermost steps end", () => {
  const subs = new Map([
    ["0", [step("0/0"), step("0/1", "0/0")]],
    ["0/1", [step("0/1/0")]],
  ]);
  const all = withSubs([step("0"), step("1", "0")], subs);
  expect(edges(all)).toEqual(["0>0/0", "0/0>0/1", "0/1>0/1/0", "0/1/0>1"]);
});

test("what is not expanded, or has no steps yet, stays as it is", () => {
  const steps = [step("0"), step("1", "0")];
  expect(withSubs(steps, new Map())).toEqual(steps);
  expect(withSubs(steps, new Map([["0", []]]))).toEqual(steps);
});
