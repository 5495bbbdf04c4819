// The colour of a run and why it has it, in a sentence.
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { api, body } from "@/api/client";
import type { SchemaRunCells, SchemaRunView } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Person } from "@/ui/person";
import { StateChip } from "@/ui/state";
import { Moment } from "@/ui/text";
import { plain, useTexts } from "@/ui/texts";
import { isOpen } from "../gate/decide";
import { useRunLook } from "./looks";

export function stepQuery(runId: string, step: string, sequence: number) {
  return {
    queryKey: ["runs", runId, "steps", step, sequence],
    queryFn: () =>
      body(api.GET("/v1/runs/{run_id}/steps/{step}", { params: { path: { run_id: runId, step } } })),
  };
}

export function Reason({
  run,
  cells,
  onStep,
}: {
  run: SchemaRunView;
  cells: SchemaRunCells;
  onStep: (name: string) => void;
}) {
  const { t } = useTranslation();
  const says = useTexts();
  const shown = useRunLook()(cells.state, cells.rollup.state_code);
  const decisive = cells.rollup.decisive_step ?? undefined;
  const step = useQuery({
    ...stepQuery(run.run_id, decisive ?? "", cells.sequence),
    enabled: decisive !== undefined,
    placeholderData: (before) => before,
  }).data;
  const ended = run.ended_at != null;
  const gate = step?.gates.find(isOpen);
  const parts: ReactNode[] = step
    ? [
        gate && <Sentence key="gate" text={t("reason.gate")} who={gate.approver_ref} />,
        step.block_reason && says(`vocab.block_reason.${step.block_reason}`),
        step.waiting_facet && !gate && says(`facet.${step.waiting_facet}.label`),
        step.attempts > 1 && t("reason.attempt", { at: step.attempts, of: step.max_attempts }),
        step.next_run_at && step.attempts > 0 && (
          <span key="next">
            {t("reason.next")} <Moment at={step.next_run_at} />
          </span>
        ),
        step.pic && <Sentence key="pic" text={t("reason.pic")} who={step.pic} />,
        step.deadline && (
          <span key="deadline">
            {t("inbox.due")} <Moment at={step.deadline} />
          </span>
        ),
      ]
    : [];
  const facts = parts.filter(Boolean);
  const error = step?.last_error ?? run.last_error;
  return (
    <div className="flex flex-col gap-2">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <StateChip token={shown.token} icon={shown.icon} words={shown.label} />
        {decisive && step && (
          <p>
            <button
              type="button"
              onClick={() => onStep(decisive)}
              className="font-medium underline decoration-field-line underline-offset-4 hover:decoration-current"
            >
              {decisive}
            </button>{" "}
            <span className="text-soft">
              {says(`state.${step.derived_state ?? step.state_code}.label`).toLowerCase()}
              {facts.map((fact, at) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: the facts have a fixed order
                <span key={at}>, {fact}</span>
              ))}
            </span>
          </p>
        )}
        {run.outcome && !ended && <span className="text-soft">{plain(run.outcome)}</span>}
      </div>
      {error && (
        <p className="prose border-l-[3px] border-bad bg-bad-wash px-3 py-1.5 text-sm [overflow-wrap:anywhere]">
          {error}
        </p>
      )}
      {run.reason && <p className="font-serif">“{run.reason}”</p>}
    </div>
  );
}

/** A text that ends with a person. */
function Sentence({ text, who }: { text: string; who: string }) {
  return (
    <>
      {text} <Person who={who} />
    </>
  );
}
