// Sub-workflows that are expanded in place: the steps of the version that a step runs come into the graph of the definition.
import { type ReactNode, useEffect, useMemo } from "react";
import type { Step } from "@/graph/model";
import { Failure } from "@/ui/feedback";
import { type Give, useExpanded, within } from "../runs/expanded";
import { useGraph } from "../runs/graph-data";

/** The steps of a definition with those of what is expanded, and what reads them: it has to be rendered. */
export function useSubDefinitions(
  own: Step[],
  expanded: ReadonlySet<string>,
): { steps: Step[]; feeds: ReactNode } {
  const { steps, give } = useExpanded(own);
  return { steps, feeds: <Feeds steps={own} expanded={expanded} give={give} /> };
}

interface Shared {
  expanded: ReadonlySet<string>;
  give: Give;
}

/** One for each of these steps that is expanded. */
function Feeds({ steps, ...shared }: Shared & { steps: Step[] }) {
  return steps.map((step) =>
    step.workflow && shared.expanded.has(step.id) ? (
      <Feed key={step.id} path={step.id} way={step.key ?? step.name} definition={step.workflow} {...shared} />
    ) : null,
  );
}

function Feed({
  path,
  way,
  definition,
  ...shared
}: Shared & { path: string; way: string; definition: string }) {
  const { give } = shared;
  const { data: graph, error } = useGraph(definition);
  const own = useMemo(() => within(graph, path, way), [graph, path, way]);
  useEffect(() => {
    if (own.length > 0) give(path, own);
    return () => give(path);
  }, [give, path, own]);
  if (error) return <Failure error={error} />;
  return <Feeds steps={own} {...shared} />;
}
