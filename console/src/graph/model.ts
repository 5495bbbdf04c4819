// What is drawn: the steps of a definition, with what is collapsed folded into chips.
import type { Item } from "./layout";

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
  when?: string;
  workflow?: string;
  optional?: boolean;
}

/** What a step looks like now. Colour, icon and words are the server's. */
export interface Cell {
  state: string;
  token: string;
  label: string;
  /** The fact that matters in this state: attempt, facet, person, time left. */
  fact?: string;
  done: boolean;
  downstreamOfBlocker?: boolean;
}

export type LaneBy = "none" | "pic" | "run";

export type Drawn =
  | { kind: "step"; id: string; step: Step }
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
  const all = new Map<string, Drawn>();
  const items = new Map<string, Item>();
  for (const step of steps) {
    const id = shownAs.get(step.id) ?? step.id;
    const before = all.get(id);
    if (before?.kind === "group") before.steps.push(step);
    else if (id === step.id) all.set(id, { kind: "step", id, step });
    else all.set(id, { kind: "group", id, category: step.category ?? "", steps: [step] });
    const item = items.get(id) ?? { id, lane: lane(step, laneBy), dependsOn: [] };
    for (const from of step.dependsOn) {
      const source = shownAs.get(from);
      if (source && source !== id && !item.dependsOn.includes(source)) item.dependsOn.push(source);
    }
    items.set(id, item);
  }
  return { drawn: [...all.values()], items: [...items.values()] };
}

function lane(step: Step, by: LaneBy): string {
  if (by === "pic") return step.pic ?? "";
  if (by === "run") return step.run;
  return "";
}
