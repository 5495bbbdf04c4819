// What is drawn: the steps of a definition, with what is collapsed folded into chips.
import { type Item, ranks } from "./layout";

export interface Step {
  id: string;
  name: string;
  /** worker, shell, http, approval, wait, workflow, human. */
  run: string;
  dependsOn: string[];
  queue?: string;
  pic?: string;
  category?: string;
  gate?: string;
  /** Who decides the gate. */
  approvers?: string[];
  when?: string;
  /** The sub-workflow that it runs: `name@version`, or the name alone where no version is known yet. */
  workflow?: string;
  optional?: boolean;
  /** What it is called in the page's address, where that is more than its name: of a step in a sub-workflow, the way to it. */
  key?: string;
  /** The run that it belongs to, where that is a sub-workflow's. */
  inRun?: string;
  /** Of a sub-workflow: its steps are drawn behind it. */
  expanded?: boolean;
  /** Of a comparison of two versions. */
  mark?: "added" | "removed" | "changed";
}

/** How many steps look like this. */
export interface Count {
  token: string;
  icon?: string;
  words: string;
  count: number;
}

/** What a step looks like now. Colour, icon and words are the server's. */
export interface Cell {
  state: string;
  token: string;
  icon: string;
  label: string;
  /** The registry's short message of the state: more than the label says. */
  short?: string;
  /** What else it waits for. */
  facets?: string[];
  /** The attempt, where it is not the first. */
  attempt?: string;
  pic?: string;
  deadline?: string;
  /** The registry's word for what has begun: everything but idle. */
  reached: boolean;
  /** The registry calls the state terminal. */
  done: boolean;
  downstreamOfBlocker?: boolean;
  /** Of a sub-workflow: its run, and its steps by colour. */
  child?: string;
  counts?: Count[];
}

/** `parallel`, the default: each branch of a fork has a band of its own. */
export const LANES = ["parallel", "none", "pic", "run", "category"] as const;
export type LaneBy = (typeof LANES)[number];

/** To all that follow, to those whose condition holds, or to some always and to others if their condition holds. */
export type Fork = "AND" | "OR" | "AND/OR";

export type Drawn =
  | { kind: "step"; id: string; step: Step; fork?: Fork }
  | { kind: "group"; id: string; category: string; steps: Step[] };

const group = (category: string) => `group:${category}`;

/** The steps as they are drawn, and the edges between them. */
export function drawn(
  steps: Step[],
  collapsed: ReadonlySet<string>,
  laneBy: LaneBy,
): { drawn: Drawn[]; items: Item[] } {
  const shownAs = new Map(
    steps.map((step) => [
      step.id,
      step.category && collapsed.has(step.category) ? group(step.category) : step.id,
    ]),
  );
  const forks = forksOf(steps);
  const all = new Map<string, Drawn>();
  const items = new Map<string, Item>();
  for (const step of steps) {
    const id = shownAs.get(step.id) ?? step.id;
    const before = all.get(id);
    if (before?.kind === "group") before.steps.push(step);
    else if (id === step.id) all.set(id, { kind: "step", id, step, fork: forks.get(id) });
    else all.set(id, { kind: "group", id, category: step.category ?? "", steps: [step] });
    const item = items.get(id) ?? { id, lane: lane(step, laneBy), dependsOn: [] };
    for (const from of step.dependsOn) {
      const source = shownAs.get(from);
      if (source && source !== id && !item.dependsOn.includes(source)) item.dependsOn.push(source);
    }
    items.set(id, item);
  }
  const placed = [...items.values()];
  if (laneBy === "parallel") {
    const branch = branches(placed);
    for (const item of placed) item.lane = String(branch.get(item.id) ?? 0);
  }
  return { drawn: [...all.values()], items: placed };
}

/** How a step with several followers goes on. */
function forksOf(steps: Step[]): Map<string, Fork> {
  const followers = new Map<string, { all: number; conditional: number }>();
  for (const step of steps)
    for (const from of step.dependsOn) {
      const sum = followers.get(from) ?? { all: 0, conditional: 0 };
      sum.all += 1;
      if (step.when) sum.conditional += 1;
      followers.set(from, sum);
    }
  return new Map(
    [...followers].flatMap(([id, { all, conditional }]) =>
      all < 2 ? [] : [[id, conditional === 0 ? "AND" : conditional === all ? "OR" : "AND/OR"] as const],
    ),
  );
}

/**
 * The band of each step: the first branch of a fork stays where the fork is, each other one takes the next band that is free,
 * and where branches join, the first of their bands goes on.
 */
function branches(items: Item[]): Map<string, number> {
  const at = new Map(items.map((item, index) => [item.id, index]));
  const rank = ranks(items, at);
  const rankOf = (id: string) => rank[at.get(id) ?? -1] ?? 0;
  const followers = new Map<string, string[]>();
  for (const { id, dependsOn } of items)
    for (const from of dependsOn) followers.set(from, [...(followers.get(from) ?? []), id]);
  /** Up to which rank each band is taken. */
  const taken: number[] = [];
  const band = new Map<string, number>();
  const inOrder = items.toSorted((a, b) => rankOf(a.id) - rankOf(b.id));
  for (const { id, dependsOn } of inOrder) {
    const before = dependsOn.filter((from) => band.has(from));
    const [only] = before;
    const goesOn = before.length > 1 || (only !== undefined && followers.get(only)?.[0] === id);
    const free = taken.findIndex((until) => until < rankOf(id));
    const mine = goesOn
      ? Math.min(...before.map((from) => band.get(from) ?? 0))
      : free < 0
        ? taken.length
        : free;
    band.set(id, mine);
    const last = Math.max(rankOf(id), ...(followers.get(id) ?? []).map((next) => rankOf(next) - 1));
    taken[mine] = Math.max(taken[mine] ?? 0, last);
  }
  return band;
}

function lane(step: Step, by: LaneBy): string {
  if (by === "pic") return step.pic ?? "";
  if (by === "run") return step.run === "worker" && step.queue ? `${step.run} · ${step.queue}` : step.run;
  if (by === "category") return step.category ?? "";
  return "";
}

/** `${input.amount > 10}` without its wrapping. */
export const condition = (when: string) => when.replace(/^\$\{\s*([\s\S]*?)\s*\}$/, "$1");

/** The steps with those of the sub-workflows that are expanded: each behind the step that runs it, before what follows. */
export function withSubs(steps: Step[], subs: ReadonlyMap<string, Step[]>): Step[] {
  const ends = new Map<string, string[]>();
  const all = steps.flatMap((step) => {
    const own = subs.get(step.id);
    if (!own || own.length === 0) return [step];
    const inner = withSubs(own, subs);
    const followed = new Set(inner.flatMap((one) => one.dependsOn));
    ends.set(
      step.id,
      inner.filter((one) => !followed.has(one.id)).map((one) => one.id),
    );
    const behind = inner.map((one) => (one.dependsOn.length === 0 ? { ...one, dependsOn: [step.id] } : one));
    return [{ ...step, expanded: true }, ...behind];
  });
  const heads = new Set(steps.map((step) => step.id));
  return all.map((step) =>
    heads.has(step.id) && step.dependsOn.some((id) => ends.has(id))
      ? { ...step, dependsOn: step.dependsOn.flatMap((id) => ends.get(id) ?? [id]) }
      : step,
  );
}
