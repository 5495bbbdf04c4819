// A process with its whole history: the server gives at most 500 moves at a time.
import { api, body } from "@/api/client";
import type { SchemaWorkflowView } from "@/api/schema";

/** A proposal is a process of the engine's own. It has a page of its own, and nobody published its declaration. */
export const isProposal = (process: Pick<SchemaWorkflowView, "declaration_ref">) =>
  process.declaration_ref.startsWith("countersign:proposal@");

export async function readProcess(id: string): Promise<SchemaWorkflowView> {
  const page = (history_cursor?: string) =>
    body(
      api.GET("/v1/processes/{instance_id}", {
        params: { path: { instance_id: id }, query: { history_cursor } },
      }),
    );
  const whole = await page();
  const moves = [...(whole.transition_history ?? [])];
  let next = whole.history_next;
  while (next) {
    const more = await page(next);
    moves.push(...(more.transition_history ?? []));
    next = more.history_next;
  }
  return { ...whole, transition_history: moves };
}
