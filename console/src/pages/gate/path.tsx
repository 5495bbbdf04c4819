// The way so far, and where an approval leads: the states of a process, or the finished steps of a run.
import { ArrowRight, Stamp } from "lucide-react";
import type { SchemaRunView, SchemaWorkflowView } from "@/api/schema";
import { useTranslation } from "@/app/i18n";

/** So many of the last places are shown. */
const SHOWN = 8;

export function PathOfProcess({ process, action }: { process: SchemaWorkflowView; action?: string }) {
  const visited = [
    process.declaration.initial_state,
    ...(process.transition_history ?? []).map((entry) => entry.to_state),
  ];
  const next = process.declaration.transitions?.find(
    (transition) => transition.from === process.current_state && transition.action === action,
  );
  return <PathSoFar places={visited} next={next?.to} here />;
}

/** `step`: the one that the gate is before. */
export function PathOfRun({ run, step }: { run: SchemaRunView; step?: string }) {
  const { t } = useTranslation();
  const ended = run.steps.flatMap((one) => (one.completed_at ? [{ ...one, at: one.completed_at }] : []));
  const names = ended.sort((a, b) => a.at.localeCompare(b.at)).map((one) => one.name);
  if (names.length === 0 && !step) return <p className="text-soft">{t("gate.pathNone")}</p>;
  return <PathSoFar places={names} next={step} />;
}

function PathSoFar({
  places,
  next,
  here = false,
}: {
  places: (string | undefined)[];
  next?: string;
  /** It is at the last place now. */
  here?: boolean;
}) {
  const { t } = useTranslation();
  const earlier = Math.max(0, places.length - SHOWN);
  return (
    <ol className="flex flex-wrap items-center gap-2 text-sm">
      {earlier > 0 && <li className="text-soft">{t("gate.pathEarlier", { count: earlier })}</li>}
      {places.slice(earlier).map((place, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a state may be visited twice; its place says which visit it is
        <li key={`${at}:${place}`} className="flex items-center gap-2">
          {at + earlier > 0 && <ArrowRight aria-hidden size={14} className="text-soft" />}
          <span
            className={
              here && at + earlier === places.length - 1
                ? "rounded-md border border-ink px-2 py-0.5 font-medium"
                : "text-soft"
            }
          >
            {place}
          </span>
        </li>
      ))}
      {next && (
        <li className="flex items-center gap-2">
          <Stamp aria-hidden size={15} className="text-accent" />
          <span className="rounded-md border border-dashed border-accent px-2 py-0.5 text-accent">
            {next}
          </span>
        </li>
      )}
    </ol>
  );
}
