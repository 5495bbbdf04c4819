// What floats above a page. The browser's own dialog keeps the focus inside, closes on Escape and makes the rest inert.
import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import { useTranslation } from "@/app/i18n";
import { Button } from "./button";
import { Failure } from "./feedback";

export function Dialog({
  label,
  labelledBy,
  onClose,
  className = "",
  children,
}: {
  label?: string;
  labelledBy?: string;
  onClose: () => void;
  className?: string;
  children: ReactNode;
}) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = box.current;
    const before = document.activeElement;
    if (dialog && !dialog.open) dialog.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it, by the browser
    <dialog
      ref={box}
      aria-label={label}
      aria-labelledby={labelledBy}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      // A click on the dialog itself is one beside its content: on the backdrop.
      onClick={(event) => event.target === event.currentTarget && onClose()}
      className={`m-auto w-[min(34rem,calc(100vw-2rem))] rounded-xl border border-line bg-raised p-0 text-ink shadow-2xl backdrop:bg-black/40 ${className}`}
    >
      {children}
    </dialog>
  );
}

/** A question with a reason: what happens, why, and the button that does it. */
export function ReasonDialog({
  title,
  lead,
  needsReason = false,
  noReason = false,
  danger,
  confirm,
  pending,
  error,
  children,
  onConfirm,
  onClose,
}: {
  title: string;
  lead: ReactNode;
  needsReason?: boolean;
  /** Nothing keeps a reason for this. */
  noReason?: boolean;
  danger?: boolean;
  confirm: string;
  pending: boolean;
  error: unknown;
  /** Further fields, above the reason. */
  children?: ReactNode;
  onConfirm: (reason: string | undefined) => void;
  onClose: () => void;
}) {
  const { t } = useTranslation();
  const [reason, setReason] = useState("");
  const id = useId();
  return (
    <Dialog labelledBy={`${id}-title`} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onConfirm(reason.trim() || undefined);
        }}
        className="flex flex-col gap-4 p-6"
      >
        <div className="flex flex-col gap-1">
          <h2 id={`${id}-title`}>{title}</h2>
          <p className="text-soft">{lead}</p>
        </div>
        {children}
        {!noReason && (
          <div className="flex flex-col gap-1.5">
            <label htmlFor={`${id}-reason`} className="font-medium">
              {needsReason ? t("dialog.reason") : t("dialog.reasonMaybe")}
            </label>
            <textarea
              id={`${id}-reason`}
              rows={3}
              required={needsReason}
              value={reason}
              onChange={(event) => setReason(event.target.value)}
              className="field py-2"
            />
          </div>
        )}
        {error ? <Failure error={error} /> : null}
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>{t("common.cancel")}</Button>
          <Button type="submit" look={danger ? "danger" : "primary"} disabled={pending}>
            {pending ? t("dialog.recording") : confirm}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
