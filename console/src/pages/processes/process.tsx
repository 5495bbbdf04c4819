// One process: where is it, how did it get here, what next?
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { ScrollText, Stamp } from "lucide-react";
import { useState } from "react";
import type { SchemaGate, SchemaWorkflowView } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { Failure, Skeleton } from "@/ui/feedback";
import { PageHead } from "@/ui/page";
import { Person, useNames } from "@/ui/person";
import { Id, Moment } from "@/ui/text";
import { plain } from "@/ui/texts";
import { isOpen } from "../gate/decide";
import { Decider } from "../gate/deciders";
import { StateMachine } from "./machine";
import { NextActions } from "./next";
import { isProposal, readProcess } from "./read";

export function Process() {
  const { t } = useTranslation();
  const { id } = useParams({ from: "/frame/processes/$id" });
  const client = useQueryClient();
  const query = useQuery({
    queryKey: ["processes", id],
    queryFn: () => readProcess(id),
  });
  useTopic(`process:${id}`, () => void client.invalidateQueries({ queryKey: ["processes", id] }));
  if (query.isPending) return <Skeleton lines={8} />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const process = query.data;
  const [history, gates] = [process.transition_history ?? [], process.gates ?? []];
  const open = gates.filter(isOpen);
  const since = history.at(-1)?.fired_at ?? process.started_at;
  return (
    <>
      <PageHead
        trail={
          <>
            <Link to="/processes" className="hover:underline">
              {t("page.processes")}
            </Link>{" "}
            /{" "}
            {isProposal(process) ? (
              <Link to="/proposals/$id" params={{ id }} className="hover:underline">
                {t("gate.proposal")}
              </Link>
            ) : (
              <Link
                to="/definitions/$name"
                params={{ name: process.declaration_ref.split("@")[0] ?? "" }}
                className="hover:underline"
              >
                {process.declaration_ref}
              </Link>
            )}
          </>
        }
        title={process.subject_ref}
        actions={
          <Link
            to="/ledger"
            search={{ instance_id: id }}
            className="inline-flex min-h-9 items-center gap-2 rounded-md border border-field-line px-3.5 font-medium hover:bg-wash"
          >
            <ScrollText aria-hidden size={16} />
            {t("process.evidence")}
          </Link>
        }
      >
        <p className="flex flex-wrap items-baseline gap-x-4 gap-y-1">
          <span className="font-serif text-lg text-accent">{process.current_state}</span>
          <span className="text-soft">
            {t("drawer.since")} <Moment at={since} />
          </span>
        </p>
        {[...new Set(open.map((gate) => gate.action))].map((action) => (
          <Waiting key={action} action={action} gates={open.filter((gate) => gate.action === action)} />
        ))}
        <p className="flex flex-wrap gap-x-6 text-xs text-soft">
          <span>
            {t("run.startedBy")} <Person who={process.initiator_ref} />, <Moment at={process.started_at} />
          </span>
          <Id value={process.instance_id} />
        </p>
      </PageHead>
      <StateMachine process={process} />
      <NextActions id={id} sequence={history.length + gates.length} />
      <History process={process} />
    </>
  );
}

/** A gate that waits, and for whom. */
function Waiting({ action, gates }: { action: string; gates: SchemaGate[] }) {
  const { t } = useTranslation();
  const who = useNames(gates.map((gate) => gate.approver_ref));
  return (
    <p className="flex items-start gap-x-2">
      <Stamp aria-hidden size={16} className="mt-0.5 shrink-0 text-accent" />
      <span>
        {t("process.waits", { action: plain(action) })} {who}.{" "}
        {gates[0] && (
          <Link to="/gate/$step" params={{ step: gates[0].step_id }} className="text-accent underline">
            {t("process.openGate")}
          </Link>
        )}
      </span>
    </p>
  );
}

/** So many moves are listed at once. */
const AT_ONCE = 100;

/** Moves, newest first, and the approval that let each of them through. */
function History({ process }: { process: SchemaWorkflowView }) {
  const { t } = useTranslation();
  const history = [...(process.transition_history ?? [])].reverse();
  const [shown, setShown] = useState(AT_ONCE);
  return (
    <section className="mt-8">
      <h2 className="mb-3">{t("process.history")}</h2>
      <ol className="flex flex-col">
        {history.slice(0, shown).map((entry) => {
          const approved = (process.gates ?? []).filter(
            (gate) =>
              gate.step_id === entry.step_id ||
              (entry.chain_id != null &&
                gate.chain?.chain_id === entry.chain_id &&
                gate.state === "Approved" &&
                !gate.trailing),
          );
          return (
            <Entry key={entry.event_id} who={entry.actor_ref} at={entry.fired_at}>
              <strong className="font-medium">{plain(entry.action)}</strong>{" "}
              <span className="text-soft">
                {entry.from_state} → {entry.to_state}
              </span>
              {approved.map((gate) => (
                <span key={gate.step_id} className="block text-xs text-soft">
                  {t("process.approvedBy")} <Decider gate={gate} />
                  {gate.decision_reason && <span className="font-serif"> “{gate.decision_reason}”</span>}
                </span>
              ))}
            </Entry>
          );
        })}
        {history.length <= shown && (
          <Entry who={process.initiator_ref} at={process.started_at}>
            <strong className="font-medium">{t("process.started")}</strong>{" "}
            <span className="text-soft">{process.declaration.initial_state}</span>
          </Entry>
        )}
      </ol>
      {history.length > shown && (
        <Button onClick={() => setShown(shown + AT_ONCE)}>
          {t("process.earlier", { count: history.length - shown })}
        </Button>
      )}
    </section>
  );
}

function Entry({ who, at, children }: { who: string; at: string; children: React.ReactNode }) {
  return (
    <li className="relative grid gap-x-6 border-l-2 border-line pb-4 pl-5 last:border-transparent before:absolute before:top-1.5 before:-left-[6px] before:size-2.5 before:rounded-full before:border-2 before:border-strong before:bg-page sm:grid-cols-[1fr_auto]">
      <p>{children}</p>
      <p className="text-xs text-soft">
        <Person who={who} />, <Moment at={at} />
      </p>
    </li>
  );
}
