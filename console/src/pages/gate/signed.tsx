// After a decision: what was signed and what it means, who vouches for it, and the record that holds it.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CircleCheck, CircleX, Undo2 } from "lucide-react";
import type { ReactNode } from "react";
import { api, body } from "@/api/client";
import type { SchemaGate, SchemaRecordView } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { useTranslation } from "@/app/i18n";
import { useMe } from "@/app/session";
import { Fact, Facts } from "@/ui/facts";
import { Person } from "@/ui/person";
import { Id, Moment } from "@/ui/text";
import { Assurance, SealState } from "../ledger/assurance";
import { signedMeaning } from "../ledger/record";
import type { Choice, Recorded } from "./decide";
import { Substitute } from "./deciders";

/** The record of a decision: the one that the server named, else the one of this step. Only who may read the ledger can see it. */
function useRecord(instance: string, step: string, actor: string, named?: string | null) {
  const { data: me } = useMe();
  const client = useQueryClient();
  const reads = me?.scopes.includes("audit:read") ?? false;
  const queryKey = ["gate", step, "record", actor];
  const query = useQuery({
    queryKey,
    enabled: reads && actor !== "",
    queryFn: async (): Promise<SchemaRecordView | null> => {
      if (named)
        return body(api.GET("/v1/ledger/records/{event_id}", { params: { path: { event_id: named } } }));
      const found = await body(
        api.GET("/v1/ledger/records", {
          params: {
            query: {
              instance_id: instance,
              action_ref: "gate_decided",
              actor_ref: actor,
              order: "desc",
              limit: 50,
            },
          },
        }),
      );
      const of = (record: SchemaRecordView) => (record.payload as { step_id?: string } | null)?.step_id;
      return found.items.find((record) => of(record) === step) ?? found.items[0] ?? null;
    },
  });
  // A checkpoint was signed: the record may be under it.
  const waits = reads && query.data != null && query.data.log_index == null;
  useTopic(waits ? "ledger" : undefined, () => void client.invalidateQueries({ queryKey }));
  return { reads, record: query.data ?? undefined };
}

const LOOKS = {
  approve: { Icon: CircleCheck, look: "text-ok" },
  reject: { Icon: CircleX, look: "text-bad" },
  withdraw: { Icon: Undo2, look: "text-soft" },
} as const;

/** What the person has just signed. */
export function Signed({ record: signed }: { record: Recorded }) {
  const { t } = useTranslation();
  const { event_id, sequence, record_hash, assurance } = signed.record;
  const { reads, record } = useRecord(signed.instance, signed.step, signed.actor, event_id);
  return (
    <section role="status" className="flex flex-col gap-3 rounded-lg border border-strong bg-raised p-5">
      <Heading choice={signed.choice} />
      <p>
        {t("gate.youSigned")} <em className="font-serif [overflow-wrap:anywhere]">{signed.meaning}</em>
      </p>
      {signed.reason && <p className="font-serif">“{signed.reason}”</p>}
      <Facts>
        <Fact name={t("ledger.assurance")}>
          {t(assurance === "passkey_signed" ? "gate.byPasskey" : "gate.byServer")}
        </Fact>
        {signed.digest && (
          <Fact name={t("gate.signedDigest")}>
            <Id value={signed.digest} length={16} />
          </Fact>
        )}
        {record ? (
          <RecordFacts record={record} />
        ) : (
          sequence != null && (
            <>
              <Fact name={t("gate.record")}>{t("gate.recordNumber", { number: sequence })}</Fact>
              <Fact name={t("ledger.hash")}>
                <Id value={record_hash ?? ""} length={16} />
              </Fact>
            </>
          )
        )}
      </Facts>
      {!reads && <p className="text-xs text-soft">{t("gate.recordHidden")}</p>}
    </section>
  );
}

const CHOICES: Partial<Record<SchemaGate["state"], Choice>> = {
  Approved: "approve",
  Rejected: "reject",
  Withdrawn: "withdraw",
};

/** A decision that was taken before. */
export function Decided({ gate, instance }: { gate: SchemaGate; instance: string }) {
  const { t } = useTranslation();
  const choice = CHOICES[gate.state] ?? "withdraw";
  const who = gate.decided_by ?? gate.withdrawn_by ?? "";
  const at = gate.decided_at ?? gate.withdrawn_at;
  const reason = gate.decision_reason ?? gate.withdrawal_reason;
  const { record } = useRecord(instance, gate.step_id, who);
  const meaning = record && signedMeaning(record);
  return (
    <section className="flex flex-col gap-3 rounded-lg border border-line p-5">
      <Heading choice={choice}>
        <span className="font-sans text-sm text-soft">
          <Person who={who} /> {gate.on_behalf_of && <Substitute of={gate.on_behalf_of} />}{" "}
          {at && <Moment at={at} />}
        </span>
      </Heading>
      {meaning && (
        <p>
          <span className="text-soft">{t("ledger.signedMeaning")}</span>{" "}
          <em className="font-serif [overflow-wrap:anywhere]">{meaning}</em>
        </p>
      )}
      {reason && <p className="font-serif">“{reason}”</p>}
      {record && (
        <Facts>
          <Fact name={t("ledger.assurance")}>
            <Assurance of={record.assurance} />
          </Fact>
          <RecordFacts record={record} />
        </Facts>
      )}
    </section>
  );
}

function Heading({ choice, children }: { choice: Choice; children?: ReactNode }) {
  const { t } = useTranslation();
  const { Icon, look } = LOOKS[choice];
  return (
    <p className="flex flex-wrap items-center gap-x-3 gap-y-1 font-serif text-lg">
      <Icon aria-hidden size={22} className={look} />
      <span>{t(`gate.done.${choice}`)}</span>
      {children}
    </p>
  );
}

function RecordFacts({ record }: { record: SchemaRecordView }) {
  const { t } = useTranslation();
  return (
    <>
      <Fact name={t("gate.record")}>
        <Link
          to="/ledger"
          search={{ instance_id: record.instance_id, record: record.event_id }}
          className="text-accent underline"
        >
          {t("gate.recordNumber", { number: record.sequence })}
        </Link>
      </Fact>
      <Fact name={t("ledger.hash")}>
        <Id value={record.record_hash} length={16} />
      </Fact>
      <Fact name={t("ledger.seal")}>
        <SealState at={record.log_index} />
      </Fact>
    </>
  );
}
