// The decision at the bottom of a gate: a reason, and beside each button what its signature means.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { KeyRound, Server, UserRoundCheck } from "lucide-react";
import { type ReactNode, useId, useRef, useState } from "react";
import type { SchemaMe } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { passkeyHere } from "@/app/passkey";
import { useMe } from "@/app/session";
import { Button } from "@/ui/button";
import { Failure, Skeleton } from "@/ui/feedback";
import { useTexts } from "@/ui/texts";
import { type Choice, type Decidable, decide, meaningOf, type Recorded } from "./decide";
import { Substitute } from "./deciders";
import type { Offer } from "./offers";
import { Signed } from "./signed";

/** The keys that reach the buttons (app/keys.ts). */
const KEYS = { approve: "a", reject: "r", withdraw: "w" } as const;

export function Decision({
  instance,
  gate,
  subject,
  kind,
  onBehalfOf,
  offers,
  otherwise,
  onRecorded,
}: {
  instance: string;
  gate: Decidable;
  subject: string;
  kind: "runs" | "processes";
  /** The approver in whose place the viewer decides, as their substitute. */
  onBehalfOf?: string;
  /** What the server would accept from the viewer; absent until it has answered. */
  offers?: Offer[];
  /** Shown where that is nothing. */
  otherwise?: ReactNode;
  onRecorded?: (record: Recorded) => void;
}) {
  const { t } = useTranslation();
  const { data: me } = useMe();
  const client = useQueryClient();
  const [reason, setReason] = useState("");
  const [missing, setMissing] = useState(false);
  const [recorded, setRecorded] = useState<Recorded>();
  const says = useTexts();
  const text = useRef<HTMLTextAreaElement>(null);
  const field = useId();
  const meaning = (choice: Choice, actor: string) =>
    meaningOf(t, choice, { action: gate.action, subject, actor, onBehalfOf });
  const act = useMutation({
    mutationFn: ({ choice, me }: { choice: Choice; me: SchemaMe }) =>
      decide({
        kind,
        instance,
        gate,
        choice,
        reason: reason.trim() || undefined,
        meaning: meaning(choice, me.actor_ref),
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
  if (!me || !offers) return <Skeleton lines={3} />;
  if (offers.length === 0) return otherwise;

  function press({ choice, needs }: Offer, me: SchemaMe) {
    // The server asks for it, too: a person should not confirm with a passkey first, and be refused then.
    const lacks = needs.includes("reason") && reason.trim() === "";
    setMissing(lacks);
    if (lacks) text.current?.focus();
    else act.mutate({ choice, me });
  }

  return (
    // What scrolls by ends above the box, and does not show below it again.
    <section
      aria-label={t("gate.decide")}
      className="bg-page sm:-mx-3 sm:px-3 sm:pb-4 sm:[@media(min-height:640px)]:sticky sm:[@media(min-height:640px)]:bottom-0"
    >
      <div className="flex flex-col gap-2.5 rounded-lg border border-strong bg-raised p-4 sm:shadow-lg">
        {onBehalfOf && (
          <p className="flex items-center gap-2 text-warn">
            <UserRoundCheck aria-hidden size={16} className="shrink-0" />
            <span className="first-letter:uppercase">
              <Substitute of={onBehalfOf} />
            </span>
          </p>
        )}
        <label htmlFor={field} className="font-medium">
          {t("gate.reason")}
        </label>
        <textarea
          id={field}
          ref={text}
          rows={1}
          value={reason}
          onChange={(event) => {
            setReason(event.target.value);
            setMissing(false);
          }}
          aria-invalid={missing}
          aria-describedby={missing ? `${field}-missing` : undefined}
          className="max-h-32 min-h-11 rounded-md border border-strong bg-page px-3 py-2.5 [field-sizing:content] aria-invalid:border-bad"
        />
        {missing && (
          <p id={`${field}-missing`} role="alert" className="-mt-1 text-sm text-bad">
            {t("gate.reasonMissing")}
          </p>
        )}
        {act.isError && <Failure error={act.error} />}
        <ul className="flex flex-col gap-2">
          {offers.map(({ choice, label_key, severity, needs }) => (
            <li
              key={choice}
              data-key={KEYS[choice]}
              className="flex flex-col-reverse gap-x-4 gap-y-1 sm:grid sm:grid-cols-[7.5rem_1fr] sm:items-center"
            >
              <Button
                look={severity}
                className="min-h-11 w-full"
                data-decision={choice}
                aria-describedby={`${field}-${choice}`}
                disabled={act.isPending}
                onClick={() => press({ choice, label_key, severity, needs }, me)}
              >
                {act.isPending && act.variables.choice === choice ? t("dialog.recording") : says(label_key)}
              </Button>
              <p id={`${field}-${choice}`} className="text-sm text-soft">
                {t("gate.youSign")}{" "}
                <em className="font-serif text-ink [overflow-wrap:anywhere]">
                  {meaning(choice, me.actor_ref)}
                </em>
              </p>
            </li>
          ))}
        </ul>
        <How me={me} />
      </div>
    </section>
  );
}

/** Who vouches for the decision: the person's passkey, or the server. */
function How({ me }: { me: SchemaMe }) {
  const { t } = useTranslation();
  const passkey = passkeyHere(me.passkeys);
  const Icon = passkey ? KeyRound : Server;
  return (
    <p className="flex items-start gap-2 border-t border-line pt-3 text-xs text-soft">
      <Icon aria-hidden size={15} className="mt-0.5 shrink-0" />
      {passkey ? (
        <span>{t("gate.withPasskey", { label: passkey.label ?? passkey.key_id })}</span>
      ) : (
        <span>
          {t("gate.withServer")}{" "}
          <Link to="/admin" className="text-accent underline">
            {t("admin.passkeyAdd")}
          </Link>
        </span>
      )}
    </p>
  );
}
