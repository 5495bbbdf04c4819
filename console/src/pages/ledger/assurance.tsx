// How an actor is known, and whether a record is sealed: an icon and words.
import { CircleDashed, KeyRound, LockKeyhole, PenLine, Server } from "lucide-react";
import { useTranslation, wordsFor } from "@/app/i18n";

const ICONS = { passkey_signed: KeyRound, actor_signed: PenLine, server_attested: Server } as const;
type Known = keyof typeof ICONS;

export function Assurance({ of }: { of: string }) {
  const { t } = useTranslation();
  const Icon = ICONS[of as Known] ?? Server;
  return (
    <span className="inline-flex items-center gap-1.5">
      <Icon aria-hidden size={14} className="shrink-0 text-soft" />
      {wordsFor(t, "assurance", of)}
    </span>
  );
}

export function SealState({ at }: { at?: number | null }) {
  const { t } = useTranslation();
  const Icon = at == null ? CircleDashed : LockKeyhole;
  return (
    <span className="inline-flex items-center gap-1.5 tabular">
      <Icon aria-hidden size={14} className="shrink-0 text-soft" />
      {at == null ? t("ledger.unsealed") : t("ledger.sealed", { at })}
    </span>
  );
}
