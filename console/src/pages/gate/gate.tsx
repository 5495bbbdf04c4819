// What exactly am I signing, and what follows? The request, the way so far, the others, and the decision at the bottom.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { SchemaGate, SchemaInboxItem } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { useMe } from "@/app/session";
import { Failure, Skeleton } from "@/ui/feedback";
import { Id, Moment } from "@/ui/text";
import { Values } from "@/ui/values";
import type { Decidable, Recorded } from "./decide";
import { Decision } from "./decision";
import { PathSoFar } from "./path";

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
  /** Told when the decision is recorded, for who goes on to show it. */
  onRecorded?: (record: Recorded) => void;
}

export function GateView({ step, item, onRecorded }: Shown) {
  const { t } = useTranslation();
  const query = useGate(step);
  const client = useQueryClient();
  const instance = query.data?.row.instance_id;
  const topic = instance && `${query.data?.process ? "process" : "run"}:${instance}`;
  useTopic(topic ?? undefined, () => void client.invalidateQueries({ queryKey: ["gate", step] }));
  if (query.isPending) return <Skeleton lines={8} />;
  if (query.isError && item) return <Asked item={item} onRecorded={onRecorded} />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const { row, process, run, gates } = query.data;
  const gate = gates.find((gate) => gate.step_id === step);
  if (!gate) return <Failure error={new Error(t("gate.gone"))} />;
  const peers = gate.chain ? gates.filter((other) => other.chain?.chain_id === gate.chain?.chain_id) : [gate];
  const subject = process?.subject_ref ?? run?.subject_ref ?? row.subject_ref;
  return (
    <article className="flex max-w-3xl flex-col gap-7">
      <header className="flex flex-col gap-1">
        <p className="text-xs text-soft">{process?.declaration_ref ?? run?.definition}</p>
        <h1 className="first-letter:uppercase">{t("inbox.sentence", { action: gate.action, subject })}</h1>
        <p className="flex flex-wrap gap-x-4 text-sm text-soft">
          <span>
            {t("inbox.asked", { who: gate.submitter_ref })} <Moment at={gate.submitted_at} />
          </span>
          {run ? (
            <Link to="/runs/$id" params={{ id: run.run_id }} className="text-accent underline">
              {t("gate.run")}
            </Link>
          ) : (
            <Link
              to="/processes/$id"
              params={{ id: row.instance_id ?? "" }}
              className="text-accent underline"
            >
              {t("gate.process")}
            </Link>
          )}
        </p>
      </header>
      <section>
        <h2 className="mb-2">{t("gate.request")}</h2>
        {gate.request === undefined || gate.request === null ? (
          <p className="text-soft">{t("gate.noRequest")}</p>
        ) : (
          <Values value={gate.request} />
        )}
        {gate.request_digest && (
          <p className="mt-2 flex items-center gap-2 text-xs text-soft">
            {t("gate.digest")} <Id value={gate.request_digest} length={16} />
          </p>
        )}
      </section>
      {process && (
        <section>
          <h2 className="mb-2">{t("gate.path")}</h2>
          <PathSoFar process={process} action={gate.action} />
        </section>
      )}
      <Others gates={peers} />
      <Decision
        instance={row.instance_id ?? ""}
        gate={gate}
        subject={subject}
        kind={run ? "runs" : "processes"}
        onRecorded={onRecorded}
      />
    </article>
  );
}

/** Who decides, and what they have said. */
function Others({ gates }: { gates: SchemaGate[] }) {
  const { t } = useTranslation();
  const approved = gates.filter((gate) => gate.state === "Approved").length;
  const chain = gates[0]?.chain;
  return (
    <section>
      <h2 className="mb-2">{t("gate.who")}</h2>
      {chain && (
        <p className="mb-1 text-sm text-soft">
          {t("gate.quorum", { approved, needed: chain.m ?? gates.length, all: gates.length })}
        </p>
      )}
      <ul className="flex flex-col gap-1 text-sm">
        {gates.map((gate) => (
          <li key={gate.step_id} className="flex flex-wrap gap-x-3">
            <strong className="font-medium">{gate.approver_ref}</strong>
            <span className="text-soft">{t(`gate.state.${gate.state}`)}</span>
            {gate.decided_at && (
              <span className="text-xs text-soft">
                <Moment at={gate.decided_at} />
              </span>
            )}
            {gate.decision_reason && <span className="font-serif">“{gate.decision_reason}”</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What the in-tray itself tells: an approver may have no right to read the process. */
function Asked({ item, onRecorded }: { item: SchemaInboxItem; onRecorded?: Shown["onRecorded"] }) {
  const { t } = useTranslation();
  const { data: me } = useMe();
  if (!me) return null;
  const gate: Decidable = {
    action: item.action,
    step_id: item.task_ref,
    state: "Pending",
    approver_ref: me.actor_ref,
    submitter_ref: item.requested_by ?? "",
    request_digest: item.request_digest,
  };
  return (
    <article className="flex max-w-3xl flex-col gap-7">
      <header className="flex flex-col gap-1">
        <p className="text-xs text-soft">{item.definition}</p>
        <h1 className="first-letter:uppercase">
          {t("inbox.sentence", { action: item.action, subject: item.subject_ref })}
        </h1>
        <p className="text-sm text-soft">
          {t("inbox.asked", { who: item.requested_by ?? "" })} <Moment at={item.assigned_at} />
        </p>
      </header>
      <section>
        <h2 className="mb-2">{t("gate.request")}</h2>
        {item.request == null ? (
          <p className="text-soft">{t("gate.noRequest")}</p>
        ) : (
          <Values value={item.request} />
        )}
      </section>
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
