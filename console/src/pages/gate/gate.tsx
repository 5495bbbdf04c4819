// What exactly am I signing, and what follows? The request, the way so far, the others, and the decision at the bottom.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { SchemaGate, SchemaInboxItem } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { useMe } from "@/app/session";
import { Button } from "@/ui/button";
import { Failure, Skeleton } from "@/ui/feedback";
import { Id, Moment } from "@/ui/text";
import { Values } from "@/ui/values";
import { type Choice, decide, type Recorded } from "./decide";
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

type Decidable = Pick<
  SchemaGate,
  "action" | "step_id" | "state" | "approver_ref" | "submitter_ref" | "request_digest"
>;

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

function Decision({
  instance,
  gate,
  subject,
  kind,
  onRecorded,
}: {
  instance: string;
  gate: Decidable;
  subject: string;
  kind: "runs" | "processes";
  onRecorded?: Shown["onRecorded"];
}) {
  const { t } = useTranslation();
  const { data: me } = useMe();
  const client = useQueryClient();
  const [reason, setReason] = useState("");
  const [recorded, setRecorded] = useState<Recorded>();
  const field = useId();
  const act = useMutation({
    mutationFn: (choice: Choice) =>
      decide({
        kind,
        instance,
        gate,
        choice,
        reason: reason.trim() || undefined,
        meaning: t(`gate.meaning.${choice}`, { action: gate.action, subject, who: me?.actor_ref ?? "" }),
        me,
      }),
    onSuccess: (record) => {
      setRecorded(record);
      onRecorded?.(record);
      void client.invalidateQueries({ queryKey: ["gate"] });
      void client.invalidateQueries({ queryKey: ["inbox"] });
    },
  });
  if (recorded) return <Signed record={recorded} />;
  if (gate.state !== "Pending" || !me) return null;
  const approver = gate.approver_ref === me.actor_ref;
  const submitter = gate.submitter_ref === me.actor_ref;
  // The server decides who may; a button that it would refuse is not drawn.
  if (!approver && !submitter)
    return <p className="text-soft">{t("gate.notYours", { who: gate.approver_ref })}</p>;
  return (
    <section
      aria-label={t("gate.decide")}
      className="sticky bottom-14 flex flex-col gap-3 rounded-lg border border-strong bg-raised p-4 sm:bottom-4"
    >
      <label htmlFor={field} className="font-medium">
        {t("gate.reason")}
      </label>
      <textarea
        id={field}
        rows={2}
        value={reason}
        onChange={(event) => setReason(event.target.value)}
        className="rounded-md border border-strong bg-page px-3 py-2"
      />
      {approver && (
        <p className="text-sm text-soft">
          {t("gate.youSign")}{" "}
          <em className="font-serif text-ink">
            {t("gate.meaning.approve", { action: gate.action, subject, who: me.actor_ref })}
          </em>
        </p>
      )}
      {act.isError && <Failure error={act.error} />}
      <div className="flex flex-wrap gap-2">
        {approver && (
          <>
            <Button
              look="primary"
              className="min-h-11 flex-1 sm:flex-none"
              disabled={act.isPending}
              onClick={() => act.mutate("approve")}
            >
              {act.isPending ? t("dialog.recording") : t("gate.approve")}
            </Button>
            <Button
              look="danger"
              className="min-h-11 flex-1 sm:flex-none"
              disabled={act.isPending}
              onClick={() => act.mutate("reject")}
            >
              {t("gate.reject")}
            </Button>
          </>
        )}
        {submitter && (
          <Button className="min-h-11" disabled={act.isPending} onClick={() => act.mutate("withdraw")}>
            {t("gate.withdraw")}
          </Button>
        )}
      </div>
    </section>
  );
}

/** After signing: the record's number, its digest, what the signature meant, and whether it is sealed. */
export function Signed({ record }: { record: Recorded }) {
  const { t } = useTranslation();
  return (
    <section role="status" className="flex flex-col gap-2 rounded-lg border border-ok bg-ok-wash p-4">
      <p className="font-serif text-lg">{t(`gate.done.${record.choice}`)}</p>
      <p className="text-sm">
        {t("gate.youSigned")} <em className="font-serif">{record.meaning}</em>
      </p>
      <p className="text-sm text-soft">{record.passkey ? t("gate.byPasskey") : t("gate.byServer")}</p>
    </section>
  );
}
