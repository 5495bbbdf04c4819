// Who I am, what I may do, and my passkeys.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { KeyRound } from "lucide-react";
import { useId, useState } from "react";
import type { SchemaMe, SchemaPasskey } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { passkeysWork } from "@/app/passkey";
import { registerPasskey, revokePasskey } from "@/app/sign";
import { Button } from "@/ui/button";
import { ReasonDialog } from "@/ui/dialog";
import { Failure } from "@/ui/feedback";
import { Id, Moment } from "@/ui/text";
import { duration } from "@/ui/time";
import { Sessions } from "./sessions";
import { Substitutes } from "./substitutes";

export function Account({ me }: { me: SchemaMe }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const field = useId();
  const [label, setLabel] = useState("");
  const [ending, setEnding] = useState<SchemaPasskey>();
  const add = useMutation({
    mutationFn: () => registerPasskey(me, label.trim()),
    onSuccess: () => {
      setLabel("");
      void client.invalidateQueries({ queryKey: ["me"] });
    },
  });
  const remove = useMutation({
    mutationFn: ({ passkey, reason }: { passkey: SchemaPasskey; reason?: string }) =>
      revokePasskey(me, passkey, reason),
    onSuccess: () => {
      setEnding(undefined);
      void client.invalidateQueries({ queryKey: ["me"] });
    },
  });
  return (
    <div className="flex max-w-2xl flex-col gap-8">
      <section>
        <h2 className="mb-2">{me.display_name ?? me.actor_ref}</h2>
        <p className="text-sm text-soft">
          <code className="font-mono text-xs">{me.actor_ref}</code>
        </p>
        <h3 className="mt-4 mb-1">{t("admin.mayDo")}</h3>
        {me.scopes.length === 0 ? (
          <p className="text-soft">{t("admin.mayNothing")}</p>
        ) : (
          <ul className="flex flex-wrap gap-1.5">
            {me.scopes.map((scope) => (
              <li key={scope} className="rounded bg-wash px-2 py-0.5 font-mono text-xs">
                {scope}
              </li>
            ))}
          </ul>
        )}
      </section>
      <section>
        <h2 className="mb-2">{t("admin.passkeys")}</h2>
        <p className="mb-3 text-sm text-soft">{t("admin.passkeysWhy")}</p>
        <ul className="mb-4 divide-y divide-line text-sm">
          {me.passkeys.map((passkey) => (
            <li key={passkey.key_id} className="flex min-h-12 flex-wrap items-center gap-x-4 gap-y-1 py-1.5">
              <KeyRound aria-hidden size={16} className="text-soft" />
              <span className="flex flex-1 flex-col">
                <span className="font-medium">{passkey.label ?? passkey.key_id}</span>
                <span className="text-xs text-soft">
                  {t("admin.added")} <Moment at={passkey.registered_at} /> ·{" "}
                  <Id value={passkey.key_id} length={16} />
                </span>
              </span>
              <Button
                look="quiet"
                small
                aria-label={t("admin.removePasskeyOf", { label: passkey.label ?? passkey.key_id })}
                onClick={() => setEnding(passkey)}
              >
                {t("admin.removePasskey")}
              </Button>
            </li>
          ))}
        </ul>
        {passkeysWork() ? (
          <form
            className="flex flex-wrap items-end gap-2"
            onSubmit={(event) => {
              event.preventDefault();
              add.mutate();
            }}
          >
            <div className="flex flex-col gap-1">
              <label htmlFor={field} className="kicker">
                {t("admin.passkeyLabel")}
              </label>
              <input
                id={field}
                required
                value={label}
                onChange={(event) => setLabel(event.target.value)}
                className="field w-56"
              />
            </div>
            <Button type="submit" look="primary" disabled={add.isPending}>
              {t("admin.passkeyAdd")}
            </Button>
          </form>
        ) : (
          <p className="text-soft">{t("admin.passkeysNot")}</p>
        )}
        {add.isError && (
          <div className="mt-3">
            <Failure error={add.error} />
          </div>
        )}
      </section>
      <Substitutes me={me} />
      <section>
        <h2 className="mb-2">{t("admin.sessions")}</h2>
        <p className="mb-3 text-sm text-soft">{t("admin.sessionsWhy")}</p>
        {me.session && (
          <p className="mb-2 text-sm text-soft">
            {t("admin.idleAfter", { time: duration(me.session.idle_seconds * 1000) })}
          </p>
        )}
        <Sessions actor={me.actor_ref} />
      </section>
      {ending && (
        <ReasonDialog
          title={t("admin.removePasskeyOf", { label: ending.label ?? ending.key_id })}
          lead={t("admin.removePasskeyWhy")}
          needsReason={false}
          danger
          confirm={t("admin.removePasskey")}
          pending={remove.isPending}
          error={remove.error}
          onClose={() => setEnding(undefined)}
          onConfirm={(reason) => remove.mutate({ passkey: ending, reason })}
        />
      )}
    </div>
  );
}
