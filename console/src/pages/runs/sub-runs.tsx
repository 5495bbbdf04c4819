// Sub-workflows that are expanded in place: their steps and live states come into the graph of the run that started them.
import { type ReactNode, useEffect, useMemo } from "react";
import type { SchemaRunCells, SchemaRunSummary } from "@/api/schema";
import type { Cells } from "@/graph/cells";
import type { Step } from "@/graph/model";
import { Failure } from "@/ui/feedback";
import { type Give, useExpanded, within } from "./expanded";
import { useGraph } from "./graph-data";
import { useRunCells } from "./use-cells";

/** A run as its sub-workflows are found in it. */
interface Holder {
  /** What the ids of its steps begin with, and the way to it in words. */
  prefix: string;
  way: string;
  data?: SchemaRunCells;
  children?: SchemaRunSummary[];
}

/** The steps of a run with those of what is expanded, and what keeps them up to date: it has to be rendered. */
export function useSubRuns(
  own: Step[],
  holder: Pick<Holder, "data" | "children">,
  expanded: ReadonlySet<string>,
  cells: Cells,
): { steps: Step[]; feeds: ReactNode } {
  const { steps, give } = useExpanded(own);
  const feeds = (
    <Feeds holder={{ ...holder, prefix: "", way: "" }} names={namesOf(own)} {...{ expanded, cells, give }} />
  );
  return { steps, feeds };
}

const namesOf = (steps: Step[]) => new Map(steps.map((step) => [step.id, step.key ?? step.name]));

interface Shared {
  expanded: ReadonlySet<string>;
  cells: Cells;
  give: Give;
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
  const { data: graph, error } = useGraph(run.definition);
  const into = useMemo(() => ({ cells, prefix }), [cells, prefix]);
  const { query, children } = useRunCells(run.run_id, into);
  const own = useMemo(() => within(graph, path, way, run.run_id), [graph, path, way, run.run_id]);
  useEffect(() => {
    if (own.length > 0) give(path, own);
    return () => give(path);
  }, [give, path, own]);
  const failed = error ?? query.error;
  if (failed) return <Failure error={failed} />;
  return <Feeds holder={{ prefix, way, data: query.data, children }} names={namesOf(own)} {...shared} />;
}
