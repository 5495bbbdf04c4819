// Sub-workflows that are expanded in place: the steps that each of them adds to the graph, by the id of the step that runs it.
import { useCallback, useMemo, useState } from "react";
import type { SchemaGraph } from "@/api/schema";
import { type Step, withSubs } from "@/graph/model";
import { stepsOf } from "./graph-data";

/** Between the names of steps, on the way to a step of a sub-workflow. */
export const INTO = " › ";

/** Takes the steps of the sub-workflow behind the step `path`, or takes them away. */
export type Give = (path: string, own?: Step[]) => void;

/** The steps with all that was given. */
export function useExpanded(steps: Step[]): { steps: Step[]; give: Give } {
  const [subs, setSubs] = useState<ReadonlyMap<string, Step[]>>(new Map());
  const give = useCallback((path: string, own?: Step[]) => {
    setSubs((before) => {
      const after = new Map(before);
      if (own) after.set(path, own);
      else after.delete(path);
      return after;
    });
  }, []);
  const all = useMemo(() => (subs.size === 0 ? steps : withSubs(steps, subs)), [steps, subs]);
  return { steps: all, give };
}

/** The steps of a sub-workflow, as they are called in the graph of what runs it: `way` leads to the step `path`. */
export function within(graph: SchemaGraph | undefined, path: string, way: string, inRun?: string): Step[] {
  const prefix = `${path}/`;
  return stepsOf(graph).map((step) => ({
    ...step,
    id: `${prefix}${step.id}`,
    dependsOn: step.dependsOn.map((id) => `${prefix}${id}`),
    key: `${way}${INTO}${step.name}`,
    inRun,
  }));
}

/** What the address says of expanded sub-workflows, with this one shown or hidden. */
export function toggled(expanded: ReadonlySet<string>, path: string): string | undefined {
  const next = new Set(expanded);
  if (!next.delete(path)) next.add(path);
  return [...next].join(",") || undefined;
}
