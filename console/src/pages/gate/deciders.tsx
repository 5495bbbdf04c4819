// Who decides, what each of them said, and how far the quorum has come.
import { Circle, CircleCheck, CircleDashed, CircleX, Undo2 } from "lucide-react";
import type { SchemaChainSummary, SchemaGate } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Person, useName } from "@/ui/person";
import { Moment } from "@/ui/text";

type Member = Pick<
  SchemaGate,
  "approver_ref" | "state" | "decided_by" | "on_behalf_of" | "decided_at" | "decision_reason" | "trailing"
>;

/** In whose place somebody decides. */
export function Substitute({ of }: { of: string }) {
  const { t } = useTranslation();
  const who = useName(of);
  return <span title={of}>{t("gate.substituteOf", { who })}</span>;
}

/** Who decided a gate, and in whose place; before that, whom it waits for. */
export function Decider({
  gate,
}: {
  gate: Pick<SchemaGate, "approver_ref" | "decided_by" | "on_behalf_of">;
}) {
  return (
    <>
      <Person who={gate.decided_by ?? gate.approver_ref} />
      {gate.on_behalf_of && (
        <>
          {" "}
          <Substitute of={gate.on_behalf_of} />
        </>
      )}
    </>
  );
}

const STATES = {
  Pending: { Icon: Circle, look: "text-soft" },
  Approved: { Icon: CircleCheck, look: "text-ok" },
  Rejected: { Icon: CircleX, look: "text-bad" },
  Withdrawn: { Icon: Undo2, look: "text-soft" },
} as const;

export function Deciders({
  members,
  quorum,
}: {
  members: Member[];
  quorum?: Pick<SchemaChainSummary, "approved" | "needed" | "approvers" | "state"> | null;
}) {
  const { t } = useTranslation();
  const settled = quorum != null && quorum.state !== "Pending";
  return (
    <section>
      <h2 className="mb-3 text-base">{t("gate.who")}</h2>
      {quorum && (
        <p className="mb-2 text-soft">
          {t("gate.quorum", {
            approved: quorum.approved ?? 0,
            needed: quorum.needed ?? members.length,
            all: quorum.approvers ?? members.length,
          })}
          {settled && <>. {t(`gate.settled.${quorum.state}`)}</>}
        </p>
      )}
      <ul className="flex flex-col gap-2">
        {members.map((member) => (
          <Row key={member.approver_ref} member={member} settled={settled} />
        ))}
      </ul>
    </section>
  );
}

function Row({ member, settled }: { member: Member; settled: boolean }) {
  const { t } = useTranslation();
  // Nobody waits for the rest once there is an outcome.
  const spared = settled && member.state === "Pending";
  const { Icon, look } = spared ? { Icon: CircleDashed, look: "text-soft" } : STATES[member.state];
  return (
    <li className="flex items-start gap-2.5">
      <Icon aria-hidden size={16} className={`mt-0.5 shrink-0 ${look}`} />
      <span className="flex flex-wrap gap-x-2.5">
        <strong className="font-medium">
          <Decider gate={member} />
        </strong>
        <span className="text-soft">
          {t(spared ? "gate.spared" : `gate.state.${member.state}`)}{" "}
          {member.decided_at && <Moment at={member.decided_at} />}
        </span>
        {member.decision_reason && <span className="font-serif">“{member.decision_reason}”</span>}
        {member.trailing && <span className="text-soft">{t("gate.trailing")}</span>}
      </span>
    </li>
  );
}
