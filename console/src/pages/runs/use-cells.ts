// A run's live states: all of them once, then only what changed since.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import { api, body } from "@/api/client";
import type { SchemaRunCells } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { Cells } from "@/graph/cells";
import type { Cell } from "@/graph/model";
import { useTexts } from "@/ui/texts";

const DONE = new Set(["completed", "skipped", "cannot_complete"]);

export function useRunCells(runId: string) {
  // biome-ignore lint/correctness/useExhaustiveDependencies: a store for each run
  const cells = useMemo(() => new Cells(), [runId]);
  const client = useQueryClient();
  const says = useTexts();
  const known = useRef<SchemaRunCells>(undefined);
  const key = ["runs", runId, "cells"];

  const query = useQuery({
    queryKey: key,
    queryFn: async () => {
      const since = known.current?.sequence;
      const answer = await body(
        api.GET("/v1/runs/{run_id}/cells", {
          params: { path: { run_id: runId }, query: since === undefined ? {} : { since: String(since) } },
        }),
      );
      known.current = merged(known.current, answer);
      return known.current;
    },
  });
  useTopic(`run:${runId}`, () => void client.invalidateQueries({ queryKey: key }));

  const data = query.data;
  useEffect(() => {
    if (!data) return;
    cells.patch(data.cells.map((cell): [string, Cell] => [String(cell.step_seq), toCell(cell, says)]));
  }, [cells, data, says]);
  return { query, cells };
}

/** What is known, with what changed. */
export function merged(before: SchemaRunCells | undefined, answer: SchemaRunCells): SchemaRunCells {
  if (answer.full || !before) return answer;
  const changed = new Map(answer.cells.map((cell) => [cell.step_seq, cell]));
  const kept = before.cells.map((cell) => {
    const newer = changed.get(cell.step_seq);
    changed.delete(cell.step_seq);
    return newer ?? cell;
  });
  return { ...answer, full: true, cells: [...kept, ...changed.values()] };
}

function toCell(cell: SchemaRunCells["cells"][number], says: ReturnType<typeof useTexts>): Cell {
  const attempts = cell.attempts > 1 ? `${cell.attempts}/${cell.max_attempts}` : undefined;
  return {
    state: cell.derived_state ?? cell.state_code,
    token: cell.color_token,
    label: says(cell.label_key, cell.args),
    fact: [attempts, cell.pic].filter(Boolean).join(" · ") || undefined,
    done: DONE.has(cell.state_code),
    downstreamOfBlocker: cell.downstream_of_blocker,
  };
}
