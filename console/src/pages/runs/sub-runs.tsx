// Sub-workflows that are expanded in place: their steps and live states come into the graph of the run that started them.
import { type ReactNode, useCallback, useEffect, useMemo, useState } from "react";
import type { SchemaRunCells, SchemaRunSummary } from "@/api/schema";
import type { Cells } from "@/graph/cells";
import { type Step, withSubs } from "@/graph/model";
import { stepsOf, useGraph } from "./graph-data";
import { useRunCells } from "./use-cells";

/** A run as its sub-workflows are found in it. */
interface Holder {
  /** What the ids of its steps begin with, and the way to it in words. */
  prefix: string;
  way: string;
  data?: SchemaRunCells;
  children?: SchemaRunSummary[];
}

/** Between the names of steps, from the run to a step of a sub-workflow. */
export const INTO = " › ";

/** The steps of a run with those of what is expanded, and what keeps them up to date: it has to be rendered. */
export function useSubRuns(
  steps: Step[],
  holder: Pick<Holder, "data" | "children">,
  expanded: ReadonlySet<string>,
  cells: Cells,
): { steps: Step[]; feeds: ReactNode } {
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
  const feeds = (
    <Feeds
      holder={{ ...holder, prefix: "", way: "" }}
      names={namesOf(steps)}
      {...{ expanded, cells, give }}
    />
  );
  return { steps: all, feeds };
}

const namesOf = (steps: Step[]) => new Map(steps.map((step) => [step.id, step.key ?? step.name]));

interface Shared {
  expanded: ReadonlySet<string>;
  cells: Cells;
  give: (path: string, own?: Step[]) => void;
}

/** One for each expanded sub-workflow of this run. */
function Feeds({
  holder,
  names,
  ...shared
}: Shared & { holder: Holder; names: ReadonlyMap<string, string> }) {
  return holder.data?.cells.map((cell) => {
    const path = `${holder.prefix}${cell.step_seq}`;
    const run = holder.children?.find((child) => child.run_id === cell.child_run_id);
    if (!run || !shared.expanded.has(path)) return null;
    return <Feed key={run.run_id} path={path} run={run} way={names.get(path) ?? path} {...shared} />;
  });
}

function Feed({ path, run, way, ...shared }: Shared & { path: string; run: SchemaRunSummary; way: string }) {
  const { cells, give } = shared;
  const prefix = `${path}/`;
  const graph = useGraph(run.definition).data;
  const into = useMemo(() => ({ cells, prefix }), [cells, prefix]);
  const { query, children } = useRunCells(run.run_id, into);
  const own = useMemo(
    () =>
      stepsOf(graph).map((step) => ({
        ...step,
        id: `${prefix}${step.id}`,
        dependsOn: step.dependsOn.map((id) => `${prefix}${id}`),
        key: `${way}${INTO}${step.name}`,
        inRun: run.run_id,
      })),
    [graph, prefix, way, run.run_id],
  );
  useEffect(() => {
    if (own.length > 0) give(path, own);
    return () => give(path);
  }, [give, path, own]);
  return <Feeds holder={{ prefix, way, data: query.data, children }} names={namesOf(own)} {...shared} />;
}
