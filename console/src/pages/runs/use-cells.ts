// A run's live states: all of them once, then only what changed since.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import { api, body } from "@/api/client";
import type { SchemaRunCells, SchemaRunSummary } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { Cells } from "@/graph/cells";
import type { Cell, Count } from "@/graph/model";
import { type Says, useTexts } from "@/ui/texts";
import { type Look, useRollupLooks, useStateLooks } from "./looks";

/** `into`: the store of the run that this one is a part of, and what its steps' ids begin with there. */
export function useRunCells(runId: string, into?: { cells: Cells; prefix: string }) {
  // biome-ignore lint/correctness/useExhaustiveDependencies: a store for each run
  const own = useMemo(() => new Cells(), [runId]);
  const { cells, prefix } = into ?? { cells: own, prefix: "" };
  const client = useQueryClient();
  const says = useTexts();
  const looks = useStateLooks("step");
  const rollups = useRollupLooks();
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
  // Sub-workflows show their own steps by colour: one question for all of them.
  const hasChildren = data?.cells.some((cell) => cell.child_run_id != null) ?? false;
  const children = useQuery({
    queryKey: ["runs", runId, "children", data?.sequence],
    enabled: hasChildren,
    placeholderData: (before: SchemaRunSummary[] | undefined) => before,
    queryFn: async () =>
      (await body(api.GET("/v1/runs", { params: { query: { parent_run_id: runId, limit: 200 } } }))).items,
  }).data;

  useEffect(() => {
    if (!data) return;
    const counts = new Map(children?.map((run) => [run.run_id, countsOf(run, rollups)]));
    cells.patch(
      data.cells.map((cell): [string, Cell] => [
        `${prefix}${cell.step_seq}`,
        {
          ...toCell(cell, says, looks(cell.state_code)),
          child: cell.child_run_id ?? undefined,
          counts: cell.child_run_id ? counts.get(cell.child_run_id) : undefined,
        },
      ]),
    );
  }, [cells, prefix, data, children, says, looks, rollups]);
  return { query, cells, children };
}

const COLOURS = ["red", "yellow", "green"] as const;

function countsOf(run: SchemaRunSummary, rollups: ReturnType<typeof useRollupLooks>): Count[] {
  return COLOURS.flatMap((colour) => {
    const { token, icon, label } = rollups(colour);
    const count = run.rollup.counts[colour];
    return count > 0 ? [{ token, icon, words: label, count }] : [];
  });
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

function toCell(cell: SchemaRunCells["cells"][number], says: Says, look: Look): Cell {
  return {
    state: cell.derived_state ?? cell.state_code,
    token: cell.color_token,
    icon: cell.icon,
    label: says(cell.label_key, cell.args),
    short: look.short,
    facets: cell.secondary_facets?.map((facet) => says(`facet.${facet}.label`)),
    attempt: cell.attempts > 1 ? `${cell.attempts}/${cell.max_attempts}` : undefined,
    pic: cell.pic ?? undefined,
    deadline: cell.deadline ?? undefined,
    reached: look.reached,
    done: look.done,
    downstreamOfBlocker: cell.downstream_of_blocker,
  };
}
