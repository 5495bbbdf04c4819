// A question with a reason: what happens, why, and the button that does it.
import { Dialog } from "@base-ui/react/dialog";
import { useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "./button";
import { Failure } from "./feedback";

export function ReasonDialog({
  title,
  lead,
  needsReason,
  danger,
  confirm,
  pending,
  error,
  onConfirm,
  onClose,
}: {
  title: string;
  lead: string;
  needsReason: boolean;
  danger?: boolean;
  confirm: string;
  pending: boolean;
  error: unknown;
  onConfirm: (reason: string | undefined) => void;
  onClose: () => void;
}) {
  const { t } = useTranslation();
  const [reason, setReason] = useState("");
  const field = useId();
  return (
    <Dialog.Root open onOpenChange={(open) => !open && onClose()}>
      <Dialog.Portal>
        <Dialog.Backdrop className="fixed inset-0 z-40 bg-black/40" />
        <Dialog.Popup className="fixed top-1/2 left-1/2 z-50 w-[min(32rem,calc(100vw-2rem))] -translate-x-1/2 -translate-y-1/2 rounded-lg border border-line bg-raised p-6 shadow-xl">
          <form
            onSubmit={(event) => {
              event.preventDefault();
              onConfirm(reason.trim() || undefined);
            }}
            className="flex flex-col gap-3"
          >
            <Dialog.Title className="font-serif text-lg font-semibold">{title}</Dialog.Title>
            <Dialog.Description className="text-soft">{lead}</Dialog.Description>
            <label htmlFor={field} className="font-medium">
              {needsReason ? t("dialog.reason") : t("dialog.reasonMaybe")}
            </label>
            <textarea
              id={field}
              rows={3}
              required={needsReason}
              value={reason}
              onChange={(event) => setReason(event.target.value)}
              className="rounded-md border border-strong bg-page px-3 py-2 text-sm"
            />
            {error ? <Failure error={error} /> : null}
            <div className="mt-2 flex justify-end gap-2">
              <Button onClick={onClose}>{t("common.cancel")}</Button>
              <Button type="submit" look={danger ? "danger" : "primary"} disabled={pending}>
                {pending ? t("dialog.recording") : confirm}
              </Button>
            </div>
          </form>
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}
