// The way that the process has taken, and the step that the gate guards.
import { ArrowRight, Stamp } from "lucide-react";
import type { SchemaWorkflowView } from "@/api/schema";

export function PathSoFar({ process, action }: { process: SchemaWorkflowView; action?: string }) {
  const visited = [
    process.declaration.initial_state,
    ...(process.transition_history ?? []).map((entry) => entry.to_state),
  ];
  const next = process.declaration.transitions?.find(
    (transition) => transition.from === process.current_state && transition.action === action,
  );
  return (
    <ol className="flex flex-wrap items-center gap-2 text-sm">
      {visited.map((state, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a state may be visited twice; its place says which visit it is
        <li key={`${at}:${state}`} className="flex items-center gap-2">
          {at > 0 && <ArrowRight aria-hidden size={14} className="text-soft" />}
          <span
            className={
              at === visited.length - 1 ? "rounded-md border border-ink px-2 py-0.5 font-medium" : "text-soft"
            }
          >
            {state}
          </span>
        </li>
      ))}
      {next && (
        <li className="flex items-center gap-2">
          <Stamp aria-hidden size={15} className="text-accent" />
          <span className="rounded-md border border-dashed border-accent px-2 py-0.5 text-accent">
            {next.to}
          </span>
        </li>
      )}
    </ol>
  );
}
