// A process with its whole history: the server gives at most 500 moves at a time.
import { api, body } from "@/api/client";
import type { SchemaWorkflowView } from "@/api/schema";

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
