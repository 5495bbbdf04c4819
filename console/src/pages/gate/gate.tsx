// What exactly am I signing, and what follows? The request, the way so far, the others, and the decision at the bottom.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { Circle, CircleCheck, CircleX, Undo2 } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { SchemaGate, SchemaInboxItem, SchemaQuorumProgress } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { useMe } from "@/app/session";
import { Failure, Skeleton } from "@/ui/feedback";
import { Person, useName } from "@/ui/person";
import { Moment } from "@/ui/text";
import type { Decidable, Recorded } from "./decide";
import { Decision } from "./decision";
import { Findings } from "./findings";
import { PathSoFar } from "./path";
import { Request } from "./request";
import { Decided, Signed } from "./signed";

export function Gate() {
  const { step } = useParams({ from: "/frame/gate/$step" });
  return <GateView step={step} />;
}

/** The gate, and the process or run that it belongs to. */
function useGate(step: string) {
  return useQuery({
    queryKey: ["gate", step],
    queryFn: async () => {
      const found = await body(api.GET("/v1/approval-steps", { params: { query: { step_id: step } } }));
      const row = found.items[0];
      if (!row?.instance_id) throw new Error("not known");
      const process = await body(
        api.GET("/v1/processes/{instance_id}", { params: { path: { instance_id: row.instance_id } } }),
      ).catch(() => undefined);
      if (process) return { row, process, gates: process.gates ?? [] };
      const run = await body(api.GET("/v1/runs/{run_id}", { params: { path: { run_id: row.instance_id } } }));
      return { row, run, gates: run.gates ?? [] };
    },
  });
}

export interface Shown {
  step: string;
  /** What the in-tray says of it. */
  item?: SchemaInboxItem;
  /** Called when the decision is recorded: the in-tray goes on to show it. */
  onRecorded?: (record: Recorded) => void;
}

export function GateView({ step, item, onRecorded }: Shown) {
  const { t } = useTranslation();
  const query = useGate(step);
  // A gate that cannot be read leaves the in-tray once it is decided: what was signed stays in view.
  const [signed, setSigned] = useState<Recorded>();
  const client = useQueryClient();
  const instance = query.data?.row.instance_id ?? "";
  const topic = instance && `${query.data?.process ? "process" : "run"}:${instance}`;
  useTopic(topic || undefined, () => void client.invalidateQueries({ queryKey: ["gate", step] }));
  if (signed) return <Signed record={signed} />;
  if (query.isPending) return <Skeleton lines={8} />;
  if (query.isError && item) return <FromInbox item={item} onRecorded={onRecorded} />;
  if (query.isError) return <Unreadable step={step} error={query.error} onRecorded={setSigned} />;
  const { row, process, run, gates } = query.data;
  const gate = gates.find((gate) => gate.step_id === step);
  if (!gate) return <Failure error={new Error(t("gate.gone"))} />;
  const peers = gate.chain ? gates.filter((other) => other.chain?.chain_id === gate.chain?.chain_id) : [gate];
  const earlier = gates.filter(
    (other) =>
      other.action === gate.action && other.submitted_at < gate.submitted_at && other.request != null,
  );
  const move = process?.declaration.transitions?.find(
    (one) => one.from === gate.from_state && one.action === gate.action,
  );
  const subject = process?.subject_ref ?? run?.subject_ref ?? row.subject_ref;
  // Where an approval still leads.
  const leads = gate.state === "Pending" || (gate.state === "Approved" && gate.fate === "unspent");
  const link = "text-accent underline";
  return (
    <article className="flex max-w-3xl flex-col gap-8">
      <Title
        definition={process?.declaration_ref ?? run?.definition}
        action={gate.action}
        subject={subject}
        by={gate.submitter_ref}
        at={gate.submitted_at}
        reason={row.reason}
      >
        {run ? (
          <Link to="/runs/$id" params={{ id: run.run_id }} className={link}>
            {t("gate.run")}
          </Link>
        ) : (
          <Link to="/processes/$id" params={{ id: instance }} className={link}>
            {t("gate.process")}
          </Link>
        )}
      </Title>
      <Request asked={{ ...gate, from: gate.from_state, to: move?.to, before: earlier.at(-1)?.request }} />
      <Findings item={item} />
      {process && (
        <section>
          <h2 className="mb-3 text-base">{t("gate.path")}</h2>
          <PathSoFar process={process} action={leads ? gate.action : undefined} />
        </section>
      )}
      {(gate.chain || gate.state === "Pending") && <Others gates={peers} />}
      <Decision
        instance={instance}
        gate={gate}
        subject={subject}
        kind={run ? "runs" : "processes"}
        onRecorded={onRecorded}
        decided={<Decided gate={gate} instance={instance} />}
      />
    </article>
  );
}

function Title({
  definition,
  action,
  subject,
  by,
  at,
  reason,
  children,
}: {
  definition?: string | null;
  action: string;
  subject: string;
  by?: string;
  at: string;
  reason?: string | null;
  children?: ReactNode;
}) {
  const { t } = useTranslation();
  const who = useName(by);
  return (
    <header className="flex flex-col gap-1">
      <p className="text-xs text-soft">{definition}</p>
      <h1 className="first-letter:uppercase">{t("inbox.sentence", { action, subject })}</h1>
      <p className="flex flex-wrap gap-x-4 text-soft">
        <span title={by}>
          {who && t("inbox.asked", { who })} <Moment at={at} />
        </span>
        {children}
      </p>
      {reason && <p className="mt-2 font-serif text-base">“{reason}”</p>}
    </header>
  );
}

const STATES = {
  Pending: { Icon: Circle, look: "text-soft" },
  Approved: { Icon: CircleCheck, look: "text-ok" },
  Rejected: { Icon: CircleX, look: "text-bad" },
  Withdrawn: { Icon: Undo2, look: "text-soft" },
} as const;

/** How far a quorum has come. */
export function Quorum({ quorum }: { quorum: SchemaQuorumProgress }) {
  const { t } = useTranslation();
  const { approved, needed, approvers, rejected } = quorum;
  return (
    <p className="text-soft">
      {t("gate.quorum", { approved, needed, all: approvers })}
      {rejected > 0 && <span className="text-bad"> {t("gate.rejections", { count: rejected })}</span>}
    </p>
  );
}

/** How many approvals a quorum needs. */
function needed(gates: SchemaGate[]): number {
  const chain = gates[0]?.chain;
  if (chain?.rule === "one-of-n") return 1;
  return chain?.m ?? gates.length;
}

/** Who decides, and what they have said. */
function Others({ gates }: { gates: SchemaGate[] }) {
  const { t } = useTranslation();
  const approved = gates.filter((gate) => gate.state === "Approved").length;
  return (
    <section>
      <h2 className="mb-3 text-base">{t("gate.who")}</h2>
      {gates[0]?.chain && (
        <p className="mb-2 text-soft">
          {t("gate.quorum", { approved, needed: needed(gates), all: gates.length })}
        </p>
      )}
      <ul className="flex flex-col gap-2">
        {gates.map((gate) => {
          const { Icon, look } = STATES[gate.state];
          return (
            <li key={gate.step_id} className="flex items-start gap-2.5">
              <Icon aria-hidden size={16} className={`mt-0.5 shrink-0 ${look}`} />
              <span className="flex flex-wrap gap-x-2.5">
                <strong className="font-medium">
                  <Person who={gate.approver_ref} />
                </strong>
                <span className="text-soft">
                  {t(`gate.state.${gate.state}`)} {gate.decided_at && <Moment at={gate.decided_at} />}
                </span>
                {gate.decision_reason && <span className="font-serif">“{gate.decision_reason}”</span>}
              </span>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

/** A link to a gate may be opened by its approver, who may have no right to read the process: their in-tray has it. */
function Unreadable({
  step,
  error,
  onRecorded,
}: {
  step: string;
  error: unknown;
  onRecorded: (record: Recorded) => void;
}) {
  const query = useQuery({
    queryKey: ["inbox", "all"],
    queryFn: () => body(api.GET("/v1/inbox", { params: { query: { limit: 500 } } })),
  });
  if (query.isPending) return <Skeleton lines={8} />;
  const item = query.data?.items.find((one) => one.task_ref === step);
  return item ? <FromInbox item={item} onRecorded={onRecorded} /> : <Failure error={error} />;
}

/** What the in-tray itself says: an approver may have no right to read the process. */
function FromInbox({ item, onRecorded }: { item: SchemaInboxItem; onRecorded?: Shown["onRecorded"] }) {
  const { t } = useTranslation();
  const { data: me } = useMe();
  if (!me) return null;
  const gate: Decidable = {
    action: item.action,
    step_id: item.task_ref,
    state: "Pending",
    approver_ref: me.actor_ref,
    // Who only approves withdraws nothing.
    submitter_ref: "",
    request_digest: item.request_digest,
  };
  return (
    <article className="flex max-w-3xl flex-col gap-8">
      <Title
        definition={item.definition}
        action={item.action}
        subject={item.subject_ref}
        by={item.requested_by}
        at={item.assigned_at}
        reason={item.reason}
      />
      <Request asked={{ ...item, to: item.to_state ?? undefined }} />
      <Findings item={item} />
      {item.quorum && (
        <section>
          <h2 className="mb-2 text-base">{t("gate.who")}</h2>
          <Quorum quorum={item.quorum} />
        </section>
      )}
      <Decision
        instance={item.instance_id}
        gate={gate}
        subject={item.subject_ref}
        kind={item.kind === "run" ? "runs" : "processes"}
        onRecorded={onRecorded}
      />
    </article>
  );
}
