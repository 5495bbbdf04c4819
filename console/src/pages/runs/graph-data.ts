// The graph of a definition, as it comes from the server and as it is drawn.
import { useQuery } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { SchemaGraph } from "@/api/schema";
import type { Step } from "@/graph/model";

/** The definition's steps, as the graph draws them. */
export function stepsOf(graph: SchemaGraph | undefined): Step[] {
  return (graph?.nodes ?? []).map((node) => ({
    id: String(node.step_seq),
    name: node.name,
    run: node.run,
    dependsOn: node.depends_on.map(String),
    queue: node.queue,
    pic: node.pic ?? undefined,
    category: node.category ?? undefined,
    gate: node.gate ?? undefined,
    approvers: node.approvers,
    when: node.when ?? undefined,
    workflow: node.workflow ?? undefined,
    optional: node.optional,
  }));
}

export function useGraph(definition: string | undefined) {
  const [name = "", version = ""] = definition?.split("@") ?? [];
  return useQuery({
    queryKey: ["graph", definition],
    enabled: definition !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: () =>
      body(
        api.GET("/v1/definitions/{name}/versions/{version}/graph", {
          params: { path: { name, version: Number(version) } },
        }),
      ),
  });
}
