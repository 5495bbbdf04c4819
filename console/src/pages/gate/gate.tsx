// What exactly am I signing, and what follows? The request, the way so far, the others, and the decision at the bottom.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { api, body } from "@/api/client";
import type { SchemaGate, SchemaInboxItem, SchemaRunView } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { useTranslation } from "@/app/i18n";
import { useMe } from "@/app/session";
import { Failure, Skeleton } from "@/ui/feedback";
import { Said } from "@/ui/markdown";
import { useName, useNames } from "@/ui/person";
import { Moment } from "@/ui/text";
import { isProposal, readProcess } from "../processes/read";
import { isOpen, type Recorded } from "./decide";
import { Deciders } from "./deciders";
import { Decision } from "./decision";
import { Findings } from "./findings";
import { inTray, useOffers } from "./offers";
import { PathOfProcess, PathOfRun } from "./path";
import { Request } from "./request";
import { Decided } from "./signed";

export function Gate() {
  const { step } = useParams({ from: "/frame/gate/$step" });
  return <GateView step={step} />;
}

/** Where the gate is, and what was said when it was opened. */
type Asked = Pick<SchemaInboxItem, "instance_id" | "reason"> & { item?: SchemaInboxItem };

/** An approver may have no right to list approvals, but has an in-tray. */
async function find(step: string): Promise<Asked> {
  const item = (await inTray()).find((one) => one.task_ref === step);
  if (item) return { ...item, item };
  const { items } = await body(api.GET("/v1/approval-steps", { params: { query: { step_id: step } } }));
  const [row] = items;
  if (!row?.instance_id) throw new Error("not known");
  return { instance_id: row.instance_id, reason: row.reason };
}

/** The gate, and the process or run that it belongs to: whom a gate names may read that. */
function useGate(step: string, item?: SchemaInboxItem) {
  const asked = useQuery({
    queryKey: ["asked", step],
    staleTime: Number.POSITIVE_INFINITY,
    initialData: item && { ...item, item },
    queryFn: () => find(step),
  });
  const id = asked.data?.instance_id ?? "";
  const read = useQuery({
    queryKey: ["gate", step],
    enabled: id !== "",
    queryFn: async () => {
      const process = await readProcess(id).catch(() => undefined);
      if (process) return { process, gates: process.gates ?? [] };
      const run = await body(api.GET("/v1/runs/{run_id}", { params: { path: { run_id: id } } }));
      return { run, gates: run.gates ?? [] };
    },
  });
  return { asked: asked.data, read: read.data, error: asked.error ?? read.error };
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
  const { asked, read, error } = useGate(step, item);
  const client = useQueryClient();
  const instance = asked?.instance_id ?? "";
  const topic = read && `${read.process ? "process" : "run"}:${instance}`;
  useTopic(topic, () => void client.invalidateQueries({ queryKey: ["gate", step] }));
  if (!asked || !read) return error ? <Failure error={error} /> : <Skeleton lines={8} />;
  const { process, run, gates } = read;
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
  const subject = process?.subject_ref ?? run?.subject_ref ?? "";
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
        reason={asked.reason}
      >
        {run ? (
          <Link to="/runs/$id" params={{ id: run.run_id }} className={link}>
            {t("gate.run")}
          </Link>
        ) : process && isProposal(process) ? (
          <Link to="/proposals/$id" params={{ id: instance }} className={link}>
            {t("gate.proposal")}
          </Link>
        ) : (
          <Link to="/processes/$id" params={{ id: instance }} className={link}>
            {t("gate.process")}
          </Link>
        )}
      </Title>
      <Request asked={{ ...gate, from: gate.from_state, to: move?.to, before: earlier.at(-1)?.request }} />
      <Findings item={asked.item} />
      <section aria-label={t("gate.path")}>
        <h2 className="mb-3 text-base">{t("gate.path")}</h2>
        {process && <PathOfProcess process={process} action={leads ? gate.action : undefined} />}
        {run && <PathOfRun run={run} step={leads ? stepOf(run, gate) : undefined} />}
      </section>
      {(gate.chain || gate.state === "Pending") && <Deciders members={peers} quorum={gate.chain} />}
      <Yours {...{ instance, gate, peers, subject, onRecorded }} kind={run ? "runs" : "processes"} />
    </article>
  );
}

/** The step of a run that waits for this gate. A gate on the run as a whole (cancel, resume, void) names none. */
const stepOf = (run: SchemaRunView, gate: SchemaGate) =>
  run.steps.find((step) => step.name === gate.action)?.name;

/** The decision, where the server offers one; else what became of it, or who decides. */
function Yours({
  peers,
  ...shown
}: {
  kind: "runs" | "processes";
  instance: string;
  gate: SchemaGate;
  peers: SchemaGate[];
  subject: string;
  onRecorded?: Shown["onRecorded"];
}) {
  const { kind, instance, gate } = shown;
  const yours = useOffers(kind, instance, gate, peers);
  return (
    <Decision
      {...shown}
      gate={yours?.gate ?? gate}
      offers={yours?.offers}
      onBehalfOf={yours?.onBehalfOf}
      otherwise={
        isOpen(gate) ? (
          <NotYours peers={peers} problems={yours?.problems ?? []} />
        ) : (
          gate.state !== "Pending" && <Decided gate={gate} instance={instance} />
        )
      }
    />
  );
}

/** Who decides; and to those who are named, why it is not for them now. */
function NotYours({ peers, problems }: { peers: SchemaGate[]; problems: string[] }) {
  const { t } = useTranslation();
  const { data: me } = useMe();
  const open = peers.filter((peer) => peer.state === "Pending").map((peer) => peer.approver_ref);
  const who = useNames(open);
  const named = peers.some((peer) => [peer.approver_ref, peer.submitter_ref].includes(me?.actor_ref ?? ""));
  return (
    <div className="text-soft">
      <p>{t(open.length > 1 ? "gate.notYoursAll" : "gate.notYours", { who })}</p>
      {named && problems.length > 0 && (
        <p className="mt-1 text-sm">
          <Said text={problems.join("; ")} />
        </p>
      )}
    </div>
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
