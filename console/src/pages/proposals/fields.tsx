// What a proposer says besides the document.
import { useTranslation } from "@/app/i18n";

export interface Said {
  reason: string;
  /** Separated by commas. */
  affected: string;
}

export const toBody = ({ reason, affected }: Said) => ({
  reason: reason.trim(),
  affected: affected
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean),
});

export function ProposalFields({ said, onSaid }: { said: Said; onSaid: (said: Said) => void }) {
  const { t } = useTranslation();
  return (
    <div className="mb-6 grid max-w-5xl gap-x-6 gap-y-4 md:grid-cols-2">
      <div className="flex flex-col gap-1">
        <label htmlFor="proposal-reason" className="font-medium">
          {t("dialog.reason")} <span className="font-normal text-soft">({t("definition.required")})</span>
        </label>
        <input
          id="proposal-reason"
          required
          value={said.reason}
          onChange={(event) => onSaid({ ...said, reason: event.target.value })}
          className="field"
        />
      </div>
      <div className="flex flex-col gap-1">
        <label htmlFor="proposal-affected" className="font-medium">
          {t("proposal.affected")}
        </label>
        <input
          id="proposal-affected"
          value={said.affected}
          placeholder={t("proposal.affectedHint")}
          onChange={(event) => onSaid({ ...said, affected: event.target.value })}
          className="field"
        />
      </div>
    </div>
  );
}
