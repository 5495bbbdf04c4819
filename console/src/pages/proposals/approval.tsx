// Who approves: asked in their in-trays, for exactly what is proposed.
import { Link } from "@tanstack/react-router";
import { Stamp } from "lucide-react";
import type { SchemaGate, SchemaProposalView } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { useMe } from "@/app/session";
import { useNames } from "@/ui/person";
import { isOpen } from "../gate/decide";
import { Deciders } from "../gate/deciders";

export function Approval({ proposal }: { proposal: SchemaProposalView }) {
  const { t } = useTranslation();
  const { data: me } = useMe();
  const who = useNames(proposal.approvers);
  // An approval is of what was proposed when it was asked for: an edit leaves it behind.
  const proposedAt = Date.parse(proposal.versions.at(-1)?.at ?? proposal.created_at);
  const counts = (gate: SchemaGate) =>
    gate.binding === "current" && Date.parse(gate.submitted_at) >= proposedAt;
  const current = proposal.gates.filter(counts);
  const earlier = proposal.gates.filter((gate) => !counts(gate));
  const open = current.filter(isOpen);
  const mine = open.find((gate) => gate.approver_ref === me?.actor_ref);
  return (
    <section className="min-w-0">
      {current.length > 0 ? (
        <Deciders members={current} quorum={current[0]?.chain} />
      ) : (
        <>
          <h2 className="mb-3 text-base">{t("gate.who")}</h2>
          <p>{who}</p>
          <p className="mt-1 text-soft">{t("proposal.asked")}</p>
        </>
      )}
      {(mine ?? open[0]) && (
        <p className="mt-3">
          <Open gate={mine ?? open[0]} mine={mine !== undefined} />
        </p>
      )}
      {earlier.length > 0 && (
        <details className="mt-3">
          <summary className="w-fit cursor-pointer text-xs text-soft">{t("proposal.spent")}</summary>
          <div className="mt-2">
            {chains(earlier).map((members) => (
              <Deciders key={members[0]?.step_id} members={members} quorum={members[0]?.chain} />
            ))}
          </div>
        </details>
      )}
    </section>
  );
}

/** The gates that were opened together. */
function chains(gates: SchemaGate[]): SchemaGate[][] {
  const all = new Map<string, SchemaGate[]>();
  for (const gate of gates) {
    const key = gate.chain?.chain_id ?? gate.step_id;
    all.set(key, [...(all.get(key) ?? []), gate]);
  }
  return [...all.values()];
}

/** Those who are asked decide in their in-tray; others read the gate. */
function Open({ gate, mine }: { gate: SchemaGate | undefined; mine: boolean }) {
  const { t } = useTranslation();
  if (!gate) return null;
  const look = "inline-flex items-center gap-2 text-accent underline";
  const inside = (
    <>
      <Stamp aria-hidden size={16} />
      {t(mine ? "proposal.decide" : "process.openGate")}
    </>
  );
  return mine ? (
    <Link to="/inbox" search={{ item: gate.step_id }} className={look}>
      {inside}
    </Link>
  ) : (
    <Link to="/gate/$step" params={{ step: gate.step_id }} className={look}>
      {inside}
    </Link>
  );
}
