// After signing: what was signed, who vouches for it, and the record that holds it.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CheckCheck } from "lucide-react";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { SchemaRecordView } from "@/api/schema";
import { useMe } from "@/app/session";
import { Fact, Facts } from "@/ui/facts";
import { Id } from "@/ui/text";
import { SealState } from "../ledger/assurance";
import type { Recorded } from "./decide";

/** Records are sealed in batches, and nothing tells when: a record that is not sealed yet is looked at again. */
const SEAL_LOOK = 3000;

/** The record of a decision. Only who may read the ledger can see it. */
function useRecord(instance: string, step: string, actor: string) {
  const { data: me } = useMe();
  const reads = me?.scopes.includes("audit:read") ?? false;
  const query = useQuery({
    queryKey: ["gate", step, "record", actor],
    enabled: reads,
    queryFn: async (): Promise<SchemaRecordView | null> => {
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
    refetchInterval: ({ state }) => (state.data?.log_index == null ? SEAL_LOOK : false),
  });
  return { reads, record: query.data ?? undefined };
}

export function Signed({ record: signed }: { record: Recorded }) {
  const { t } = useTranslation();
  const { reads, record } = useRecord(signed.instance, signed.step, signed.actor);
  return (
    <section role="status" className="flex flex-col gap-3 rounded-lg border border-ok bg-ok-wash p-5">
      <p className="flex items-center gap-2 font-serif text-lg">
        <CheckCheck aria-hidden size={20} className="text-ok" />
        {t(`gate.done.${signed.choice}`)}
      </p>
      <p>
        {t("gate.youSigned")} <em className="font-serif [overflow-wrap:anywhere]">{signed.meaning}</em>
      </p>
      {signed.reason && <p className="font-serif">“{signed.reason}”</p>}
      <Facts>
        <Fact name={t("ledger.assurance")}>{signed.digest ? t("gate.byPasskey") : t("gate.byServer")}</Fact>
        {signed.digest && (
          <Fact name={t("gate.signedDigest")}>
            <Id value={signed.digest} length={16} />
          </Fact>
        )}
        {record && <RecordFacts record={record} />}
      </Facts>
      {!reads && <p className="text-xs text-soft">{t("gate.recordHidden")}</p>}
    </section>
  );
}

export function RecordFacts({ record }: { record: SchemaRecordView }) {
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
